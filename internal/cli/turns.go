package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func (s *session) turnsCommand() *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: "turns", Short: "List turns, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page(turnStates...)
			if err != nil {
				return err
			}
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.Turn, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				return store.Turns(ctx, page)
			}
			return list(s, cmd, look, views.OfTurn, showTurns, "no turns")
		},
	}
	flags.add(cmd, strings.Join(turnStates, ", "))
	flags.addBefore(cmd)
	return cmd
}

func showTurns(s *screen, c clock, turns []turnkeeper.Turn) {
	t := newTable(">TURN", "STATE", "AGENT", "CONVERSATION", ">MESSAGE", ">ROUNDS", ">CALLS", ">TOKENS", ">TOOK", "BEGAN", "NOTE")
	for _, turn := range turns {
		took := "-"
		if !turn.EndedAt.IsZero() {
			took = exact(turn.Duration())
		}
		t.add(fmt.Sprint(turn.ID), turnCell(turn), turn.Agent, turn.Conversation, fmt.Sprint(turn.MessageID),
			fmt.Sprint(turn.InferenceRounds), fmt.Sprint(turn.ExecutedCalls), thousands(turn.Usage.Total()), took,
			c.at(turn.CreatedAt), cell{cmp.Or(words.Doing(turn, c.ago), stoppedBy(turn)), dim})
	}
	t.print(s)
}

// turnCell is the state of a turn, which stands out where its worker is silent.
func turnCell(t turnkeeper.Turn) cell {
	if t.Silence != nil {
		return cell{"! " + string(t.State), bad}
	}
	return stateCell(t.State)
}

func stateCell[S ~string](state S) cell {
	return cell{signOf(state) + " " + string(state), toneOf(state)}
}

// stoppedBy is why a turn ended, if there is anything to say.
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
