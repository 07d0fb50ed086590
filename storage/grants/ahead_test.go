package grants_test

import (
	"context"
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/grants"
)

// TestWhatIsReadyAfterAStepOfTheTick does a step of a tick that changes what waits. What is ready afterwards is what
// the next tick finds, not what the tick read when it began.
func TestWhatIsReadyAfterAStepOfTheTick(t *testing.T) {
	for name, c := range map[string]struct {
		set  string // empty: the agent gets a lane for each conversation
		step func(ctx context.Context, t *grants.Tick) error
	}{
		"held messages": {
			`with m as (insert into turnkeeper.messages (agent, conversation, lane, body, state, attempts) values ('clerk', 'a', 'clerk', 'asks', 'running', 1) returning *)
			insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, home_lane, held, trigger, definition_hash, state, token)
			select id, 1, agent, conversation, agent || '#', agent, true, 'message', repeat('a', 64), 'waiting', 1 from m;
			insert into turnkeeper.messages (agent, conversation, lane, body, due_at) values ('clerk', 'a', 'clerk', 'held', now() - interval '1 hour')`,
			func(ctx context.Context, t *grants.Tick) error { _, err := t.MoveHeld(ctx); return err }},
		"lanes": {"",
			func(ctx context.Context, t *grants.Tick) error { return t.MoveLanes(ctx) }},
		"levels": {
			`insert into turnkeeper.pinned_levels (agent, level, pinned_by, reason) values ('clerk', 'critical', 'x', '');
			update turnkeeper.agents set levels = '{"critical": {"min_priority": 9}}' where name = 'clerk'`,
			func(ctx context.Context, t *grants.Tick) error { _, err := t.MoveLevels(ctx); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.Submit("desk", "x", "first")
			for _, d := range h.Dispatch("w") {
				d.Finish(t, "done") // there are leases
			}
			h.Turn("before").Finish(t, "done")
			h.Submit("clerk", "a", "one")
			h.Submit("clerk", "b", "two")
			if h.Exec(c.set); c.set == "" {
				h.Register("clerk", true)
			}
			ready := func(step func(context.Context, *grants.Tick) error) (ids []turnkeeper.MessageID) {
				h.Tick(func(ctx context.Context, tick *grants.Tick) error {
					if step != nil {
						if err := step(ctx, tick); err != nil {
							return err
						}
					}
					all, err := tick.ReadyMessages(ctx, 10, nil)
					for _, r := range all {
						ids = append(ids, r.MessageID)
					}
					return err
				})
				slices.Sort(ids)
				return ids
			}
			before, got, want := ready(nil), ready(c.step), ready(nil)
			if !slices.Equal(got, want) || slices.Equal(before, want) {
				t.Errorf("ready are %v, after the step %v, in the next tick %v", before, got, want)
			}
		})
	}
}
