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
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, state, in_queue, attempts)
		select 'clerk', 'c' || i, 'clerk', 'x', 'running', false, 1 from generate_series(1, $1::int) i`, turns)
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, home_lane, held, trigger, definition_hash, state, token)
		select id, id, 1, agent, conversation, 'clerk#' || id, 'clerk', true, 'message', repeat('a', 64), 'waiting', 1
		from turnkeeper.messages where state = 'running'`)
	h.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
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

// TestManyAsksDoNotSlowATick checks that a tick reads no more pages when 10,000 turns have open asks.
func TestManyAsksDoNotSlowATick(t *testing.T) {
	statements := []string{"Snapshot", "ReadyMessages", "ReadyTurns", "NextDue"}
	h := newFresh(t)
	waiting := h.send("desk", "hello")
	before := map[string]int{}
	for _, name := range statements {
		before[name] = storagetest.ExplainWithin(h.DB, 0, query(t, "scheduler.sql", name)).Pages()
	}
	h.pourAsks(10_000)
	const few = 60 // pages, for a deeper index or two
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			h.Exec("vacuum analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.asks")
		}
		for _, name := range statements {
			plan := storagetest.ExplainWithin(h.DB, before[name]+few, query(t, "scheduler.sql", name))
			plan.Walk(func(n storagetest.Plan) {
				if (n.Relation == "asks" || n.Relation == "turns") && n.Type == "Seq Scan" && n.Rows*n.Loops > 0 {
					t.Errorf("%s, analyzed %v: a %s of %s", name, analyzed, n.Type, n.Relation)
				}
			})
			if got := plan.Pages(); got > before[name]+few {
				t.Errorf("%s, analyzed %v: looks at %d pages, and at %d without asks", name, analyzed,
					got, before[name])
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
			if _, _, err := tick.Snapshot(t.Context(), true); err != nil {
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
	if len(ready) != 2 || ready[0].MessageID != waiting && ready[1].MessageID != waiting ||
		ready[0].MessageID != other && ready[1].MessageID != other {
		t.Errorf("ready are %+v, want messages %d and %d", ready, waiting, other)
	}
}

// TestWhatAParkedTurnHolds checks which messages wait because of a turn of clerk that is parked, and where they go. A
// turn of desk is parked, too.
func TestWhatAParkedTurnHolds(t *testing.T) {
	h := newEnv(t)
	for _, turn := range [][2]string{{"clerk", "a"}, {"desk", "z"}} {
		h.Exec(
			`with m as (insert into turnkeeper.messages (agent, conversation, lane, body, state, attempts) values ($1, $2, $1, 'asks', 'running', 1) returning *)
			insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, home_lane, held, trigger, definition_hash, state, token)
			select id, 1, agent, conversation, agent || '#', agent, true, 'message', repeat('a', 64), 'waiting', 1 from m`, turn[0], turn[1])
	}
	check := func(what, want string) {
		t.Helper()
		if got := storagetest.One[string](h,
			`select concat_ws(' ', turnkeeper.parked_turn_blocks('clerk', '', 'a', 'clerk', now(), 0), turnkeeper.parked_turn_blocks('clerk', '', 'b', 'clerk', now(), 0),
			turnkeeper.parked_turn_blocks('desk', '', 'a', 'desk', now(), 0), coalesce(turnkeeper.held_lane('clerk', '', 'a'), '-'), coalesce(turnkeeper.held_lane('clerk', '', 'b'), '-'),
			coalesce(turnkeeper.held_lane('desk', '', 'a'), '-'), coalesce(turnkeeper.held_lane('clerk', 'anna', 'a'), '-'),
			turnkeeper.parked_turn_blocks('clerk', 'anna', 'a', 'clerk', now(), 0))`); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("it holds its conversation", "t f f clerk# - - - f")
	h.Exec("update turnkeeper.turns set held = false where agent = 'clerk'")
	check("it goes on", "f f f - - - - f")

	lanes := func(what, want string) {
		t.Helper()
		if got := storagetest.One[string](h,
			"select string_agg(body || ' ' || lane, ', ' order by id) from turnkeeper.messages where body <> 'asks'"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	move := func(what string, limit, want int) {
		t.Helper()
		if got := storagetest.One[int](h, "select turnkeeper.move_held($1)", limit); got != want {
			t.Errorf("%s: %d messages were moved, want %d", what, got, want)
		}
	}
	for _, m := range [][3]string{{"clerk", "z", "1"}, {"clerk", "a", "2"}, {"desk", "a", "3"}, {"desk", "z", "4"},
		{"clerk", "a", "closed"}} {
		h.Exec(
			`insert into turnkeeper.messages (agent, conversation, lane, body, due_at, state, closed_at) select $1, $2, $1, $3, now() - interval '1 hour',
			case when $3 = 'closed' then 'cancelled' else 'waiting' end, case when $3 = 'closed' then clock_timestamp() end`, m[0], m[1], m[2])
	}
	move("while it goes on", 10, 1)
	h.Exec("update turnkeeper.messages set lane = 'desk', held = false where body = '4'")
	h.Exec("update turnkeeper.turns set held = true where agent = 'clerk'")
	move("of the oldest message", 1, 0)
	move("of all messages", 10, 2)
	lanes("moved", "1 clerk, 2 clerk#, 3 desk, 4 desk#, closed clerk")
	h.Exec("insert into turnkeeper.messages (agent, conversation, lane, body) values ('clerk', 'a', 'clerk', '5')")
	move("of a later message", 10, 1)
	h.Exec("update turnkeeper.messages set lane = 'clerk#', held = true where body = 'closed'")

	h.Exec("update turnkeeper.turns set state = 'queued' where agent = 'clerk'")
	check("it is woken", "t t f clerk# - - - t")
	lanes("woken", "1 clerk, 2 clerk, 3 desk, 4 desk#, closed clerk#, 5 clerk")
	h.Exec("update turnkeeper.turns set held = false where agent = 'clerk'")
	check("it is woken, and held nothing", "t t f - - - - t")
}
