package core_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
	"turnkeeper/tools/program/programtest"
)

// rssBound is the maximum peak memory of a worker, whatever its tools do. It holds ten million bytes of a
// result several times: as read, masked, cleaned, and sent to the database.
const rssBound = 256 << 20

// checkMemory fails the test if the worker's peak memory exceeds rssBound.
func checkMemory(p *env.Process) {
	p.T.Helper()
	checkPeak(p, rssBound)
}

func checkPeak(p *env.Process, bound int) {
	p.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		p.T.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(peak), " kB"))
			if err != nil {
				p.T.Fatal(err)
			}
			if p.T.Logf("the worker's peak is %d MiB", kib>>10); kib<<10 > bound && !testrun.RaceDetector {
				p.T.Errorf("%s took %d MiB", p.Name, kib>>10)
			}
			return
		}
	}
	p.T.Fatal("the system does not tell how much memory the worker took")
}

// A misbehavingTool is a misbehaving program as a tool in the config file.
type misbehavingTool struct{ behaviour, timeout, effect string }

// writeMisbehavingTools writes the tools into the config file. The tokens of their processes are token
// followed by the behaviour.
func writeMisbehavingTools(e *env.Env, token string, all ...misbehavingTool) {
	e.T.Helper()
	config, err := os.ReadFile(filepath.Join(e.Dir, "turnkeeper.yaml"))
	if err != nil {
		e.T.Fatal(err)
	}
	text := string(config) + "tools:\n"
	for _, r := range all {
		text += fmt.Sprintf(
			"  %s:\n    description: Misbehaves.\n    command: [%q, %q, %q]\n    timeout: %s\n    effect: %s\n",
			misbehavingToolName(r.behaviour), env.Binary(e.T, "misbehaving"), r.behaviour, token+r.behaviour,
			r.timeout, r.effect)
	}
	e.WriteFile("turnkeeper.yaml", text)
}

func misbehavingToolName(behaviour string) string {
	return "misbehave_" + strings.ReplaceAll(behaviour, " ", "_")
}

// A misbehaviour is one way for a tool to misbehave, and the expected result.
type misbehaviour struct {
	how    string
	state  string // of the call
	result string // prefix of the result that the model gets
	stored int64  // bytes kept; 0: not checked
	holds  string // text that the result also contains
}

// runMisbehaviour runs a turn with the call, and another turn after it.
func runMisbehaviour(e *env.Env, w *env.Process, c misbehaviour, timeout time.Duration) {
	e.T.Helper()
	turn := e.TurnOf(e.Enqueue("clerk", c.how))
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "So be it.")
	call := turn.Calls()[0]
	if call.State != c.state || !strings.HasPrefix(call.Result, c.result) || !strings.Contains(call.Result, c.holds) {
		e.T.Errorf("the call is %s: %.300q ... %.300q", call.State, call.Result,
			call.Result[max(0, len(call.Result)-300):])
	}
	took := time.Duration(env.Query[int64](e, "select coalesce(duration_ms, 0) from calls where turn_id = $1",
		turn.ID)) * time.Millisecond
	e.T.Logf("the call took %s, its timeout is %s", took, timeout) // a call that does not end keeps the turn open
	if c.stored > 0 {
		if n := env.Query[int64](e, "select size_bytes from outputs where turn_id = $1", turn.ID); n != c.stored {
			e.T.Errorf("%d bytes are kept, not %d", n, c.stored)
		}
	}
	checkMemory(w)
	next := e.TurnOf(e.Enqueue("clerk", "next"))
	e.WantEnd(next, "succeeded", "none", 2)
	if got := next.Calls()[0]; got.State != "succeeded" {
		e.T.Errorf("the next turn's call is %s: %s", got.State, got.Result)
	}
}

// modelCalls makes the model call what calls returns for the message, or else a marker tool.
func modelCalls(e *env.Env, calls func(how string) (inferencetest.Call, bool)) {
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) > 1 {
			return inferencetest.Text("So be it.")
		}
		if c, ok := calls(env.NewestMessage(r)); ok {
			return inferencetest.Calls(c)
		}
		return inferencetest.Calls(env.MarkerCall("mark_none", "next"))
	})
}

const deepJSON = 20_000 // bytes

func TestProgramsThatMisbehave(t *testing.T) {
	t.Parallel()
	const timedOut = "tool error: '%s' timed out after 0.7 s"
	const short, long = 700 * time.Millisecond, 80 * time.Second
	tests := []struct {
		misbehaviour
		timeout time.Duration
	}{
		{misbehaviour{how: "hang", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "deaf", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "fork", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "setsid", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "orphan", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "bomb", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "endless", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "complain", state: "failed", result: timedOut}, short},
		{misbehaviour{how: "daemon", state: "succeeded", result: "it runs\n"}, long},
		{misbehaviour{how: "patricide", state: "failed", result: "tool error: the program's keeper was lost"}, long},
		{misbehaviour{how: "panic", state: "failed",
			result: "tool error: the program of 'misbehave_panic' ended with exit code 2. It complained:\n",
			holds:  "panic: nothing works"}, long},
		{misbehaviour{how: "gigabyte", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000,
			holds: "[cut: the result had 1073741824 bytes; what is missing at its end was not kept]"}, long},
		{misbehaviour{how: "nul", state: "succeeded", result: "ab"}, long},
		{misbehaviour{how: "broken utf-8", state: "succeeded", result: "a\uFFFDb\uFFFD"}, long},
		{misbehaviour{how: "surrogates", state: "succeeded", result: `{"a":"\ud800"}` + "\uFFFD."}, long},
		{misbehaviour{how: "deep", state: "succeeded", result: "[[[[[", stored: deepJSON}, long},
	}
	tests = testrun.Sample(tests, 8)
	e := env.New(t)
	token := rand.Text()
	var names []string
	var tools []misbehavingTool
	for _, c := range tests {
		names = append(names, misbehavingToolName(c.how))
		tools = append(tools, misbehavingTool{c.how, c.timeout.String(), "none"})
	}
	writeMisbehavingTools(e, token, tools...)
	// a slow machine needs more than five seconds
	e.WriteAgent("clerk", "tools: [mark_none, "+strings.Join(names, ", ")+"]", "async_timeout: 85s")
	modelCalls(e, func(how string) (inferencetest.Call, bool) {
		return inferencetest.Call{Name: misbehavingToolName(how)}, how != "next"
	})
	w := e.StartWorker()
	for _, c := range tests {
		t.Run(c.how, func(t *testing.T) {
			if strings.Contains(c.result, "%s") {
				c.result = fmt.Sprintf(c.result, misbehavingToolName(c.how))
			}
			runMisbehaviour(envOf(t, e), processOf(t, w), c.misbehaviour, c.timeout)
			if c.timeout == short { // after its timeout a call waits half a second for its processes to end
				programtest.AwaitAlive(t, token+c.how, 0)
			} else {
				programtest.Dead(t, token+c.how)
			}
		})
	}
}

// envOf returns the Env for a subtest.
func envOf(t testing.TB, e *env.Env) *env.Env {
	part := *e
	part.T = t
	return &part
}

// processOf returns the process for a subtest.
func processOf(t testing.TB, p *env.Process) *env.Process {
	part := *p
	part.T = t
	return &part
}

func TestGoToolsThatMisbehave(t *testing.T) {
	t.Parallel()
	// the tool's timeout
	const timeout, timedOut = 500 * time.Millisecond, "tool error: 'misbehave' timed out after 0.5 s"
	const cut = "[cut: the result was larger than this; the rest was not kept]"
	tests := []misbehaviour{
		{how: "hang", state: "failed", result: timedOut},
		{how: "hang a while", state: "failed", result: timedOut},
		{how: "panic", state: "failed", result: "tool error: 'overdo' panicked: nothing works"},
		{how: "end the goroutine", state: "failed", result: "tool error: 'overdo' panicked: it ended its goroutine"},
		{how: "endless", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: cut},
		{how: "gigabyte", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: cut},
		{how: "trickle", state: "failed", result: timedOut},
		{how: "hanging body", state: "failed", result: timedOut},
		{how: "large text", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000,
			holds: "[cut: the result had 67108864 bytes;"},
		{how: "nul", state: "succeeded", result: "ab"},
		{how: "broken utf-8", state: "succeeded", result: "a\uFFFDb\uFFFD"},
		{how: "surrogates", state: "succeeded", result: `{"a":"\ud800"}` + "\uFFFD."},
		{how: "deep", state: "succeeded", result: "[[[[[", stored: deepJSON},
	}
	tests = testrun.Sample(tests, 7) // including "hang" and "hang a while"
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_none, misbehave, overdo]", "async_timeout: 0")
	modelCalls(e, func(how string) (inferencetest.Call, bool) {
		tool := "misbehave"
		if slices.ContainsFunc(tests, func(m misbehaviour) bool { return m.how == how && m.result != timedOut }) {
			tool = "overdo"
		}
		return inferencetest.Call{Name: tool, Arguments: `{"how":` + env.Quote(how) + `}`}, how != "next"
	})
	w := e.StartWorker()
	for _, c := range tests {
		limit := timeout
		if c.result != timedOut {
			limit = time.Minute
		}
		t.Run(c.how, func(t *testing.T) { runMisbehaviour(envOf(t, e), processOf(t, w), c, limit) })
	}
	w.Await("a tool did not return at its timeout and still runs")
	w.Await("a tool returned after its timeout")
	if code := w.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	w.Await("tools that did not return within their timeout end with this process")
}

func TestArgumentsThatMisbehave(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"label":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	tests := []struct{ how, arguments, says string }{
		{"nul", `{"label":"a\u0000"}`, "a string holds the NUL character"},
		{"surrogates", `{"label":"a\ud800"}`, "half of a surrogate pair"},
		{"broken utf-8", "{\"label\":\"a\xff\"}", ""}, // a JSON response cannot contain it
		{"deep", deep(10_000), "nested more than 64 deep"},
		{"deep and cut off", strings.Repeat(`{"label":`, 10_000), "nested more than 64 deep"},
		{"long", `{"label":"` + strings.Repeat("x", 1<<20) + `"}`, "at most 262144 are allowed"},
	}
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_none]")
	modelCalls(e, func(how string) (inferencetest.Call, bool) {
		for _, c := range tests {
			if c.how == how {
				return inferencetest.Call{Name: "mark_none", Arguments: c.arguments}, true
			}
		}
		return inferencetest.Call{}, false
	})
	w := e.StartWorker()
	for _, c := range tests {
		t.Run(c.how, func(t *testing.T) {
			state := "denied"
			if c.says == "" {
				state = "succeeded"
			}
			runMisbehaviour(envOf(t, e), processOf(t, w), misbehaviour{how: c.how, state: state, holds: c.says}, 0)
		})
	}
}

// The programs of a killed worker end with it, including orphans.
func TestProgramsOfAWorkerThatIsKilled(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	token := rand.Text()
	writeMisbehavingTools(e, token, misbehavingTool{"orphan", "1h", "once"})
	e.WriteAgent("clerk", "tools: [misbehave_orphan]")
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{Name: "misbehave_orphan"}),
		inferencetest.Text("So be it.")))
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Go.")
	programtest.AwaitAlive(t, token+"orphan", 2)
	e.StartWorker()
	e.Kill(w)
	programtest.AwaitAlive(t, token+"orphan", 0) // long before their timeout
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 2)
	e.WantReply(turn, "So be it.\n\n- misbehave_orphan: unknown: it may or may not have happened")
	programtest.Dead(t, token+"orphan") // not started again
}

// A program ends at its timeout even if its worker is stopped.
func TestProgramsOfAWorkerThatIsStopped(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	token := rand.Text()
	writeMisbehavingTools(e, token, misbehavingTool{"orphan", "15s", "none"})
	e.WriteAgent("clerk", "tools: [misbehave_orphan]", "async_timeout: 0")
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{Name: "misbehave_orphan"}),
		inferencetest.Text("So be it.")))
	w := e.StartWorker()
	message := e.Enqueue("clerk", "Go.")
	programtest.AwaitAlive(t, token+"orphan", 2)
	w.Signal(syscall.SIGSTOP)
	programtest.AwaitAlive(t, token+"orphan", 0)
	w.Signal(syscall.SIGCONT)
	turn := e.TurnOf(message)
	e.WantEnd(turn, "succeeded", "none", 2)
	// Either the worker or the guard of the program reports it first.
	said := []string{"tool error: 'misbehave_orphan' timed out after 15 s",
		"tool error: its time was up while this worker was stopped"}
	if got := turn.Calls()[0]; got.State != "failed" || !slices.Contains(said, got.Result) {
		t.Errorf("the call is %s: %s", got.State, got.Result)
	}
}
