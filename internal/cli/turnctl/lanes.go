package turnctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func lanesCommand(s *shell.Session) *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: "lanes", Short: "List lanes with their holders and waiting messages", Args: cobra.NoArgs,
		Long: `List lanes with their holders and waiting messages: those in which a turn is open, a message
waits, or the newest turns have failed. Held lanes come first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page()
			if err != nil {
				return err
			}
			look := func(ctx context.Context, store *operate.Store) ([]operate.LaneView, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				if err := printPause(ctx, s, store); err != nil {
					return nil, err
				}
				return store.Lanes(ctx, page)
			}
			return list(s, cmd, look, views.OfLane, showLanes, "no lanes: nothing runs, waits or has failed in one")
		},
	}
	flags.add(cmd, "")
	return cmd
}

func showLanes(s *term.Screen, c term.Clock, lanes []operate.LaneView) {
	t := term.NewTable("LANE", "LEASE", ">TURN", ">WAITING", ">TOKEN", ">FAILURES", "NOT BEFORE", "WORKER", "WAITS")
	for _, lane := range lanes {
		l, token := lane.Lease, ""
		if l.Token != 0 {
			token = fmt.Sprint(l.Token)
		}
		lease, turn := term.Cell{Text: "free", Tone: term.Dim}, "-"
		if lane.OpenTurn != 0 {
			turn = fmt.Sprint(lane.OpenTurn)
			lease = term.Cell{Text: "free, turn " + string(lane.TurnState), Tone: term.Dim}
		}
		if l.Held() {
			turn = fmt.Sprint(l.TurnID)
			lease = term.Cell{Text: "held, " + term.Exact(max(lane.Remaining, 0)) + " left", Tone: term.Active}
			if lane.Remaining <= 0 {
				lease = term.Cell{Text: "lapsed " + c.Ago(l.Until), Tone: term.Warned}
			}
			if lane.Silence != nil {
				lease = term.Cell{Text: "held, " + words.SilentFor(*lane.Silence), Tone: term.Bad}
			}
		}
		t.Add(string(l.Lane), lease, turn, term.Thousands(int64(lane.Waiting)), term.OrDash(token),
			fmt.Sprint(l.Failures),
			c.At(l.NotBefore), term.OrDash(string(l.WorkerID)), term.OrDash(waiting.Notes(c.Ago, lane.Waits,
				lane.Outside)))
	}
	t.Print(s)
}
