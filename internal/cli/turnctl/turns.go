package turnctl

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views"
	"turnkeeper/internal/views/columns"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

func turnsCommand(s *shell.Session) *cobra.Command {
	return newestCommand(s, "turns", "turns", turnStates, (*operate.Store).Turns, views.OfTurn, showTurns)
}

func showTurns(s *term.Screen, c term.Clock, turns []waiting.Turn) {
	t := newColumns(columns.OfTurns, []string{">TURN", "STATE"}, ">TOOK", "BEGAN", "NOTE")
	for _, turn := range turns {
		took := "-"
		if !turn.EndedAt.IsZero() {
			took = term.Exact(turn.Duration())
		}
		t.add(turn, []any{fmt.Sprint(turn.ID), turnCell(turn.Turn)}, took, c.At(turn.CreatedAt),
			term.Cell{Text: cmp.Or(waiting.Doing(turn, c.Ago), stoppedBy(turn.Turn)), Tone: term.Dim})
	}
	t.Print(s)
}

// turnCell returns the state of a turn, highlighted if its worker is silent.
func turnCell(t turnkeeper.Turn) term.Cell {
	if t.Silence != nil {
		return term.Cell{Text: "! " + string(t.State), Tone: term.Bad}
	}
	return stateCell(t.State)
}

func stateCell[S ~string](state S) term.Cell {
	return term.Cell{Text: term.SignOf(state) + " " + string(state), Tone: term.ToneOf(state)}
}

// stoppedBy returns the stop reason or error class of a turn, or a dash.
func stoppedBy(t turnkeeper.Turn) string {
	switch {
	case t.StopReason != "" && t.StopReason != turnkeeper.StopNone:
		return string(t.StopReason)
	case t.ErrorClass != "":
		return t.ErrorClass
	default:
		return "-"
	}
}
