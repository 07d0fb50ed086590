package turnkeepertest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// A listener is a testing.TB that records failures without failing itself.
type listener struct {
	testing.TB
	heard []string
}

func (l *listener) Helper()             {}
func (l *listener) Logf(string, ...any) {}
func (l *listener) Failed() bool        { return len(l.heard) > 0 }
func (l *listener) Errorf(format string, args ...any) {
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}
func (l *listener) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	runtime.Goexit()
}

// try runs a scenario in a bubble, and returns the failures.
func try(t *testing.T, setUp func() turnkeepertest.Scenario,
	faults ...turnkeepertest.Fault) (r *turnkeepertest.Result, failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &listener{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s := setUp()
			s.RealTime, s.TakeoverAfter, s.Patience = true, 15*time.Second, time.Hour
			r = turnkeepertest.Run(l, s, faults...)
		}()
		<-done
		failures = l.heard
	})
	return r, failures
}

func TestDefectsAreFound(t *testing.T) {
	startTwice := func(s *memory.Store) { s.Plant(t, memory.BugStartTwice) }
	lateOverwrites := func(s *memory.Store) { s.Plant(t, memory.BugLateOverwrites) }
	for _, test := range []struct {
		name   string
		setUp  func() turnkeepertest.Scenario
		fault  func(point string, n int) turnkeepertest.Fault // nil: it is found without a fault
		points []string                                       // where it must be found
		says   string
	}{
		{
			name: "keyed, and the key is forgotten",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				return ordering(s.order(turnkeeper.EffectKeyed, forgotten), s)
			},
			fault:  turnkeepertest.CrashAt,
			points: []string{"effect.after", "call.effect_done"},
			says:   "tool order (keyed), call round-1-tool-2 of turn 1: it had the effect \"order of tea\" again when it was started again: it must pass on the call's idempotency key",
		},
		{
			name: "keyed, and a key of each run's own",
			setUp: func() turnkeepertest.Scenario {
				s, n := &shop{}, 0
				return ordering(s.order(turnkeeper.EffectKeyed, func(tools.Call) string {
					n++
					return fmt.Sprint(n)
				}), s)
			},
			fault:  turnkeepertest.PauseAt,
			points: []string{"call.checked", "effect.before", "effect.after", "call.effect_done"},
			says:   "again when it was started again",
		},
		{
			name: "none, and it has an effect",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				return ordering(s.order(turnkeeper.EffectNone, passedOn), s)
			},
			says: "tool order (none), call round-1-tool-2 of turn 1: it had the effect \"order of tea\"; a tool that only reads has none, and may be run again at any time",
		},
		{
			name: "transactional, and it acts outside of its transaction",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				return ordering(tools.Func(tools.Spec{Name: "order", Description: "Orders.", Transactional: true},
					func(ctx context.Context, args item) (string, error) {
						s.Do(ctx, "", "order of "+args.Item)
						return "ordered", nil
					}), s)
			},
			fault:  turnkeepertest.CrashAt,
			points: []string{"effect.after", "call.transact.ran"},
			says:   "tool order (transactional), call round-1-tool-2 of turn 1: it had the effect \"order of tea\" again when it was run again: what is outside of its transaction is not undone with it",
		},
		{
			name: "once, and the store lets it start twice",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				return turnkeepertest.Planted(ordering(s.order(turnkeeper.EffectOnce, passedOn), s), startTwice)
			},
			fault:  turnkeepertest.CrashAt,
			points: []string{"effect.before", "effect.after", "call.effect_done"},
			says:   "tool order (once), call round-1-tool-2 of turn 1: it was started 2 times",
		},
		{
			name: "the store lets a late result overwrite a verdict",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				return turnkeepertest.Planted(ordering(s.order(turnkeeper.EffectOnce, passedOn), s), lateOverwrites)
			},
			fault:  turnkeepertest.PauseAt,
			points: []string{"effect.before", "call.effect_done"},
			says:   "invariant broken: a verdict stays: call round-1-tool-2 of turn 1 was unknown, and is succeeded",
		},
		{
			name: "the script is too short",
			setUp: func() turnkeepertest.Scenario {
				s := &shop{}
				scenario := ordering(s.order(turnkeeper.EffectOnce, passedOn), s)
				scenario.Talk[0].Model = scenario.Talk[0].Model[:1]
				return scenario
			},
			says: `the script has 1 steps for "order tea", and the model was asked for round 2`,
		},
		{
			name: "the agent lists a tool that is not there",
			setUp: func() turnkeepertest.Scenario {
				scenario := ordering((&shop{}).look(), nil)
				scenario.Tools, scenario.Agent = nil, "---\ntools: [order]\n---\nYou order.\n"
				return scenario
			},
			says: `the agent lists the tool "order"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, failures := try(t, test.setUp)
			if test.fault == nil {
				expectFailure(t, "without a fault", failures, test.says)
				return
			}
			if len(failures) > 0 {
				t.Fatalf("it fails without a fault: %q", failures)
			}
			for _, point := range test.points {
				if !slices.Contains(r.Points, turnkeepertest.Point{Name: point, N: 1}) {
					t.Errorf("the run does not pass %s", point)
				}
				_, failures := try(t, test.setUp, test.fault(point, 1))
				expectFailure(t, point, failures, test.says)
			}
		})
	}
}

func expectFailure(t *testing.T, where string, failures []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(failures, func(f string) bool { return strings.Contains(f, want) }) {
		t.Errorf("%s: it was not found; failures are %q", where, failures)
	}
}

// TestLostAnswerIsLost checks that a call's outcome is in doubt if the store repeats a
// write that it may have done.
func TestLostAnswerIsLost(t *testing.T) {
	setUp := func() turnkeepertest.Scenario {
		s := &shop{}
		return turnkeepertest.Planted(ordering(s.order(turnkeeper.EffectOnce, passedOn), s),
			func(s *memory.Store) { s.Plant(t, memory.BugLostAnswerRedone) })
	}
	r, _ := try(t, setUp, turnkeepertest.LoseAnswer("step", 1)) // the write with the start of the call
	if call := r.Calls("order")[0]; call.State != turnkeeper.CallUnknown {
		t.Errorf("the call is %s; has its start been answered?", call.State)
	}
}

func TestFaultThatDoesNotStrike(t *testing.T) {
	setUp := func() turnkeepertest.Scenario {
		s := &shop{}
		return ordering(s.order(turnkeeper.EffectKeyed, passedOn), s)
	}
	_, failures := try(t, setUp, turnkeepertest.CrashAt("plan.before", 7))
	expectFailure(t, "plan.before", failures,
		`the fault "crash at plan.before 7" did not happen: there were 2 of it in the run`)
}

// playDefect is the environment variable that makes TestPlayDefect run a user's test of a
// faulty tool.
const playDefect = "TURNKEEPERTEST_PLAY_DEFECT"

func TestPlayDefect(t *testing.T) {
	if os.Getenv(playDefect) == "" {
		return // TestEverywhereFails runs it
	}
	turnkeepertest.CrashEverywhere(t, func(*testing.T) turnkeepertest.Scenario {
		s := &shop{}
		return ordering(s.order(turnkeeper.EffectKeyed, forgotten), s)
	})
}

// TestEverywhereFails checks what a user sees of a faulty tool: the subtests of the
// points where the fault shows fail, the others pass, and a trace explains why.
func TestEverywhereFails(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlayDefect$")
	command.Env = append(os.Environ(), playDefect+"=1")
	out, err := command.CombinedOutput()
	if err == nil {
		t.Fatalf("the test of a faulty tool passes:\n%s", out)
	}
	var failed []string
	for line := range strings.Lines(string(out)) {
		if _, name, ok := strings.Cut(line, "--- FAIL: TestPlayDefect/"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	want := []string{"crash_at_effect.after", "crash_at_call.effect_done", "crash_at_call.results.before_2"}
	if diff := cmp.Diff(want, failed); diff != "" {
		t.Errorf("failed subtests (-want +got):\n%s", diff)
	}
	for _, line := range []string{`worker-1  EFFECT "order of tea"`, "worker-1  IS KILLED at effect.after",
		"15.000s  worker-2  takes turn 1, dispatch 2"} {
		if !strings.Contains(string(out), line) {
			t.Errorf("the trace lacks %q:\n%s", line, out)
		}
	}
}

// TestPointsAreDocumented checks that the package comment lists all points and no others.
func TestPointsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(source), "// # Points")
	table, _, _ = strings.Cut(table, "// # Time")
	var documented []string
	for line := range strings.Lines(table) {
		if row, ok := strings.CutPrefix(line, "//\t"); ok {
			documented = append(documented, strings.Fields(row)[0])
		}
	}
	want := append(agentturn.FaultPoints(), turnkeepertest.PointEffectBefore, turnkeepertest.PointEffectAfter)
	slices.Sort(want)
	slices.Sort(documented)
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("points (-want +got):\n%s", diff)
	}
}

// TestConversation runs a conversation of several messages, with a model that answers by
// its request, and a worker that dies in each turn.
func TestConversation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clerk.md")
	if err := os.WriteFile(file,
		[]byte("---\ntools: [order]\nmodel: house/model\nlane: conversation\n---\nYou order.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &shop{}
	scenario := turnkeepertest.Scenario{
		AgentFile: file,
		Tools:     []tools.Tool{s.order(turnkeeper.EffectKeyed, passedOn)},
		Talk: []turnkeepertest.Exchange{
			{Say: "order tea", Model: []turnkeepertest.Step{turnkeepertest.Call("order", item{"tea"}),
				turnkeepertest.Text("Tea is ordered.")}},
			{Say: "and milk", Model: []turnkeepertest.Step{turnkeepertest.Call("order", item{"milk"}),
				turnkeepertest.By(
					func(req inference.Request) turnkeepertest.Step {
						return turnkeepertest.Text(fmt.Sprintf("%s, after %d messages",
							req.Messages[len(req.Messages)-1].Text, len(req.Messages)))
					})}},
		},
	}
	r := turnkeepertest.Run(t, scenario, turnkeepertest.CrashAt("call.effect_done", 1),
		turnkeepertest.PauseAt("model.after", 4))
	var replies []string
	for _, reply := range r.Replies {
		replies = append(replies, reply.Body)
	}
	// System prompt, message, call, result, reply; then message, call, result.
	if diff := cmp.Diff([]string{"Tea is ordered.", "ordered milk, after 8 messages"}, replies); diff != "" {
		t.Errorf("replies (-want +got):\n%s", diff)
	}
	if r.Happened("order of tea") != 1 || s.Count("order of milk") != 1 || len(r.Calls("order")) != 2 {
		t.Errorf("effects are %v", r.Effects)
	}
	if agent, model := r.Turns[0].Agent, r.Requests[0].Model; agent != "clerk" || model != "model" {
		t.Errorf("the agent is %s, its model %s", agent, model)
	}
	dispatches := []int{r.Turns[0].Dispatches, r.Turns[1].Dispatches}
	if diff := cmp.Diff([]int{2, 2}, dispatches); diff != "" {
		t.Errorf("dispatches (-want +got):\n%s", diff)
	}
}
