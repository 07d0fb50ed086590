package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// listed formats the entries of a list in their order.
func listed[V any](t *testing.T, all []V, err error, show func(V) string) string {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	var shown []string
	for _, v := range all {
		shown = append(shown, show(v))
	}
	return strings.Join(shown, ", ")
}

// TestEventsOfATurnAfterANumber reads the events of a turn beside one that has more writes, with fewer events.
func TestEventsOfATurnAfterANumber(t *testing.T) {
	h := newEnv(t)
	d, other := h.TurnOf("clerk", "w"), h.TurnOf("desk", "w")
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventToolStarted, turnkeeper.EventToolStarted)})
	for range 5 {
		other.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnStart)})
	}
	for after, want := range map[int64]string{0: "1 turn_start, 2 round_start, 3 tool_started, 4 tool_started",
		1: "2 round_start, 3 tool_started, 4 tool_started", 2: "3 tool_started, 4 tool_started",
		3: "4 tool_started", 4: ""} {
		events, err := h.Events(t.Context(), d.Grant.TurnID, after, 10)
		if got := listed(t, events, err, func(e turnkeeper.Event) string {
			return fmt.Sprintf("%d %s", e.Seq, e.Type)
		}); got != want {
			t.Errorf("after %d: %s, want %s", after, got, want)
		}
	}
}

// TestListsOfMessagesAndTurns lists four messages: one was answered, one failed, one runs, and one
// waits without a turn.
func TestListsOfMessagesAndTurns(t *testing.T) {
	h := newEnv(t)
	h.Turn("answered").Finish(t, "done")
	h.Submit("desk", "a", "fails")
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Reply: "no", Error: "no"}
	if err := h.Dispatch("worker-1")[0].Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.Turn("runs")
	h.Submit("desk", "b", "waits")
	for _, c := range []struct {
		page            operate.Page
		messages, turns string
	}{
		{operate.Page{}, "4, 3, 2 failed, 1 succeeded", "3 running, 2 failed, 1 succeeded"},
		{operate.Page{Agent: "clerk"}, "3, 1 succeeded", "3 running, 1 succeeded"},
		{operate.Page{Agent: "desk"}, "4, 2 failed", "2 failed"},
		{operate.Page{Agent: "nobody"}, "", ""},
		{operate.Page{State: "running"}, "3", "3 running"},
		{operate.Page{State: "failed"}, "2 failed", "2 failed"},
		{operate.Page{State: "failed", Agent: "clerk"}, "", ""},
		{operate.Page{Cursor: 3}, "2 failed, 1 succeeded", "2 failed, 1 succeeded"},
		{operate.Page{Cursor: 3, Limit: 1}, "2 failed", "2 failed"},
		{operate.Page{Cursor: 1}, "", ""},
	} {
		messages, err := h.Messages(t.Context(), c.page)
		if got := listed(t, messages, err, func(m waiting.Message) string {
			return strings.TrimSpace(fmt.Sprint(m.ID, " ", m.Outcome))
		}); got != c.messages {
			t.Errorf("%+v: messages %q, want %q", c.page, got, c.messages)
		}
		turns, err := h.Turns(t.Context(), c.page)
		if got := listed(t, turns, err, func(v waiting.Turn) string {
			return fmt.Sprint(v.ID, " ", v.State)
		}); got != c.turns {
			t.Errorf("%+v: turns %q, want %q", c.page, got, c.turns)
		}
	}
}

// TestLatestReplies lists four replies of two agents. The second and the last are from sub-agents.
func TestLatestReplies(t *testing.T) {
	h := newEnv(t)
	for i := range 4 {
		agent := []string{"clerk", "desk"}[i/2]
		h.Submit(agent, "", "hello")
		h.Dispatch("worker-1")[0].Finish(t, "done")
	}
	h.Exec("update turnkeeper.replies set parent_turn_id = 1 where id in (2, 4)")
	for _, c := range []struct {
		page operate.Page
		want string
	}{
		{operate.Page{}, "4, 3, 2, 1"},
		{operate.Page{Agent: "clerk"}, "2, 1"},
		{operate.Page{Agent: "desk"}, "4, 3"},
		{operate.Page{Cursor: 3}, "2, 1"},
		{operate.Page{Cursor: 1}, ""},
		{operate.Page{TopOnly: true}, "3, 1"},
		{operate.Page{TopOnly: true, Agent: "desk"}, "3"},
		{operate.Page{TopOnly: true, Cursor: 3, Limit: 1}, "1"},
	} {
		replies, err := h.LatestReplies(t.Context(), c.page)
		if got := listed(t, replies, err, func(r turnkeeper.Reply) string { return fmt.Sprint(r.ID) }); got != c.want {
			t.Errorf("%+v: %q, want %q", c.page, got, c.want)
		}
	}
}

// TestLanes lists lanes with a turn in each state. One of the two workers is silent, and the job of
// one turn was fetched, but the turn was not started.
func TestLanes(t *testing.T) {
	h := newEnv(t)
	begin := func(conversation string, worker turnkeeper.WorkerID) *storagetest.Dispatch {
		h.Submit("desk", conversation, "work")
		return h.Dispatch(worker)[0]
	}
	begin("ended", "worker-1").Finish(t, "done")
	h.Waiting("waits")
	lost := begin("lost", "worker-1")
	begin("runs", "worker-1")
	h.FetchJob(begin("fetched", "").Grant.JobID, "worker-2")
	h.Lose(lost)
	for _, conversation := range []string{"runs", "runs", "lost"} {
		h.Submit("desk", conversation, "next")
	}
	h.Submit("desk", "fresh", "x")
	h.Exec("insert into turnkeeper.leases (lane, agent, failures) values ('desk/failed', 'desk', 2)")
	for _, worker := range []turnkeeper.WorkerID{"worker-1", "worker-2", "worker-3"} {
		h.HeartBeat(worker, 1, time.Hour)
	}
	h.Silence("worker-1", 10*time.Minute)
	const (
		fetched = "desk/fetched: running turn 5 of worker-2, 0 wait"
		runs    = "desk/runs: running turn 4 of worker-1, 2 wait, silent"
		failed  = "desk/failed: turn 0, 0 wait"
		fresh   = "desk/fresh: turn 0, 1 wait"
		queued  = "desk/lost: queued turn 3, 1 wait"
		waits   = "desk/waits: waiting turn 2, 0 wait"
	)
	for _, c := range []struct {
		page operate.Page
		want []string
	}{
		{operate.Page{}, []string{fetched, runs, failed, fresh, queued, waits}},
		{operate.Page{Agent: "desk", Limit: 1, Cursor: 1}, []string{runs}},
		{operate.Page{Agent: "clerk"}, nil},
	} {
		lanes, err := h.Lanes(t.Context(), c.page)
		got := listed(t, lanes, err, func(v operate.LaneView) string {
			text := fmt.Sprintf("%s: %s turn %d", v.Lease.Lane, v.TurnState, v.OpenTurn)
			if v.Lease.WorkerID != "" {
				text += " of " + string(v.Lease.WorkerID)
			}
			text += fmt.Sprintf(", %d wait", v.Waiting)
			if v.Silence != nil {
				text += ", silent"
			}
			return strings.ReplaceAll(text, ":  ", ": ")
		})
		if want := strings.Join(c.want, ", "); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.page, got, want)
		}
	}
}
