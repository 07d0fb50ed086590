package storage_test

import (
	"context"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
)

// TestABystanderSeesAllOrNothing stops each write at its last row, which somebody holds, and looks at all
// rows from outside: until the write is whole, there is nothing of it.
func TestABystanderSeesAllOrNothing(t *testing.T) {
	testrun.Guard(t)
	for _, c := range []struct {
		name   string
		before func(scene)
		lock   string // the last row that is written; $1 is the turn
		do     func(scene) error
		least  int // rows that change
	}{
		{
			"the end", scene.calls, "select from turnkeeper.river_job where id = (select job_id from turnkeeper.turns where id = $1) for update",
			func(s scene) error {
				return s.Append(s.t.Context(), turnkeeper.Entry{Outcome: succeeded("done"), Events: events(turnkeeper.EventTurnComplete)}, answered)
			}, 7,
		},
		{
			"a step", scene.calls, "select from turnkeeper.calls where turn_id = $1 and round = 1 and ordinal = 2 for update",
			func(s scene) error {
				return s.Append(s.t.Context(), turnkeeper.Entry{
					Round: round(3), Events: events(turnkeeper.EventRoundStart), Starts: []turnkeeper.CallStart{start(key(1, 2), "n", 1, turnkeeper.EffectOnce)},
				}, storage.Ending{})
			}, 5,
		},
		{
			"an arrival", func(s scene) { s.open(); s.claim("w") },
			"select from turnkeeper.river_job where id = (select job_id from turnkeeper.detached_calls where turn_id = $1 and round = 1 and ordinal = 1) for update",
			func(s scene) error {
				return s.Arrive(s.t.Context(), s.claimed(), result(key(1, 1), s.nonce(1, 1), turnkeeper.CallSucceeded, "ok"))
			}, 4,
		},
		{
			"a cancellation", func(s scene) { s.calls(); s.lose(s.dispatch) },
			"select from turnkeeper.messages where id = (select message_id from turnkeeper.turns where id = $1) for update",
			func(s scene) error {
				_, err := s.CancelTurn(s.t.Context(), s.grant.TurnID, "enough")
				return err
			}, 8,
		},
		{
			"a grant", func(s scene) { s.finish(s.t, "done"); s.enqueue("desk", "it", "again") },
			"select from turnkeeper.messages where state = 'waiting' and $1 > 0 for update",
			func(s scene) error {
				ctx := s.t.Context()
				return s.InTick(ctx, func(tick *storage.Tick) error {
					if _, _, err := tick.Look(ctx); err != nil {
						return err
					}
					ready, err := tick.ReadyMessages(ctx, 1, nil)
					if err != nil {
						return err
					}
					return tick.Grant(ctx, ready, []turnkeeper.GrantID{"8b8d0a52-9d2e-4f0c-9f69-0a4c6d0f3b11"}, turnJob, ttl)
				})
			}, 5,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			h.t = t
			h.enqueue("desk", "it", "x")
			s := scene{h, h.dispatch("worker-1")[0]}
			c.before(s)
			hold, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hold.Rollback(context.Background()) }()
			if _, err := hold.Exec(t.Context(), c.lock, s.grant.TurnID); err != nil {
				t.Fatal(err)
			}
			before := h.rows()
			written := make(chan error, 1)
			go func() { written <- c.do(s) }()
			h.awaitWaiting(1)
			for _, row := range changed(before, h.rows()) {
				if strings.HasPrefix(row, "cancellation ") {
					continue // the wish alone is a write of its own
				}
				t.Errorf("seen before the write is whole: %s", row)
			}
			if err := hold.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if after := changed(before, h.rows()); len(after) < c.least {
				t.Errorf("changed %v, want %d rows or more", after, c.least)
			}
		})
	}
}
