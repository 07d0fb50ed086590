package grants_test

import (
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// pourAsks adds turns of one agent that wait for people outside its lane, each of its own conversation.
func (h *env) pourAsks(turns int) {
	h.T.Helper()
	h.NeverAnalyzed()
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, state, attempts)
		select 'clerk', 'c' || i, 'clerk', 'x', 'running', 1 from generate_series(1, $1::int) i`, turns)
	h.Exec(`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, home_lane, held, trigger, definition_hash, state, token)
		select id, id, 1, agent, conversation, 'clerk#' || id, 'clerk', true, 'message', repeat('a', 64), 'waiting', 1
		from turnkeeper.messages where state = 'running'`)
	h.Exec(`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		select id, 1, 1, 'approve', 1, 'pay', '{}', 'h', '', '', '{}', true, now() + interval '3 days' from turnkeeper.turns`)
}

func (h *env) send(agent, body string) turnkeeper.MessageID {
	h.T.Helper()
	id, err := h.Enqueue(h.T.Context(), turnkeeper.Submission{Agent: agent, Body: body})
	if err != nil {
		h.T.Fatal(err)
	}
	return id
}

// TestManyAsksDoNotSlowATick explains the statements of a tick beside 10,000 turns that ask: they read as much as without them.
func TestManyAsksDoNotSlowATick(t *testing.T) {
	statements := []string{"Look", "ShortQueue", "ReadyMessages", "ReadyTurns", "NextDue"}
	h := newEnv(t)
	waiting := h.send("desk", "hello")
	before := map[string]int{}
	for _, name := range statements {
		before[name] = h.Explain(query(t, "scheduler.sql", name)).Pages()
	}
	h.pourAsks(10_000)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.asks")
		}
		for _, name := range statements {
			plan := h.Explain(query(t, "scheduler.sql", name))
			plan.Walk(func(n storagetest.Plan) {
				if (n.Relation == "asks" || n.Relation == "turns") && n.Type == "Seq Scan" && n.Rows*n.Loops > 0 {
					t.Errorf("%s, analyzed %v: a %s of %s", name, analyzed, n.Type, n.Relation)
				}
			})
			const few = 60 // pages, for a deeper index or two
			if got := plan.Pages(); got > before[name]+few {
				t.Errorf("%s, analyzed %v: looks at %d pages, and at %d without asks", name, analyzed, got, before[name])
			}
		}
	}

	// Messages that are held block no lane, even if they were accepted after their turn was parked.
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at)
		select agent, conversation, 'clerk', 'later', now() - interval '1 hour' from turnkeeper.turns where id % 20 = 0`)
	other := h.send("clerk", "free")
	var ready []granting.Candidate
	began := time.Now()
	for range 6 { // each moves some of the 500
		err := h.InTick(t.Context(), func(tick *grants.Tick) error {
			if _, _, err := tick.Look(t.Context(), true); err != nil {
				return err
			}
			if _, err := tick.MoveHeld(t.Context()); err != nil {
				return err
			}
			var err error
			ready, err = tick.ReadyMessages(t.Context(), 10, nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("six ticks took %s", time.Since(began).Round(time.Millisecond))
	if len(ready) != 2 || ready[0].MessageID != waiting && ready[1].MessageID != waiting || ready[0].MessageID != other && ready[1].MessageID != other {
		t.Errorf("ready are %+v, want messages %d and %d", ready, waiting, other)
	}
}
