package tests_test

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
	"turnkeeper/tools/program/programtest"
)

// rssBound is what a worker may take at its peak, whatever its tools do. Ten
// million bytes of a result are held a few times over: as read, masked,
// cleaned, and on the way to the database.
const rssBound = 256 << 20

// checkMemory fails the test if the worker has taken more than that.
func (p *process) checkMemory() {
	p.t.Helper()
	p.checkPeak(rssBound)
}

func (p *process) checkPeak(bound int) {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(peak), " kB"))
			if err != nil {
				p.t.Fatal(err)
			}
			if p.t.Logf("the worker's peak is %d MiB", kib>>10); kib<<10 > bound && !raceDetector {
				p.t.Errorf("%s took %d MiB", p.name, kib>>10)
			}
			return
		}
	}
	p.t.Fatal("the system does not tell how much memory the worker took")
}

// A rascal is a program that misbehaves, as a tool of the config file.
type rascal struct{ behaviour, timeout, effect string }

// rascals writes the tools into the config file. token begins the tokens of
// their processes, their behaviours end them.
func (h *house) rascals(token string, all ...rascal) {
	h.t.Helper()
	config, err := os.ReadFile(filepath.Join(h.dir, "turnkeeper.yaml"))
	if err != nil {
		h.t.Fatal(err)
	}
	text := string(config) + "tools:\n"
	for _, r := range all {
		text += fmt.Sprintf("  %s:\n    description: Misbehaves.\n    command: [%q, %q, %q]\n    timeout: %s\n    effect: %s\n",
			rascalTool(r.behaviour), binary(h.t, "rascal"), r.behaviour, token+r.behaviour, r.timeout, r.effect)
	}
	h.write("turnkeeper.yaml", text)
}

func rascalTool(behaviour string) string {
	return "rascal_" + strings.ReplaceAll(behaviour, " ", "_")
}

// A misbehaviour is one way for a tool to misbehave, and what becomes of it.
type misbehaviour struct {
	how    string
	state  string // of the call
	result string // what the model is told begins with
	stored int64  // bytes kept; 0: not checked
	holds  string // what the model is told holds, too
}

// misbehave runs a turn that makes the call, and one after it.
func (h *house) misbehave(w *process, c misbehaviour, timeout time.Duration) {
	h.t.Helper()
	turn := h.turnOf(h.enqueue("clerk", c.how))
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "So be it.")
	call := turn.calls()[0]
	if call.State != c.state || !strings.HasPrefix(call.Result, c.result) || !strings.Contains(call.Result, c.holds) {
		h.t.Errorf("the call is %s: %.300q ... %.300q", call.State, call.Result, call.Result[max(0, len(call.Result)-300):])
	}
	took := time.Duration(query[int64](h, "select coalesce(duration_ms, 0) from calls where turn_id = $1", turn.ID)) * time.Millisecond
	// The second is promised of programs without the race detector, which is what
	// make test runs: with it, a process on two busy cores wakes a third of one late.
	if h.t.Logf("the call took %s", took); took > timeout+time.Second && !raceDetector {
		h.t.Errorf("the call took %s, its timeout is %s", took, timeout)
	}
	if c.stored > 0 {
		if n := query[int64](h, "select size_bytes from outputs where turn_id = $1", turn.ID); n != c.stored {
			h.t.Errorf("%d bytes are kept, not %d", n, c.stored)
		}
	}
	w.checkMemory()
	next := h.turnOf(h.enqueue("clerk", "next"))
	h.ended(next, "succeeded", "none", 2)
	if got := next.calls()[0]; got.State != "succeeded" {
		h.t.Errorf("the next turn's call is %s: %s", got.State, got.Result)
	}
}

// thenAsItIsTold makes the model call what calls has for the message, and a
// marker for every other.
func (h *house) thenAsItIsTold(calls func(how string) (inferencetest.Call, bool)) {
	h.model.Then(func(r recorded) reply {
		if roundOf(r) > 1 {
			return text("So be it.")
		}
		if c, ok := calls(newest(r)); ok {
			return inferencetest.Calls(c)
		}
		return inferencetest.Calls(call("mark_none", "next"))
	})
}

const deepJSON = 20_000 // bytes

func TestProgramsThatMisbehave(t *testing.T) {
	t.Parallel()
	const timedOut = "tool error: '%s' timed out after 0.7 s"
	const short, long = 700 * time.Millisecond, 30 * time.Second
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
		{misbehaviour{how: "panic", state: "failed", result: "tool error: the program of 'rascal_panic' ended with exit code 2. It complained:\n", holds: "panic: nothing works"}, long},
		{misbehaviour{how: "gigabyte", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: "[cut: the result had 1073741824 bytes; what is missing at its end was not kept]"}, long},
		{misbehaviour{how: "nul", state: "succeeded", result: "ab"}, long},
		{misbehaviour{how: "broken utf-8", state: "succeeded", result: "a\uFFFDb\uFFFD"}, long},
		{misbehaviour{how: "surrogates", state: "succeeded", result: `{"a":"\ud800"}` + "\uFFFD."}, long},
		{misbehaviour{how: "deep", state: "succeeded", result: "[[[[[", stored: deepJSON}, long},
	}
	h := newHouse(t)
	token := rand.Text()
	var names []string
	var rascals []rascal
	for _, c := range tests {
		names = append(names, rascalTool(c.how))
		rascals = append(rascals, rascal{c.how, c.timeout.String(), "none"})
	}
	h.rascals(token, rascals...)
	h.agent("clerk", "tools: [mark_none, "+strings.Join(names, ", ")+"]", "async_timeout: 30s") // a slow machine needs more than five seconds
	h.thenAsItIsTold(func(how string) (inferencetest.Call, bool) {
		return inferencetest.Call{Name: rascalTool(how)}, how != "next"
	})
	w := h.startWorker()
	for _, c := range tests {
		t.Run(c.how, func(t *testing.T) {
			if strings.Contains(c.result, "%s") {
				c.result = fmt.Sprintf(c.result, rascalTool(c.how))
			}
			h.of(t).misbehave(w.of(t), c.misbehaviour, c.timeout)
			programtest.Dead(t, token+c.how)
		})
	}
}

// of is the house in a part of its test.
func (h *house) of(t testing.TB) *house {
	part := *h
	part.t = t
	return &part
}

func (p *process) of(t testing.TB) *process {
	part := *p
	part.t = t
	return &part
}

func TestGoToolsThatMisbehave(t *testing.T) {
	t.Parallel()
	timeout, timedOut := 500*time.Millisecond, "tool error: 'misbehave' timed out after 0.5 s" // the tool's own
	if raceDetector {
		timeout, timedOut = 3*time.Second, "tool error: 'misbehave' timed out after 3 s"
	}
	const cut = "[cut: the result was larger than this; the rest was not kept]"
	tests := []misbehaviour{
		{how: "hang", state: "failed", result: timedOut},
		{how: "hang a while", state: "failed", result: timedOut},
		{how: "panic", state: "failed", result: "tool error: 'misbehave' panicked: nothing works"},
		{how: "end the goroutine", state: "failed", result: "tool error: 'misbehave' panicked: it ended its goroutine"},
		{how: "endless", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: cut},
		{how: "gigabyte", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: cut},
		{how: "trickle", state: "failed", result: timedOut},
		{how: "hanging body", state: "failed", result: timedOut},
		{how: "large text", state: "succeeded", result: "Tool Output ID: ", stored: 10_000_000, holds: "[cut: the result had 67108864 bytes;"},
		{how: "nul", state: "succeeded", result: "ab"},
		{how: "broken utf-8", state: "succeeded", result: "a\uFFFDb\uFFFD"},
		{how: "surrogates", state: "succeeded", result: `{"a":"\ud800"}` + "\uFFFD."},
		{how: "deep", state: "succeeded", result: "[[[[[", stored: deepJSON},
	}
	h := newHouse(t)
	h.agent("clerk", "tools: [mark_none, misbehave, overdo]", "async_timeout: 0")
	h.thenAsItIsTold(func(how string) (inferencetest.Call, bool) {
		tool := "misbehave"
		if slices.ContainsFunc(tests, func(m misbehaviour) bool { return m.how == how && m.state == "succeeded" }) {
			tool = "overdo"
		}
		return inferencetest.Call{Name: tool, Arguments: `{"how":` + quote(how) + `}`}, how != "next"
	})
	w := h.startWorker()
	for _, c := range tests {
		limit := timeout
		if c.state == "succeeded" {
			limit = time.Minute
		}
		t.Run(c.how, func(t *testing.T) { h.of(t).misbehave(w.of(t), c, limit) })
	}
	w.await("a tool did not return in its time and was left behind")
	w.await("a tool that was left behind has returned")
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	w.await("tools that did not return in their time end with this process")
}

func TestArgumentsThatMisbehave(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"label":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	tests := []struct{ how, arguments, says string }{
		{"nul", `{"label":"a\u0000"}`, "a string holds the NUL character"},
		{"surrogates", `{"label":"a\ud800"}`, "half of a surrogate pair"},
		{"broken utf-8", "{\"label\":\"a\xff\"}", ""}, // a JSON response cannot carry it
		{"deep", deep(10_000), "nested more than 64 deep"},
		{"deep and cut off", strings.Repeat(`{"label":`, 10_000), "nested more than 64 deep"},
		{"long", `{"label":"` + strings.Repeat("x", 1<<20) + `"}`, "at most 262144 are allowed"},
	}
	h := newHouse(t)
	h.agent("clerk", "tools: [mark_none]")
	h.thenAsItIsTold(func(how string) (inferencetest.Call, bool) {
		for _, c := range tests {
			if c.how == how {
				return inferencetest.Call{Name: "mark_none", Arguments: c.arguments}, true
			}
		}
		return inferencetest.Call{}, false
	})
	w := h.startWorker()
	for _, c := range tests {
		t.Run(c.how, func(t *testing.T) {
			state := "denied"
			if c.says == "" {
				state = "succeeded"
			}
			h.of(t).misbehave(w.of(t), misbehaviour{how: c.how, state: state, holds: c.says}, 0)
		})
	}
}

// TestProgramsOfAWorkerThatIsKilled shows that a worker takes its programs with
// it, also those that nobody is the parent of.
func TestProgramsOfAWorkerThatIsKilled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	token := rand.Text()
	h.rascals(token, rascal{"orphan", "60s", "once"})
	h.agent("clerk", "tools: [rascal_orphan]")
	h.model.Then(rounds(inferencetest.Calls(inferencetest.Call{Name: "rascal_orphan"}), text("So be it.")))
	w := h.startWorker("--takeover-after", silence)
	message := h.enqueue("clerk", "Go.")
	programtest.AwaitAlive(t, token+"orphan", 2)
	h.startWorker("--takeover-after", silence)
	start := time.Now()
	w.kill()
	programtest.AwaitAlive(t, token+"orphan", 0)
	if took := time.Since(start); took > time.Second {
		t.Errorf("the programs lived on for %s", took)
	} else {
		t.Logf("the programs lived on for %s", took)
	}
	turn := h.turnOf(message)
	h.ended(turn, "degraded", "worker_lost", 2)
	h.replied(turn, "So be it.")
	programtest.Dead(t, token+"orphan") // it was not started again
}

// TestProgramsOfAWorkerThatIsStopped shows that a program ends at the end of its
// time even while its worker cannot see to that.
func TestProgramsOfAWorkerThatIsStopped(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	token := rand.Text()
	h.rascals(token, rascal{"orphan", "4s", "none"})
	h.agent("clerk", "tools: [rascal_orphan]", "async_timeout: 0")
	h.model.Then(rounds(inferencetest.Calls(inferencetest.Call{Name: "rascal_orphan"}), text("So be it.")))
	w := h.startWorker()
	message := h.enqueue("clerk", "Go.")
	programtest.AwaitAlive(t, token+"orphan", 2)
	w.signal(syscall.SIGSTOP)
	start := time.Now()
	programtest.AwaitAlive(t, token+"orphan", 0)
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("the programs lived on for %s", took)
	}
	w.signal(syscall.SIGCONT)
	turn := h.turnOf(message)
	h.ended(turn, "succeeded", "none", 2)
	// Either the worker or the program's keeper is the first to say so.
	said := []string{"tool error: 'rascal_orphan' timed out after 4 s", "tool error: its time was up while this worker was stopped"}
	if got := turn.calls()[0]; got.State != "failed" || !slices.Contains(said, got.Result) {
		t.Errorf("the call is %s: %s", got.State, got.Result)
	}
}
