package grants_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// addMessage inserts a message and returns its id.
func (h *env) addMessage(agent, conversation, lane, state string) int64 {
	return storagetest.One[int64](h,
		`insert into turnkeeper.messages (agent, conversation, lane, body, state, closed_at)
		values ($1, $2, $3, 'x', $4::text, case when $4::text in ('succeeded', 'degraded', 'failed', 'cancelled') then now() end) returning id`,
		agent, conversation, lane, state)
}

// addTurn inserts a turn of a message.
func (h *env) addTurn(message int64, agent, conversation, lane, state string) {
	h.Exec(
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token,
			grant_id, granted_at, lease_until, ended_at, stop_reason)
		select $1, 1, $2, $3, $4, 'message', '', $5::text, 1, gen_random_uuid(), now(), now() + interval '1 h',
			case when over then now() end, case when over then 'none' end from (select $5::text = 'succeeded' as over) o`,
		message, agent, conversation, lane, state)
}

// addSpawned makes a message that of a sub-agent.
func (h *env) addSpawned(message int64) {
	h.Exec("insert into turnkeeper.agent_trees (root, max_depth, max_agents) values (1, 1, 1) on conflict do nothing")
	h.Exec(`insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline)
		values (1, 1, $1::bigint, $1::bigint, 'desk', 1, '{clerk,desk}', now() + interval '1 h')`, message)
}

// TestWhichMessagesMove has an agent for each reason to move its message or not, and for each reason why its
// lanes still count as changed.
func TestWhichMessagesMove(t *testing.T) {
	h := newEnv(t)
	cases := map[string]struct {
		perConversation bool
		changed         string // how long ago the lanes changed; empty: never
		message, turn   string // states; no turn if empty
		sub             bool   // the message is a sub-agent's
		lane, want      string // of the message, and of its turn: without the agent's name
		open            bool   // the lanes still count as changed
	}{
		"unchanged":       {perConversation: true, message: "waiting"},
		"by-conversation": {perConversation: true, changed: "1 m", message: "waiting", want: "/x", open: true},
		"as-one":          {changed: "1 m", message: "waiting", lane: "/x", open: true},
		"in-its-lane": {perConversation: true, changed: "1 m", message: "waiting", lane: "/x",
			want: "/x", open: true},
		"answered":           {perConversation: true, changed: "1 m", message: "succeeded", open: true},
		"sub-agent":          {perConversation: true, changed: "1 m", message: "waiting", sub: true, open: true},
		"almost-an-hour-ago": {perConversation: true, changed: "59 m", message: "waiting", want: "/x", open: true},
		"an-hour-ago":        {perConversation: true, changed: "61 m", message: "waiting", want: "/x"},
		"queued": {perConversation: true, changed: "2 h", message: "running",
			turn: "queued", open: true},
		"running": {perConversation: true, changed: "2 h", message: "running",
			turn: "running", open: true},
		"waiting": {perConversation: true, changed: "2 h", message: "running",
			turn: "waiting", open: true},
		"ended": {perConversation: true, changed: "2 h", message: "succeeded", turn: "succeeded"},
		"running-in-its-lane": {perConversation: true, changed: "2 h", message: "running", turn: "running",
			lane: "/x", want: "/x"},
		"running-in-one-lane": {changed: "2 h", message: "running", turn: "running"},
		"running-in-an-old-one": {changed: "2 h", message: "running", turn: "running", lane: "/x",
			want: "/x", open: true},
		"running-sub-agent": {perConversation: true, changed: "2 h", message: "running",
			turn: "running", sub: true},
	}
	for agent, c := range cases {
		h.Register(agent, c.perConversation)
		if c.changed != "" {
			h.Exec("update turnkeeper.agents set lanes_changed_at = now() - $2::text::interval where name = $1",
				agent, c.changed)
		}
		id := h.addMessage(agent, "x", agent+c.lane, c.message)
		if c.turn != "" {
			h.addTurn(id, agent, "x", agent+c.lane, c.turn)
		}
		if c.sub {
			h.addSpawned(id)
		}
	}
	type agentRow struct {
		Name, Lane, Place string
		Changed           string
		Moved             bool
	}
	read := func() map[string]agentRow {
		rows, _ := h.Pool().Query(t.Context(),
			`select a.name, m.lane, m.ctid::text, coalesce(a.lanes_changed_at::text, ''), a.lanes_moved_at is not null
			from turnkeeper.agents a join turnkeeper.messages m on m.agent = a.name`)
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[agentRow])
		if err != nil || len(all) != len(cases) {
			t.Fatalf("%d agents with messages, want %d; error %v", len(all), len(cases), err)
		}
		byName := map[string]agentRow{}
		for _, a := range all {
			byName[a.Name] = a
		}
		return byName
	}
	before := read()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error { return tick.MoveLanes(ctx) })
	for agent, after := range read() {
		c := cases[agent]
		if after.Lane != agent+c.want {
			t.Errorf("%s: the message is in the lane %s, want %s", agent, after.Lane, agent+c.want)
		}
		if written := after.Place != before[agent].Place; written != (c.lane != c.want) {
			t.Errorf("%s: the message was written: %t", agent, written)
		}
		if open := after.Changed != ""; open != c.open || open && after.Changed != before[agent].Changed {
			t.Errorf("%s: the lanes changed at %q, before %q; want kept: %t", agent, after.Changed,
				before[agent].Changed, c.open)
		}
		if after.Moved != (c.changed != "") {
			t.Errorf("%s: the lanes were moved: %t", agent, after.Moved)
		}
	}
}

// TestWhichMessagesWaitForOtherLanes calls turnkeeper.lane_waits for a message to the agent clerk in conversation x
// while another turn exists.
func TestWhichMessagesWaitForOtherLanes(t *testing.T) {
	h := newEnv(t)
	type turn struct {
		state, agent, conversation, lane string
		sub                              bool // it is a sub-agent's
	}
	const byConversation, asOne = true, false
	for name, c := range map[string]struct {
		perConversation bool
		lane            string
		sub             bool // the message is a sub-agent's
		turn            turn
		want            bool
	}{
		"its lane":                      {byConversation, "clerk/x", false, turn{}, false},
		"its lane, as one":              {asOne, "clerk", false, turn{}, false},
		"an old lane":                   {byConversation, "clerk", false, turn{}, true},
		"an old lane, as one":           {asOne, "clerk/x", false, turn{}, true},
		"a sub-agent's, in an old lane": {byConversation, "clerk", true, turn{}, false},
		"a sub-agent's, beside a turn": {byConversation, "clerk/x", true, turn{"running", "clerk", "x", "clerk",
			false}, false},

		"beside a queued turn": {byConversation, "clerk/x", false, turn{"queued", "clerk", "x", "clerk",
			false}, true},
		"beside a running turn": {byConversation, "clerk/x", false, turn{"running", "clerk", "x", "clerk",
			false}, true},
		"beside a waiting turn": {byConversation, "clerk/x", false, turn{"waiting", "clerk", "x", "clerk",
			false}, true},
		"beside an ended turn": {byConversation, "clerk/x", false, turn{"succeeded", "clerk", "x", "clerk",
			false}, false},
		"beside another agent's": {byConversation, "clerk/x", false, turn{"running", "desk", "x", "clerk",
			false}, false},
		"behind a turn in its lane": {byConversation, "clerk/x", false, turn{"running", "clerk", "x", "clerk/x",
			false}, false},
		"beside another conversation": {byConversation, "clerk/x", false, turn{"running", "clerk", "y", "clerk",
			false}, false},
		"beside another one, as one": {asOne, "clerk", false, turn{"running", "clerk", "y", "clerk/y",
			false}, true},
		"beside another sub-agent's": {asOne, "clerk", false, turn{"running", "clerk", "y", "clerk/y",
			true}, false},
		"beside a sub-agent's of the same": {asOne, "clerk", false, turn{"running", "clerk", "x",
			"clerk/x", true}, true},
		"beside a sub-agent's by itself": {byConversation, "clerk/x", false, turn{"running", "clerk", "x",
			"clerk", true}, true},
		"beside a sub-agent's, not of here": {byConversation, "clerk/x", false, turn{"running", "clerk", "y", "clerk",
			true}, false},
	} {
		h.Exec("delete from turnkeeper.turns")
		h.Exec("delete from turnkeeper.spawned_calls")
		const message, ofTurn, other = 1, 2, 3
		h.addSpawned(other)
		if c.sub {
			h.addSpawned(message)
		}
		if c.turn.sub {
			h.addSpawned(ofTurn)
		}
		if c.turn.state != "" {
			h.addTurn(ofTurn, c.turn.agent, c.turn.conversation, c.turn.lane, c.turn.state)
		}
		if got := storagetest.One[bool](h, "select turnkeeper.lane_waits($1, 'clerk', '', 'x', $2, $3)", message,
			c.lane, c.perConversation); got != c.want {
			t.Errorf("%s: it waits: %t", name, got)
		}
	}
}

// TestWhichMessagesWaitForParkedTurns calls turnkeeper.lane_waits for a message in its own lane while a turn of another
// lane is parked, or goes back to that lane, and while one of a user's conversation of that name runs.
func TestWhichMessagesWaitForParkedTurns(t *testing.T) {
	h := newEnv(t)
	const message, ofTurn = 1, 2
	for _, id := range []int{message, ofTurn, 3, 4} { // the last two are the oldest and the newest
		h.Exec(`insert into turnkeeper.messages (id, agent, conversation, lane, body, due_at) overriding system value
			values ($1::bigint, 'clerk', 'x', 'clerk/x', 'x', now() + case $1::bigint when 3 then interval '-9 h' else '9 h' end)`, id)
	}
	h.addTurn(ofTurn, "clerk", "x", "clerk", "waiting")
	for _, c := range []struct {
		what, turn, older string
		want              bool
	}{
		{"a turn that waits in its lane", "", "-1 h", true},
		{"a parked turn", "lane = 'clerk#2', home_lane = 'clerk'", "-1 h", false},
		{"one that goes back, with an older message", "state = 'queued'", "-1 h", true},
		{"one that goes back, with a newer message", "state = 'queued'", "1 h", false},
		{"a turn of a user", "lane = 'clerk', home_lane = null, user_name = 'anna'", "-1 h", false},
	} {
		if c.turn != "" {
			h.Exec("update turnkeeper.turns set " + c.turn)
		}
		h.Exec(
			"update turnkeeper.messages set due_at = now() + case id when 2 then $1::text::interval else '0' end where id < 3", c.older)
		if got := storagetest.One[bool](h, "select turnkeeper.lane_waits($1, 'clerk', '', 'x', 'clerk/x', true)",
			message); got != c.want {
			t.Errorf("beside %s: it waits: %t", c.what, got)
		}
	}
}

// TestWhichLanesAreForgotten has a lease for each reason to keep it, and some without such a reason.
func TestWhichLanesAreForgotten(t *testing.T) {
	h := newEnv(t)
	for i, lane := range []string{"held", "logged", "message", "answered", "queued", "running", "waiting",
		"succeeded", "free"} {
		h.Exec("insert into turnkeeper.leases (lane, agent) values ('desk/' || $1, 'desk')", lane)
		switch lane {
		case "held":
			h.Exec(
				"update turnkeeper.leases set grant_id = gen_random_uuid(), turn_id = 1, granted_at = now(), lease_until = now() + interval '1 h'")
		case "logged":
			h.Exec(
				"insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome) values ('desk/logged', 1, gen_random_uuid(), 1, 1, now(), now(), now(), 'lost')")
		case "message":
			h.addMessage("desk", lane, "desk/"+lane, "waiting")
		case "answered":
			h.addMessage("desk", lane, "desk/"+lane, "succeeded")
		case "queued", "running", "waiting", "succeeded":
			h.addTurn(int64(i), "desk", lane, "desk/"+lane, lane)
		}
	}
	h.Exec(
		"insert into turnkeeper.leases (lane, agent) values ('clerk', 'clerk'), ('clerk/free', 'clerk'), ('desk@a%2Fb/free', 'desk'), ('desk@a%2F%/free', 'desk')")
	all := storagetest.One[[]string](h, "select array_agg(lane) from turnkeeper.leases")
	for _, c := range []struct {
		agent, user, conversation, forgotten string
	}{
		{"", "", "", "clerk clerk/free desk/answered desk/free desk/logged desk/succeeded desk@a%2F%/free desk@a%2Fb/free"},
		{"desk", "", "", "desk/answered desk/free desk/logged desk/succeeded desk@a%2F%/free desk@a%2Fb/free"},
		{"desk", "", "answered", "desk/answered"},
		{"", "", "free", "clerk/free desk/free"},
		{"clerk", "", "free", "clerk/free"},
		{"clerk", "", "other", ""},
		{"", "a/b", "", "desk@a%2Fb/free"},
		{"desk", "a/b", "free", "desk@a%2Fb/free"},
		{"desk", "a/b", "other", ""},
		{"clerk", "a/b", "", ""},
		{"", "a", "", ""},
	} {
		tx, err := h.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		_, err = tx.Exec(t.Context(), "select turnkeeper.forget_lanes($1, nullif($2, ''), $3)", c.agent, c.user,
			c.conversation)
		if err == nil {
			err = tx.QueryRow(t.Context(), "select array(select lane from turnkeeper.leases)").Scan(&kept)
		}
		if err != nil {
			t.Errorf("agent %q, user %q, conversation %q: %v", c.agent, c.user, c.conversation, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		forgotten := slices.DeleteFunc(slices.Sorted(slices.Values(all)), func(lane string) bool {
			return slices.Contains(kept, lane)
		})
		if got := strings.Join(forgotten, " "); got != c.forgotten {
			t.Errorf("agent %q, user %q, conversation %q: forgot %s, want %s", c.agent, c.user, c.conversation, got,
				c.forgotten)
		}
	}
}
