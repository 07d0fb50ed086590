package tests_test

import (
	"fmt"
	"strings"
	"testing"
)

// quickly sends calls to the background soon.
const quickly = "async_timeout: 200ms"

// outputOf is the handle that the newest request with one tells.
func outputOf(r recorded) string {
	for _, m := range r.Chat().Messages {
		if rest, ok := strings.CutPrefix(m.Text(), "Tool Output ID: "); ok && m.Role == "tool" {
			id, _, _ := strings.Cut(rest, "\n")
			return id
		}
	}
	return ""
}

func reader(name, arguments string) reply {
	return calls(modelCall{ID: "call_" + name, Name: name, Arguments: arguments})
}

// A tool that takes long goes to the background; the model is told, waits, and
// reads what came.
func TestASlowToolGoesToTheBackground(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, quickly)
	h.ledger.hold("a")
	h.model.Then(func(r recorded) reply {
		switch roundOf(r) {
		case 1:
			return calls(call("mark_once", "a"), call("mark_none", "b"))
		case 2:
			h.ledger.release()
			return reader("wait_for_tool_output", "{}")
		case 3:
			return reader("get_tool_output", fmt.Sprintf(`{"id":%q,"mode":"raw"}`, outputOf(r)))
		default:
			return text("It was slow.")
		}
	})
	h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Make a mark."))
	h.ended(turn, "succeeded", "none", 4)
	requests := h.requests(4)
	id := outputOf(requests[1])
	told := requests[1].Chat().Messages
	if notice := told[len(told)-1].Text(); !strings.Contains(notice, "### Running (1)\n- mark_once (id: "+id+", running ") {
		t.Errorf("the notice is %q", notice)
	}
	told = requests[3].Chat().Messages
	var results []string
	for _, m := range told {
		if m.Role == "tool" {
			results = append(results, m.Text())
		}
	}
	want := []string{
		"Tool Output ID: " + id + "\nTool: mark_once\n\nWhen the System Notice shows this tool is ready, use get_tool_output(\"" + id + "\", mode) to retrieve its output.",
		"marked b", "Completed tools:\n- mark_once (id: " + id + ", size: 8B)", "marked a",
	}
	if fmt.Sprint(results) != fmt.Sprint(want) {
		t.Errorf("the model was shown %q", results)
	}
	h.ledger.ran("a", 1)
	if got := turn.calls()[0]; got.State != "succeeded" || got.Starts != 1 {
		t.Errorf("the call is %+v", got)
	}
	if out := h.run("", "turnctl", "output", id); out.code != 0 || !strings.Contains(out.stdout, "marked a") || !strings.Contains(out.stdout, "When the System Notice") {
		t.Errorf("turnctl output: %+v", out)
	}
}

// A worker is killed while a call is in the background and the model is called.
func TestAKillWithACallInTheBackground(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool       string
		runs       int
		state, end string
		stop       string
	}{
		{"mark_none", 2, "succeeded", "succeeded", "none"},
		{"mark_keyed", 2, "succeeded", "succeeded", "none"},
		{"mark_once", 1, "unknown", "degraded", "worker_lost"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", marks, quickly)
			h.ledger.hold("a")
			h.model.Then(rounds(calls(call(c.tool, "a"), call("mark_none", "b")), hangOnce(reader("wait_for_tool_output", "{}")), text("So be it.")))
			first := h.startWorker("--takeover-after", silence)
			message := h.enqueue("clerk", "Make a mark.")
			h.awaitRequests(2)
			if state := query[string](h, "select state from calls where ordinal = 1"); state != "running" {
				t.Errorf("the call is %s", state)
			}
			h.startWorker("--takeover-after", silence)
			first.kill()
			h.ledger.release()

			turn := h.turnOf(message)
			h.ended(turn, c.end, c.stop, 3)
			h.replied(turn, "So be it.")
			h.ledger.ran("a", c.runs)
			if got := turn.calls()[0]; got.State != c.state {
				t.Errorf("the call is %s", got.State)
			}
		})
	}
}

// Flag, front matter, config file and environment, default: in this order.
func TestWhereAsyncIsSwitched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent []string
		flags []string
		goes  bool
	}{
		"the agent says so":               {[]string{quickly}, nil, true},
		"the agent switches it off":       {[]string{quickly, "async: false"}, nil, false},
		"a flag switches it off":          {[]string{quickly, "async: true"}, []string{"--no-async"}, false},
		"a flag switches it on":           {[]string{quickly, "async: false"}, []string{"--async"}, true},
		"a flag sets the time for agents": {nil, []string{"--async-timeout", "200ms"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.agent("clerk", append([]string{marks}, c.agent...)...)
			h.ledger.hold("a")
			h.model.Then(rounds(calls(call("mark_none", "a"), call("mark_none", "b")), text("Done.")))
			h.startWorker(c.flags...)
			message := h.enqueue("clerk", "Make a mark.")
			if c.goes {
				h.awaitRequests(2) // while the tool still runs
			} else {
				h.ledger.await("b", 1)
			}
			h.ledger.release()
			turn := h.turnOf(message)
			h.ended(turn, "succeeded", "none", 2)
			if got := outputOf(h.requests(2)[1]) != ""; got != c.goes {
				t.Errorf("it went to the background: %v", got)
			}
		})
	}
}
