package journal_test

import (
	"context"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// TestABystanderSeesAllOrNothing locks the last row of each write, and reads all rows on another
// connection while the write waits. Nothing of the write may be visible yet.
func TestABystanderSeesAllOrNothing(t *testing.T) {
	testrun.Guard(t)
	for _, c := range []struct {
		name   string
		before func(scene)
		lock   string // of the last row that is written; $1 is the turn
		do     func(scene) error
		least  int // minimum number of rows that change
	}{
		{
			"the end", scene.calls,
			"select from turnkeeper.river_job where id = (select job_id from turnkeeper.turns where id = $1) for update",
			func(s scene) error {
				return s.Append(s.T.Context(), turnlog.Entry{Outcome: storagetest.Succeeded("done"),
					Events: storagetest.Events(turnkeeper.EventTurnComplete)}, storagetest.Answered)
			}, 7,
		},
		{
			"a step", scene.calls,
			"insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash) values ($1, 1, 2, 1, 'once', 0, 0, 'held', '', '', '', '')",
			func(s scene) error {
				return s.Append(s.T.Context(), turnlog.Entry{
					Round: storagetest.Round(3), Events: storagetest.Events(turnkeeper.EventRoundStart),
					Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2), "n", 1,
						turnkeeper.EffectOnce)},
				}, turnlog.Consequence{})
			}, 5,
		},
		{
			"an arrival", func(s scene) { s.open(); s.claim("w") },
			"select from turnkeeper.river_job where id = (select job_id from turnkeeper.detached_calls where turn_id = $1 and round = 1 and ordinal = 1) for update",
			func(s scene) error {
				return s.Arrive(s.T.Context(), s.claimed(), storagetest.Result(storagetest.Key(1, 1), s.nonce(1, 1),
					turnkeeper.CallSucceeded, "ok"))
			}, 4,
		},
		{
			"a cancellation", func(s scene) { s.calls(); s.Lose(s.Dispatch) },
			"select from turnkeeper.messages where id = (select message_id from turnkeeper.turns where id = $1) for update",
			func(s scene) error {
				_, err := s.CancelTurn(s.T.Context(), s.Grant.TurnID, "enough")
				return err
			}, 8,
		},
		{
			"a grant", func(s scene) {
				s.Finish(s.T, "done")
				s.Exec("insert into turnkeeper.leases (lane, agent, failures) values ('desk/it', 'desk', 1)")
				s.Submit("desk", "it", "again")
			},
			"select from turnkeeper.leases where grant_id is null and $1 > 0 for update",
			func(s scene) error {
				ctx := s.T.Context()
				return s.InTick(ctx, func(tick *grants.Tick) error {
					if _, _, err := tick.Snapshot(ctx, true); err != nil {
						return err
					}
					ready, err := tick.ReadyMessages(ctx, 1, nil)
					if err != nil {
						return err
					}
					return tick.Grant(ctx, ready, []turnkeeper.GrantID{"8b8d0a52-9d2e-4f0c-9f69-0a4c6d0f3b11"},
						storagetest.TurnJob, storagetest.TTL)
				})
			}, 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newEnv(t)
			h.T = t
			h.Submit("desk", "it", "x")
			s := scene{h, h.Dispatch("worker-1")[0]}
			c.before(s)
			hold, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hold.Rollback(context.Background()) }()
			if _, err := hold.Exec(t.Context(), c.lock, s.Grant.TurnID); err != nil {
				t.Fatal(err)
			}
			before := h.Rows()
			written := make(chan error, 1)
			go func() { written <- c.do(s) }()
			h.AwaitLockWaits(1)
			for _, row := range storagetest.Changed(before, h.Rows()) {
				if strings.HasPrefix(row, "cancellation ") {
					continue // the request to cancel is a separate transaction
				}
				t.Errorf("seen before the write is whole: %s", row)
			}
			if err := hold.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if after := storagetest.Changed(before, h.Rows()); len(after) < c.least {
				t.Errorf("changed %v, want %d rows or more", after, c.least)
			}
		})
	}
}
