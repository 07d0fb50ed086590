package operate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// owned returns a database with messages of two agents, three users (one has no name) and two conversations of the same
// names: with and without a turn, which has an open and a closed ask, and with two texts.
func owned(t *testing.T) *env {
	t.Helper()
	h := newEnv(t)
	h.Exec(`insert into turnkeeper.messages (agent, user_name, conversation, lane, body, state, closed_at, turn_id)
		select a, u, c, turnkeeper.lane_of(a, u, c, true), b, s, case s when 'succeeded' then now() end, case s when 'succeeded' then 1000 + row_number() over () end
		from unnest(array['desk', 'clerk']) a, unnest(array['', 'anna', 'bert']) u, unnest(array['main', 'other']) c,
			unnest(array['It is late.', 'It is early.']) b, unnest(array['waiting', 'succeeded']) s`)
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select m.turn_id, m.id, 1, m.agent, m.user_name, m.conversation, m.lane, 'message', repeat('a', 64), case m.id % 3 when 0 then 'failed' else 'succeeded' end, 1, now(), 'none'
		from turnkeeper.messages m where m.turn_id is not null`)
	h.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason, audience, hold, expires_at, closed_at, answered_by)
		select t.id, 1, o, 'approve', 1, case o when 1 then 'open' else 'denied' end, 'pay', '{}', '', '', '', '{}', false, now() + interval '1 day',
			case o when 2 then now() end, case o when 2 then 'ann' end
		from turnkeeper.turns t, generate_series(1, 2) o`)
	return h
}

// TestSearchesShowWhatTheySelect compares each search with the rows that it selects.
func TestSearchesShowWhatTheySelect(t *testing.T) {
	h := owned(t)
	h.SetMaxSearched(11)
	type row struct {
		id                  int64
		key                 turnkeeper.ConversationKey
		state, words, agent string
	}
	bodies := map[turnkeeper.MessageID]string{}
	messages := func(s operate.Search) (rows []row) {
		for _, m := range pages(t, s, func(s operate.Search) ([]waiting.Message, int64, error) {
			return h.FindMessages(t.Context(), s)
		}) {
			bodies[m.ID] = m.Body
			rows = append(rows, row{int64(m.ID), m.ConversationKey(), string(m.State), m.Body, m.Agent})
		}
		return rows
	}
	turns := func(s operate.Search) (rows []row) {
		for _, turn := range pages(t, s, func(s operate.Search) ([]waiting.Turn, int64, error) {
			return h.FindTurns(t.Context(), s)
		}) {
			rows = append(rows, row{int64(turn.ID), turn.ConversationKey(), string(turn.State),
				bodies[turn.MessageID], turn.Agent})
		}
		return rows
	}
	for what, c := range map[string]struct {
		find   func(operate.Search) []row
		states []string
		all    int
	}{
		"messages": {messages, []string{"", "waiting"}, 48}, "turns": {turns, []string{"", "failed"}, 24},
	} {
		_ = messages(operate.Search{}) // for the bodies
		all := c.find(operate.Search{})
		if len(all) != c.all {
			t.Fatalf("%d %s", len(all), what)
		}
		for n := range 32 {
			s := operate.Search{Page: operate.Page{Agent: []string{"", "desk"}[n&1], User: []string{"", "anna"}[n>>1&1],
				State: c.states[n>>2&1]}}
			s.Conversation, s.Words = []string{"", "main"}[n>>3&1], []string{"", "late"}[n>>4&1]
			want := slices.DeleteFunc(slices.Clone(all), func(r row) bool {
				return s.Agent != "" && r.agent != s.Agent || s.User != "" && r.key.User != s.User || s.State != "" &&
					r.state != s.State ||
					s.Conversation != "" && (r.key.User != s.User || r.key.Name != s.Conversation) ||
					!strings.Contains(r.words, s.Words)
			})
			if got := c.find(s); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s by %+v:\n%+v, want\n%+v", what, s, got, want)
			}
		}
	}
}

// TestListsOfAsksShowWhatTheySelect compares each list of asks with the asks that it selects.
func TestListsOfAsksShowWhatTheySelect(t *testing.T) {
	h := owned(t)
	list := func(f operate.AskFilter) (found []string) {
		for f.Limit = 1; ; {
			page, err := h.ListAsks(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > 0 && f.Before != 0 && page[0].ID >= f.Before {
				t.Fatalf("after %d comes %d", f.Before, page[0].ID)
			}
			for _, a := range page {
				found = append(found, fmt.Sprintf("%d of turn %d: %s, %s@%s/%s", a.ID, a.Turn, a.State, a.Agent, a.User,
					a.Conversation))
				f.Before = a.ID
			}
			if len(page) == 0 {
				return found
			}
		}
	}
	all := list(operate.AskFilter{})
	if len(all) != 48 {
		t.Fatalf("%d asks", len(all))
	}
	var turns [2]turnkeeper.TurnID
	for i, agent := range []string{"desk", "clerk"} {
		turns[i] = turnkeeper.TurnID(storagetest.One[int64](h,
			"select min(id) from turnkeeper.turns where agent = $1 and user_name = 'anna'", agent))
	}
	for _, turn := range []turnkeeper.TurnID{0, turns[0], turns[1]} {
		for _, state := range []asks.State{"", asks.Open, asks.Denied} {
			for _, agent := range []string{"", "desk"} {
				for _, user := range []string{"", "anna"} {
					f := operate.AskFilter{Turn: turn, State: state, Agent: agent, User: user}
					want := slices.DeleteFunc(slices.Clone(all), func(a string) bool {
						return turn != 0 && !strings.Contains(a, fmt.Sprintf("turn %d:", turn)) || !strings.Contains(a,
							string(state)) ||
							agent != "" && !strings.Contains(a, " desk@") || user != "" &&
							!strings.Contains(a, "@anna/")
					})
					if got := list(f); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%+v:\n%s\nwant\n%s", f, strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
				}
			}
		}
	}
}

// TestASearchReadsOnlyItsSource searches with a limit of one row that is read, which is not the newest of all.
func TestASearchReadsOnlyItsSource(t *testing.T) {
	h := owned(t)
	h.SetMaxSearched(1)
	h.Exec("update turnkeeper.messages set accepted_at = timestamptz '2026-01-01 12:00Z' + id * interval '1 day'")
	h.Exec("update turnkeeper.turns set created_at = timestamptz '2026-01-01 12:00Z' + message_id * interval '1 day'")
	day := func(n int) time.Time { return time.Date(2026, 1, 1+n, 0, 0, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		search operate.Search
		found  int
	}{
		"of all":            {operate.Search{}, 1},
		"of an agent":       {operate.Search{Page: operate.Page{Agent: "desk"}}, 1},
		"of a user":         {operate.Search{Page: operate.Page{User: "anna"}}, 1},
		"of a conversation": {operate.Search{Page: operate.Page{Agent: "desk"}, Conversation: "main"}, 1},
		"of a user's in an agent": {operate.Search{Page: operate.Page{Agent: "desk", User: "anna"},
			Conversation: "main"}, 1},
		"with a word": {operate.Search{Words: "late"}, 1},
		"until a day": {operate.Search{Until: day(10)}, 1},
		"since a day": {operate.Search{Since: day(60)}, 0},
	} {
		s := c.search
		s.Limit = 1
		messages, next, err := h.FindMessages(t.Context(), s)
		if err != nil || len(messages) != c.found || (next == 0) != (c.found == 0) {
			t.Errorf("%s: messages %+v, next %d, %v", name, messages, next, err)
		}
		turns, next, err := h.FindTurns(t.Context(), s)
		if err != nil || len(turns) != c.found || (next == 0) != (c.found == 0) {
			t.Errorf("%s: turns %+v, next %d, %v", name, turns, next, err)
		}
		if t.Failed() || c.found == 0 {
			continue
		}
		s.Since = messages[0].AcceptedAt.Add(-time.Minute) // nothing else was accepted that day
		if again, _, err := h.FindMessages(t.Context(), s); err != nil || len(again) != 1 ||
			again[0].ID != messages[0].ID {
			t.Errorf("%s, since a minute before the newest: messages %+v, %v", name, again, err)
		}
		s.Since = turns[0].CreatedAt.Add(-time.Minute)
		if again, _, err := h.FindTurns(t.Context(), s); err != nil || len(again) != 1 || again[0].ID != turns[0].ID {
			t.Errorf("%s, since a minute before the newest: turns %+v, %v", name, again, err)
		}
	}
}

// TestACommonWordFindsTheNewest searches for a word of more messages than are sorted. The newest one has another word.
func TestACommonWordFindsTheNewest(t *testing.T) {
	h := newEnv(t)
	const count = 5003
	h.Exec(
		`insert into turnkeeper.messages (id, agent, conversation, lane, body, state, closed_at) overriding system value
		select i, 'desk', 'main', turnkeeper.lane_of('desk', '', 'main', true), case i when $1 then 'rare' else 'common' end, 'succeeded', now() from generate_series(1, $1::int) i`, count)
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select id, id, 1, agent, conversation, lane, 'message', repeat('a', 64), 'succeeded', 1, now(), 'none' from turnkeeper.messages where id > $1 - 10`, count)
	messages, _, err := h.FindMessages(t.Context(), operate.Search{Words: "common"})
	if err != nil || len(messages) == 0 || messages[0].ID != count-1 {
		t.Errorf("found %d messages, %v, want the newest but one first", len(messages), err)
	}
	turns, _, err := h.FindTurns(t.Context(), operate.Search{Words: "common"})
	if err != nil || len(turns) != 9 || turns[0].ID != count-1 {
		t.Errorf("found %d turns, %v, want the newest but one first", len(turns), err)
	}
}
