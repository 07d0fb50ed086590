package journal_test

import (
	"fmt"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/storagetest"
)

// plantTurns writes closed turns with their messages and replies: for each of the given series one after the other, in
// rounds. Series i has 43+i turns, which ended in the state that is the conversation's name, else succeeded.
func plantTurns(h *env, series []turnkeeper.ConversationKey) {
	for i, key := range series {
		h.Exec(
			`insert into turnkeeper.messages (id, agent, user_name, conversation, lane, body, state, closed_at, turn_id) overriding system value
			select g * 100 + $1, $2, $3, $4, turnkeeper.lane_of($2, $3, $4, true), 'body ' || (g * 100 + $1), 'succeeded', now(), g * 100 + $1
			from generate_series(1, $5 + 3 + $1::int) g`, i, key.Agent, key.User, key.Name, turnlog.PastTurns)
	}
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash, state, dispatches, token, granted_at, lease_until, ended_at, stop_reason, inner_dialogue)
		select m.id, m.id, 1, m.agent, m.user_name, m.conversation, m.lane, 'message', a.definition_hash, case when m.conversation in ('degraded', 'failed', 'cancelled') then m.conversation else 'succeeded' end, 1, 1, now(), now(), now(), 'none', 'silent'
		from turnkeeper.messages m join turnkeeper.agents a on a.name = m.agent`)
	h.Exec(
		`insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, stop_reason, body, calls, sent_by)
		select id, id, agent, user_name, conversation, 'succeeded', 'none', 'reply ' || id, '[]', '' from turnkeeper.messages where id / 100 % 2 = 0`)
}

// TestWhoseTurnsAreTheHistory rebuilds turns in conversations of two agents, two users and names below and above each
// other, whose turns alternate. Each has the newest turns of its own before it, with their messages and replies, and
// the number of older ones.
func TestWhoseTurnsAreTheHistory(t *testing.T) {
	h := newEnv(t)
	var keys []turnkeeper.ConversationKey
	for _, agent := range []string{"clerk", "desk"} {
		for _, user := range []string{"", "anna"} {
			for _, name := range []string{"a", "m", "z"} {
				keys = append(keys, turnkeeper.ConversationKey{Agent: agent, User: user, Name: name})
			}
		}
	}
	plantTurns(h, keys)
	for i, key := range keys {
		for _, before := range []int{1, 2, turnlog.PastTurns + 3, turnlog.PastTurns + 3 + i} {
			record, err := h.RecordForRequest(t.Context(), turnkeeper.TurnID(before*100+i))
			if err != nil {
				t.Fatal(err)
			}
			if n := min(before-1, turnlog.PastTurns); len(record.History) != n || record.Older != before-1-n ||
				record.LastRun != nil {
				t.Errorf("turn %d of %+v has %d turns in its history, %d before them, and the last run %+v", before,
					key, len(record.History), record.Older, record.LastRun)
				continue
			}
			for back, past := range record.History {
				n := before - len(record.History) + back
				id := n*100 + i
				reply := "silent"
				if n%2 == 0 {
					reply = fmt.Sprintf("reply %d", id)
				}
				if past.TurnID != turnkeeper.TurnID(id) || past.Body != fmt.Sprintf("body %d", id) ||
					past.Reply != reply || past.Silent != (n%2 != 0) {
					t.Errorf("before turn %d of %+v is %+v, want turn %d", before, key, past, id)
				}
			}
		}
	}
}

// TestAPurgedTurnIsGone loads a history again after turns of it were purged.
func TestAPurgedTurnIsGone(t *testing.T) {
	h := newEnv(t)
	plantTurns(h, []turnkeeper.ConversationKey{{Agent: "clerk", Name: "a"}})
	for _, purged := range []int{0, 500, 1200} {
		h.Exec("delete from turnkeeper.replies where turn_id = $1", purged)
		h.Exec("delete from turnkeeper.turns where id = $1", purged)
		h.Exec("delete from turnkeeper.messages where id = $1", purged)
		record, err := h.RecordForRequest(t.Context(), 2000)
		if err != nil {
			t.Fatal(err)
		}
		for i, past := range record.History {
			if past.TurnID == turnkeeper.TurnID(purged) || past.Body != fmt.Sprintf("body %d", past.TurnID) {
				t.Errorf("after turn %d was purged, entry %d is %+v", purged, i, past)
			}
		}
		if want := map[int]int{0: 19, 500: 18, 1200: 17}[purged]; len(record.History) != want {
			t.Errorf("after turn %d was purged, the history has %d turns, want %d", purged, len(record.History), want)
		}
	}
}

// TestWhoseRunIsTheLast rebuilds the runs of schedules of one name: of two agents, in two conversations, and of another
// schedule.
func TestWhoseRunIsTheLast(t *testing.T) {
	h := newEnv(t)
	keys := []turnkeeper.ConversationKey{{Agent: "clerk", Name: "a"}, {Agent: "desk", Name: "a"},
		{Agent: "desk", Name: "m"}, {Agent: "desk", Name: "a"}}
	plantTurns(h, keys)
	h.Exec(
		"update turnkeeper.messages set trigger = 'schedule', schedule = case id % 100 when 3 then 'other' else 's' end, slot = timestamptz '2026-01-01Z' + id * interval '1 minute'")
	for i := range keys {
		for before := 1; before <= 3; before++ {
			record, err := h.RecordForRequest(t.Context(), turnkeeper.TurnID(before*100+i))
			if err != nil {
				t.Fatal(err)
			}
			last := (before-1)*100 + i
			reply := "silent"
			if before == 3 {
				reply = fmt.Sprintf("reply %d", last)
			}
			switch got := record.LastRun; {
			case before == 1:
				if got != nil {
					t.Errorf("the first run of series %d has the last run %+v", i, got)
				}
			case got == nil || got.TurnID != turnkeeper.TurnID(last) || got.Reply != reply ||
				got.Body != fmt.Sprintf("body %d", last):
				t.Errorf("run %d of series %d has the last run %+v, want turn %d", before, i, got, last)
			}
		}
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.replies"); n < 80 {
		t.Errorf("only %d runs have a reply", n)
	}
}

// TestAnEndOfEachKindIsHistory rebuilds the second turn of conversations whose first turn ended in each state.
func TestAnEndOfEachKindIsHistory(t *testing.T) {
	h := newEnv(t)
	states := []string{"succeeded", "degraded", "failed", "cancelled"}
	var keys []turnkeeper.ConversationKey
	for _, state := range states {
		keys = append(keys, turnkeeper.ConversationKey{Agent: "desk", Name: state})
	}
	plantTurns(h, keys)
	h.Exec("update turnkeeper.messages set state = 'failed' where id < 200 and conversation = 'failed'")
	for i, state := range states {
		record, err := h.RecordForRequest(t.Context(), turnkeeper.TurnID(200+i))
		if err != nil || len(record.History) != 1 || string(record.History[0].State) != state {
			t.Errorf("after a turn that is %s: %+v, %v", state, record, err)
		}
	}
}

// TestALastRunBeforeTheHistory rebuilds a run of a schedule whose previous run is older than the turns of the history.
func TestALastRunBeforeTheHistory(t *testing.T) {
	h := newEnv(t)
	plantTurns(h, []turnkeeper.ConversationKey{{Agent: "desk", Name: "a"}, {Agent: "desk", Name: "b"},
		{Agent: "desk", Name: "c"}})
	h.Exec(
		"update turnkeeper.messages set trigger = 'schedule', schedule = 's', slot = timestamptz '2026-01-01Z' + id * interval '1 minute' where id in (402, 8502)")
	record, err := h.RecordForRequest(t.Context(), 8502)
	if err != nil || record.LastRun == nil || record.LastRun.TurnID != 402 || record.LastRun.Reply != "reply 402" ||
		record.History[0].TurnID != 502 {
		t.Errorf("the last run is %+v, %v", record.LastRun, err)
	}
	// A worker gets the labels of the last run, too.
	h.Exec("insert into turnkeeper.labels (kind, id, label, source) values ('turn', 402, 'private', 'the last run')")
	schedule := "s"
	row := dbsqlc.TurnForWorkerRow{
		ID: 8502, MessageID: int64(record.Message.ID), Agent: "desk", Conversation: record.Turn.Conversation,
		Schedule: &schedule, HasPast: true, AnyLabels: true,
	}
	if record, err = h.Complete(t.Context(), &row); err != nil || record.LastRun == nil ||
		len(record.Labels.Before) != 1 {
		t.Errorf("the labels before the turn are %+v, %v", record.Labels, err)
	}
}
