package tests_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// far is the front matter's line that gives an agent the detached marker tools.
const far = "tools: [mark_far_none, mark_far_keyed, mark_far_once, mark_once]"

var outputID = regexp.MustCompile(`get_tool_output\("([a-z0-9]{12})", mode\)`)

// retrieve asks for the output that the first handle in the request names.
func retrieve(r recorded) reply {
	for _, m := range r.Chat().Messages {
		if found := outputID.FindStringSubmatch(m.Text()); found != nil {
			return calls(inferencetest.Call{ID: "call_get", Name: "get_tool_output", Arguments: fmt.Sprintf(`{"id":%q,"mode":"raw"}`, found[1])})
		}
	}
	return text("There is no handle.")
}

// lastResult is the newest result of a tool in the request.
func lastResult(r recorded) string {
	result := ""
	for _, m := range r.Chat().Messages {
		if m.Role == "tool" {
			result = m.Text()
		}
	}
	return result
}

// farTurn is the model of a turn that has the tool run elsewhere, is told when it
// is ready, reads the result and repeats it.
func farTurn(tool, label string) func(recorded) reply {
	return func(r recorded) reply {
		switch roundOf(r) {
		case 1:
			return callOnce(tool, label)
		case 2:
			return retrieve(r)
		default:
			return text("It says: " + lastResult(r))
		}
	}
}

// waiting returns when so many turns wait.
func (h *house) waiting(n int) {
	h.t.Helper()
	h.await(fmt.Sprint(n, " turns wait"), "select count(*) = $1 from turns where state = 'waiting'", n)
}

// holdsNothing fails the test if waiting turns hold a lease, a slot or a job.
func (h *house) holdsNothing() {
	h.t.Helper()
	for what, sql := range map[string]string{
		"leases are held":      "select count(*) from leases where grant_id is not null",
		"turns' jobs are open": "select count(*) from river_job where kind = 'AgentTurn' and finalized_at is null",
	} {
		if n := query[int](h, sql); n != 0 {
			h.t.Errorf("%d %s while all turns wait", n, what)
		}
	}
}

func TestADetachedCallOutlivesItsTurnsTime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", far)
	h.agent("other")
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		if newest(r) == "Are you free?" {
			return text("Yes.")
		}
		return farTurn("mark_far_once", "a")(r)
	})
	h.startWorker("--max-duration", "2s", "--tool-timeout", "1s", "--lease-ttl", "5s", "--lease-margin", "1s",
		"--takeover-after", "2s", "--worker-slots", "1")
	message := h.enqueue("clerk", "Take your time.")
	h.ledger.await("a", 1)
	h.waiting(1)
	h.holdsNothing()

	// The only slot is free, and the lane keeps its order.
	h.ended(h.turnOf(h.enqueue("other", "Are you free?")), "succeeded", "none", 1)
	behind := h.enqueue("clerk", "Are you free?")
	h.await("more time has passed than a turn or a lease has",
		"select clock_timestamp() - created_at > interval '6 s' from turns where state = 'waiting'")
	if state := query[string](h, "select state from messages where id = $1", behind); state != "waiting" {
		t.Errorf("the message behind is %s", state)
	}
	h.ledger.release()

	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, "It says: marked a")
	h.ledger.ran("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 0 || *turn.DispatchLog[0].Outcome != "waiting" {
		t.Errorf("the turn had %d dispatches, %d losses, the first %s", turn.Dispatches, turn.Losses, *turn.DispatchLog[0].Outcome)
	}
	call := turn.calls()[0]
	id := query[string](h, "select output_id from calls where turn_id = $1 and name = 'mark_far_once'", turn.ID)
	want := "Tool Output ID: " + id + "\nTool: mark_far_once\n\n" +
		"When the System Notice shows this tool is ready, use get_tool_output(\"" + id + "\", mode) to retrieve its output."
	if call.State != "succeeded" || call.Result != want || call.Starts != 1 {
		t.Errorf("the call is %s after %d starts, and the model was shown %q", call.State, call.Starts, call.Result)
	}
	events := query[string](h, "select string_agg(type, ' ' order by seq) from turn_events where turn_id = $1 and type like 'turn%'", turn.ID)
	if events != "turn_start turn_waiting turn_resumed turn_complete" {
		t.Errorf("events %s", events)
	}
	h.ended(h.turnOf(behind), "succeeded", "none", 1)
	second := h.model.Requests()
	if !strings.Contains(second[len(second)-1].Chat().Messages[0].Text(), "clerk") {
		t.Error("the lane's next turn was not the last to ask")
	}
}
