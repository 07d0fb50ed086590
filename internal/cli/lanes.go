package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

func (s *session) lanesCommand() *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: "lanes", Short: "List lanes: who holds them, and what waits in them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page()
			if err != nil {
				return err
			}
			look := func(ctx context.Context, store *operate.Store) ([]operate.LaneView, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				if err := s.tellPaused(ctx, store); err != nil {
					return nil, err
				}
				return store.Lanes(ctx, page)
			}
			return list(s, cmd, look, views.OfLane, showLanes, "no lanes: a lane comes with its first turn")
		},
	}
	flags.add(cmd, "")
	return cmd
}

func showLanes(s *screen, c clock, lanes []operate.LaneView) {
	t := newTable("LANE", "LEASE", ">TURN", ">WAITING", ">TOKEN", ">FAILURES", "NOT BEFORE", "WORKER")
	for _, lane := range lanes {
		l := lane.Lease
		lease, turn := cell{"free", dim}, "-"
		if lane.OpenTurn != 0 {
			turn = fmt.Sprint(lane.OpenTurn)
			lease = cell{"free, turn " + string(lane.TurnState), dim}
		}
		if l.Held() {
			turn = fmt.Sprint(l.TurnID)
			lease = cell{"held, " + exact(max(lane.Remaining, 0)) + " left", active}
			if lane.Remaining <= 0 {
				lease = cell{"lapsed " + c.ago(l.Until), warned}
			}
			if lane.Silence != nil {
				lease = cell{"held, " + words.SilentFor(*lane.Silence), bad}
			}
		}
		t.add(string(l.Lane), lease, turn, thousands(int64(lane.Waiting)), fmt.Sprint(l.Token), fmt.Sprint(l.Failures),
			c.at(l.NotBefore), orDash(string(l.WorkerID)))
	}
	t.print(s)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
