package journal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
)

// TestWhichTurnsAreParked checks which turns park_turn moves out of their lane, and which messages go with them.
// Another turn asks, too, and is a sub-agent.
func TestWhichTurnsAreParked(t *testing.T) {
	h := newEnv(t)
	turnOf := func(agent, conversation string) turnkeeper.TurnID {
		h.Submit(agent, conversation, "running")
		return h.Dispatch("worker-1")[0].Grant.TurnID
	}
	clerk, desk, other := turnOf("clerk", "a"), turnOf("desk", "a"), turnOf("desk", "b")
	for _, m := range []struct{ agent, conversation string }{{"clerk", "a"}, {"clerk", "b"}, {"desk", "a"}} {
		h.Submit(m.agent, m.conversation, m.agent+" "+m.conversation)
	}
	const asks = `insert into turnkeeper.asks
			(turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at, state, closed_at, answered_by)
		select $1, 1, 1, 'question', $2, 't', '{}', 'h', '', '', '{}', $3 <> 'goes on', clock_timestamp() + interval '1 hour', s.state,
			case when s.state <> 'open' then clock_timestamp() end, 'ann'
		from (select case when $3 = 'denied' then 'denied' else 'open' end as state) s`
	h.Exec("insert into turnkeeper.agent_trees (root, max_depth, max_agents) values ($1, 2, 2)", other)
	const spawned = `insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline)
		select $1, 1, id, message_id, agent, $1, '{clerk,desk}', clock_timestamp() from turnkeeper.turns where id = $2`
	for name, c := range map[string]struct {
		turn     turnkeeper.TurnID
		asks     []string // holds, goes on, or denied
		subAgent bool
		want     string // lane, home, whether it holds its conversation, and messages that were moved
	}{
		"it holds, in the agent's lane":   {clerk, []string{"holds"}, false, "clerk#%d clerk true clerk a"},
		"it goes on, in the agent's lane": {clerk, []string{"goes on"}, false, "clerk#%d clerk false"},
		"one of two holds": {clerk, []string{"goes on", "holds"}, false,
			"clerk#%d clerk true clerk a"},
		"what held has an answer": {clerk, []string{"denied", "goes on"}, false,
			"clerk#%d clerk false"},
		"it has only an answer":                       {clerk, []string{"denied"}, false, "clerk false"},
		"it asks nobody":                              {clerk, nil, false, "clerk false"},
		"it is a sub-agent":                           {clerk, []string{"goes on"}, true, "clerk false"},
		"it holds, in the lane of its conversation":   {desk, []string{"holds"}, false, "desk/a false"},
		"it goes on, in the lane of its conversation": {desk, []string{"goes on"}, false, "desk#%d desk/a false"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			exec := func(sql string, arguments ...any) {
				t.Helper()
				if _, err := tx.Exec(t.Context(), sql, arguments...); err != nil {
					t.Fatal(err)
				}
			}
			exec(asks, other, 1, "holds")
			exec(spawned, other, other)
			if c.subAgent {
				exec(spawned, other, c.turn)
			}
			for n, state := range c.asks {
				exec(asks, c.turn, n+1, state)
			}
			exec("select turnkeeper.park_turn($1)", c.turn)
			var got string
			err = tx.QueryRow(t.Context(), `select concat_ws(' ', t.lane, t.home_lane, t.held::text,
					(select string_agg(m.body, ' ') from turnkeeper.messages m where m.lane like '%#%' and m.held))
				from turnkeeper.turns t where t.id = $1`, c.turn).Scan(&got)
			if want := strings.ReplaceAll(c.want, "%d", fmt.Sprint(c.turn)); err != nil || got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
}
