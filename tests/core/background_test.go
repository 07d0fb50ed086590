package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// asyncSoon is the setting that moves calls to the background after 200 ms.
const asyncSoon = "async_timeout: 200ms"

// outputOf returns the first output handle in the request, or an empty string.
func outputOf(r inferencetest.Recorded) string {
	for _, m := range r.Chat().Messages {
		if rest, ok := strings.CutPrefix(m.Text(), "Tool Output ID: "); ok && m.Role == "tool" {
			id, _, _ := strings.Cut(rest, "\n")
			return id
		}
	}
	return ""
}

func toolCall(name, arguments string) inferencetest.Reply {
	return inferencetest.Calls(inferencetest.Call{ID: "call_" + name, Name: name, Arguments: arguments})
}

// A slow tool moves to the background. The model gets a notice, waits, and reads the result.
func TestASlowToolGoesToTheBackground(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", backgroundTools, "async_timeout: 5s") // long enough for the call that is not held
	e.Ledger.Hold("a")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch env.RoundOf(r) {
		case 1:
			return inferencetest.Calls(env.MarkerCall("mark_later", "a"), env.MarkerCall("mark_none", "b"))
		case 2:
			e.Ledger.Release()
			return toolCall("wait_for_tool_output", "{}")
		case 3:
			return toolCall("get_tool_output", fmt.Sprintf(`{"id":%q,"mode":"raw"}`, outputOf(r)))
		default:
			return inferencetest.Text("It was slow.")
		}
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Make a mark."))
	e.WantEnd(turn, "succeeded", "none", 4)
	requests := e.WantRequests(4)
	id := outputOf(requests[1])
	messages := requests[1].Chat().Messages
	if notice := messages[len(messages)-1].Text(); !strings.Contains(notice, "### Running (1)\n- mark_later (id: "+id+
		", running ") {
		t.Errorf("the notice is %q", notice)
	}
	messages = requests[3].Chat().Messages
	var results []string
	for _, m := range messages {
		if m.Role == "tool" {
			results = append(results, m.Text())
		}
	}
	want := []string{
		"Tool Output ID: " + id +
			"\nTool: mark_later\n\nWhen the System Notice shows this tool is ready, use get_tool_output(\"" + id +
			"\", mode) to retrieve its output.",
		"marked b", "Completed tools:\n- mark_later (id: " + id + ", size: 8B)", "marked a",
	}
	if fmt.Sprint(results) != fmt.Sprint(want) {
		t.Errorf("the model got %q", results)
	}
	e.Ledger.WantRuns("a", 1)
	if got := turn.Calls()[0]; got.State != "succeeded" || got.Starts != 1 {
		t.Errorf("the call is %+v", got)
	}
	if out := e.Turnctl("output", id); out.Code != 0 || !strings.Contains(out.Stdout, "marked a") ||
		!strings.Contains(out.Stdout, "When the System Notice") {
		t.Errorf("turnctl output: %+v", out)
	}
}

// A worker is killed during a model call, while a tool call is in the background.
func TestAKillWithACallInTheBackground(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool       string
		runs       int
		state, end string
		stop       string
	}{
		{"mark_none", 2, "succeeded", "succeeded", "none"},
		{"mark_later_keyed", 2, "succeeded", "succeeded", "none"},
		{"mark_later", 1, "unknown", "degraded", "worker_lost"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", backgroundTools, asyncSoon)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall(c.tool, "a"), env.MarkerCall("mark_none", "b")),
				env.HangOnce(toolCall("wait_for_tool_output", "{}")), inferencetest.Text("So be it.")))
			first := e.StartWorker()
			message := e.Enqueue("clerk", "Make a mark.")
			e.AwaitRequests(2)
			if state := env.Query[string](e, "select state from calls where ordinal = 1"); state != "running" {
				t.Errorf("the call is %s", state)
			}
			e.StartWorker()
			e.Kill(first)
			e.Ledger.Release()

			turn := e.TurnOf(message)
			e.WantEnd(turn, c.end, c.stop, 3)
			reply := "So be it."
			if c.state == "unknown" {
				reply += "\n\n- " + c.tool + ": unknown: it may or may not have happened"
			}
			e.WantReply(turn, reply)
			e.Ledger.WantRuns("a", c.runs)
			if got := turn.Calls()[0]; got.State != c.state {
				t.Errorf("the call is %s", got.State)
			}
		})
	}
}

// The settings of async take precedence in this order: flag, front matter, config file and environment,
// default.
func TestAsyncSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent []string
		flags []string
		goes  bool
	}{
		"the agent says so":               {[]string{asyncSoon}, nil, true},
		"the agent switches it off":       {[]string{asyncSoon, "async: false"}, nil, false},
		"a flag switches it off":          {[]string{asyncSoon, "async: true"}, []string{"--no-async"}, false},
		"a flag switches it on":           {[]string{asyncSoon, "async: false"}, []string{"--async"}, true},
		"a flag sets the time for agents": {nil, []string{"--async-timeout", "200ms"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", append([]string{env.MarkerTools}, c.agent...)...)
			e.Ledger.Hold("a")
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall("mark_none", "a"), env.MarkerCall("mark_none",
				"b")), inferencetest.Text("Done.")))
			e.StartWorker(c.flags...)
			message := e.Enqueue("clerk", "Make a mark.")
			if c.goes {
				e.AwaitRequests(2) // while the tool still runs
			} else {
				e.Ledger.Await("b", 1)
			}
			e.Ledger.Release()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			if got := outputOf(e.WantRequests(2)[1]) != ""; got != c.goes {
				t.Errorf("it went to the background: %v", got)
			}
		})
	}
}

// A tool's background setting takes precedence over its effect.
func TestBackgroundSetting(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	writeProgramTools(e, map[string]string{"order": "effect: once; background: true",
		"look": "effect: none; background: false"})
	text := e.ReadFile("turnkeeper.yaml")
	for _, name := range []string{"order", "look"} {
		text = strings.ReplaceAll(text, fmt.Sprintf("echo x >>%s/%s; wc -l <%[1]s/%[2]s", e.Dir, name),
			"sleep 1; echo "+name+" done")
	}
	e.WriteFile("turnkeeper.yaml", text)
	e.WriteAgent("clerk", "tools: [order, look]", "async_timeout: 100ms")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch env.RoundOf(r) {
		case 1:
			return inferencetest.Calls(callOf("look", 1), callOf("order", 1))
		case 2:
			return toolCall("wait_for_tool_output", "{}")
		default:
			return inferencetest.Text("Done.")
		}
	})
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Go."))
	var shown []string
	for _, m := range e.Model.Requests()[1].Chat().Messages {
		if m.Role == "tool" {
			shown = append(shown, m.Text())
		}
	}
	if len(shown) != 2 || shown[0] != "look done\n" && shown[0] != "look done" || !strings.HasPrefix(shown[1],
		"Tool Output ID: ") {
		t.Errorf("the model got %q: look has background: false, order has background: true", shown)
	}
	if turn.State != "succeeded" {
		t.Errorf("the turn ended %s, %s", turn.State, turn.Error)
	}
}
