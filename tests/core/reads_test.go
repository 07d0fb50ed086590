package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// writeProgramTools adds programs to the config file, each with its own settings. A program appends a line to
// the file with its name, and prints the number of lines.
func writeProgramTools(e *env.Env, all map[string]string) {
	e.T.Helper()
	text := e.ReadFile("turnkeeper.yaml") + "tools:\n"
	for name, lines := range all {
		text += fmt.Sprintf("  %s:\n", name)
		if !strings.HasPrefix(lines, "-") {
			text += fmt.Sprintf(
				"    description: Counts.\n    command: [/bin/sh, -c, 'echo x >>%s/%s; wc -l <%s/%s']\n", e.Dir,
				name, e.Dir, name)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(lines, "-"), ";") {
			text += "    " + strings.TrimSpace(line) + "\n"
		}
	}
	e.WriteFile("turnkeeper.yaml", text)
}

// runsOf returns how often a program of writeProgramTools ran.
func runsOf(e *env.Env, name string) int { return strings.Count(e.ReadFile(name), "x") }

// callOf returns a call without arguments.
func callOf(tool string, n int) inferencetest.Call {
	return inferencetest.Call{ID: fmt.Sprintf("call_%s_%d", tool, n), Name: tool, Arguments: "{}"}
}

// Each read of a counter returns its current value. An effect is not repeated, unless its tool allows it.
func TestReadsAreReadAgain(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	writeProgramTools(e, map[string]string{
		"read": "effect: none", "act": "effect: once", "again": "effect: once; repeat: allow",
		"guarded": "effect: none; repeat: guard",
	})
	e.WriteAgent("clerk", "tools: [read, act, again, guarded]", "max_rounds: 5", "max_tool_calls: 50")
	both := func(n int) (calls []inferencetest.Call) {
		for _, tool := range []string{"act", "again", "guarded"} {
			calls = append(calls, callOf(tool, 2*n), callOf(tool, 2*n+1))
		}
		return calls
	}
	e.Model.Then(env.Rounds(inferencetest.Calls(callOf("read", 100)), inferencetest.Calls(callOf("read", 101)),
		inferencetest.Calls(callOf("read", 102)),
		inferencetest.Calls(both(0)...), inferencetest.Text("Done.")))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Poll."))
	e.WantEnd(turn, "succeeded", "none", 5)
	var read []string
	for _, c := range turn.Calls() {
		if c.Name == "read" {
			read = append(read, c.State+" "+strings.TrimSpace(c.Result))
		}
	}
	if got := strings.Join(read, ", "); got != "succeeded 1, succeeded 2, succeeded 3" {
		t.Errorf("three polls of a counter gave %s", got)
	}
	for tool, want := range map[string]int{"act": 1, "again": 2, "guarded": 1} {
		if n := runsOf(e, tool); n != want {
			t.Errorf("%s ran %d times, not %d", tool, n, want)
		}
	}
}

// A schedule with an interval shorter than the freshness window reads each time. Effects, and reads that set
// freshness, are not repeated.
func TestAFrequentScheduleReadsEachTime(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	writeProgramTools(e, map[string]string{
		"read": "effect: none", "act": "effect: once", "fresh": "effect: none; freshness: 10m",
		"always": "effect: once; freshness: 0", "broken": "effect: none; arguments: {type: object}",
	})
	e.WriteAgent("clerk", "tools: [read, act, fresh, always]", "max_tool_calls: 50", env.HourlySchedule)
	e.Model.Then(env.Rounds(
		inferencetest.Calls(callOf("read", 1), callOf("act", 1), callOf("fresh", 1), callOf("always", 1)),
		inferencetest.Text("Seen.")))
	e.StartWorker()
	for n := range 3 {
		e.MissSlots(0)
		e.AwaitSlots(n + 1)
	}
	for tool, want := range map[string]int{"read": 3, "act": 1, "fresh": 1, "always": 3} {
		if n := runsOf(e, tool); n != want {
			t.Errorf("in three runs of the schedule %s ran %d times, not %d", tool, n, want)
		}
	}
	c := e.Show(env.Query[int64](e, "select max(id) from turns")).CallsByWireID()["call_fresh_1"]
	if c.State != "skipped" || !strings.HasPrefix(c.Result, "skipped due to freshness dedupe: last success ") ||
		!strings.HasSuffix(c.Result, " seconds ago within 600 second window") {
		t.Errorf("the fresh read is %s: %q", c.State, c.Result)
	}
}

// Each run of a schedule retries a failed read. After three failures, an effect is not retried for a while.
func TestACoolDownIsForEffects(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	writeProgramTools(e, map[string]string{
		"read": "effect: none; media_type: text/plain", "act": "effect: keyed",
	})
	e.WriteFile("turnkeeper.yaml", strings.ReplaceAll(e.ReadFile("turnkeeper.yaml"), "']\n", "; exit 1']\n"))
	e.WriteAgent("clerk", "tools: [read, act]", "max_tool_calls: 50", env.HourlySchedule)
	e.Model.Then(env.Rounds(inferencetest.Calls(callOf("read", 1), callOf("act", 1)), inferencetest.Text("Seen.")))
	e.StartWorker()
	for n := range 4 {
		e.MissSlots(0)
		e.AwaitSlots(n + 1)
	}
	if read, act := runsOf(e, "read"), runsOf(e, "act"); read != 4 || act != 3 {
		t.Errorf("in four runs a read that fails ran %d times, an effect %d times", read, act)
	}
}

// Mode raw returns a text below the threshold whole, whatever the limit for results.
func TestRawReadsTheWholeResult(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_tool_result_chars: 1000", "max_rounds: 4")
	long := strings.Repeat("all of it 日本 ", 500)
	e.Ledger.SetAnswer("a", long)
	e.Ledger.SetAnswer("b", strings.Repeat("far too much ", 10_000))
	raw := func(id string) inferencetest.Reply {
		return inferencetest.Calls(inferencetest.Call{ID: "raw_" + id, Name: "get_tool_output",
			Arguments: `{"id":"` + id + `","mode":"raw"}`})
	}
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), raw("call_a"), env.MarkerReply("mark_none", "b"),
		raw("call_b")))
	e.Vars["TURNKEEPER_MAX_ROUNDS"] = "3"
	e.StartWorker()
	calls := e.TurnOf(e.Enqueue("clerk", "Read.")).CallsByWireID()
	if got := calls["raw_call_a"]; got.Result != long {
		t.Errorf("mode raw of %d characters gave %d, which end with %q", len([]rune(long)), len([]rune(got.Result)),
			got.Result[max(0, len(got.Result)-120):])
	}
	if got :=
		calls["raw_call_b"]; got.Result != `{"error":"Response too large (130000 bytes). Use extract or slice mode."}` {
		t.Errorf("mode raw of a text above the threshold gave %.200q", got.Result)
	}
}

// A tool's own switches, for programs and for tools that are built in, and pages
// of the size of the first one.
func TestSwitchesOfOneTool(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	writeProgramTools(e, map[string]string{
		"slow":  "timeout: 1s",
		"short": "max_result_chars: 100; effect: none",
		// Existing tools are given settings only.
		"mark_none": "-max_result_chars: 200", "mark_once": "-repeat: allow",
		"clock": "-max_result_chars: 10; timeout: 5s",
	})
	text := e.ReadFile("turnkeeper.yaml")
	text = strings.ReplaceAll(text, fmt.Sprintf("echo x >>%s/slow; wc -l <%s/slow", e.Dir, e.Dir), "sleep 600")
	text = strings.ReplaceAll(text, fmt.Sprintf("echo x >>%s/short; wc -l <%s/short", e.Dir, e.Dir),
		"i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done")
	e.WriteFile("turnkeeper.yaml", text)
	e.WriteAgent("clerk", "tools: [slow, short, mark_none, mark_once, clock]", "max_rounds: 3", "max_tool_calls: 50")
	long := strings.Repeat("0123456789", 50)
	e.Ledger.SetAnswer("a", long)
	e.Model.Then(env.Rounds(
		inferencetest.Calls(callOf("short", 1), callOf("clock", 1),
			inferencetest.Call{ID: "call_a", Name: "mark_none", Arguments: `{"label":"a"}`},
			inferencetest.Call{ID: "call_p", Name: "mark_once", Arguments: `{"label":"p"}`},
			inferencetest.Call{ID: "call_q", Name: "mark_once", Arguments: `{"label":"p"}`},
			callOf("slow", 1)),
		inferencetest.Calls(page("next", `{"tool_call_id":"call_a"}`)),
		inferencetest.Text("Done."),
	))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Go."))
	calls := turn.CallsByWireID()
	for id, want := range map[string]string{
		"call_short_1": "[truncated — showing 100/", "call_clock_1": "[truncated — showing 10/", "call_a": long[:200] +
			"\n\n[truncated — showing 200/500 chars.",
		"next": long[200:400] + "\n\n[truncated — showing 200-400/500 chars.", "call_slow_1": "timed out after 1 s",
	} {
		if !strings.Contains(calls[id].Result, want) {
			t.Errorf("%s is answered %q, without %q", id, calls[id].Result, want)
		}
	}
	e.Ledger.WantRuns("p", 2)

	e.WriteAgent("clerk", "tools: [clock]")
	if r := e.Run("", "worker"); r.Code == 0 || !strings.Contains(r.Stderr,
		`tools.mark_none has no command, so its name must be that of a built-in tool or one registered in Go: there is no tool "mark_none"`) {
		t.Errorf("switches of a tool that does not exist: %+v", r)
	}
}
