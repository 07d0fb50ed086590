package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// lasting returns a tool that succeeds after d, or fails when its context ends.
func lasting(name string, effect turnkeeper.Effect, d time.Duration) *tool {
	return newTool(name, effect).does(func(ctx context.Context, _ tools.Call) (tools.Result, error) {
		select {
		case <-time.After(d):
			return tools.Result{Text: name + " found it"}, nil
		case <-ctx.Done():
			return tools.Result{}, context.Cause(ctx)
		}
	})
}

// asyncBench returns a bench whose models can retrieve outputs.
func asyncBench(t *testing.T, steps ...inferencetest.Step) *bench {
	b := newBench(t, steps...)
	b.tools = append(b.tools, builtin.NewReaders()...)
	b.bounds.MaxRounds = 10
	return b
}

func (b *bench) handle(call int, text string) string {
	return strings.ReplaceAll(text, "@", string(b.store.calls()[call].OutputID))
}

var percent = regexp.MustCompile(`\b[0-9]{1,2}%`)

func last(r inference.Request) string { return r.Messages[len(r.Messages)-1].Text }

// TestASlowCallGoesToTheBackground checks that a slow call goes to the background: the
// next request says so, and the model waits and then reads the result.
func TestASlowCallGoesToTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t)
		b.with(lasting("fetcher", turnkeeper.EffectNone, 12300*time.Millisecond), read("quick"))
		b.script.Add(asks("fetcher", "quick"), asks("wait_for_tool_output {}"),
			inferencetest.Func(func(context.Context, inference.Request,
				func(inference.Delta)) (inference.Response, error) {
				return asking("", fmt.Sprintf(`get_tool_output {"id":%q,"mode":"raw"}`, b.store.calls()[0].OutputID)),
					nil
			}), says("Done."))
		b.def.Tools = append(b.def.Tools, "quick")
		outcome := b.run(t.Context())
		if outcome.State != turnkeeper.TurnSucceeded || outcome.Reply != "Done." {
			t.Fatalf("%+v", outcome)
		}
		requests := b.requests()
		if got, want := results(requests[1]), []string{
			b.handle(0,
				"Tool Output ID: @\nTool: fetcher\n\nWhen the System Notice shows this tool is ready, use get_tool_output(\"@\", mode) to retrieve its output."),
			"quick ran",
		}; !cmp.Equal(got, want) {
			t.Errorf("the second request: %s", cmp.Diff(want, got))
		}
		if got, want := percent.ReplaceAllString(last(requests[1]), "N%"),
			b.handle(0, "# System Notice\n\nThis is turn 2 of 10.\nYour context window is N% full.\n\n"+
				"## Async Tool Status\n### Running (1)\n- fetcher (id: @, running 5.0s)\n\n"+
				"You can:\n1. Call tools.\n2. Wait for an output that runs, with wait_for_tool_output().\n3. Answer with what you have."); got != want {
			t.Errorf("the notice: %s", cmp.Diff(want, got))
		}
		if got, want := results(requests[2])[2], b.handle(0,
			"Completed tools:\n- fetcher (id: @, size: 16B)"); got != want {
			t.Errorf("waiting gave %q, want %q", got, want)
		}
		if got, want := last(requests[2]), b.handle(0,
			"### Ready (1)\n- fetcher (id: @, ~5 tokens, retrieved 0 times)"); !strings.Contains(got, want) {
			t.Errorf("the notice after it: %q", got)
		}
		if got := results(requests[3])[3]; got != "fetcher found it" {
			t.Errorf("retrieved %q", got)
		}
		if got := noticeOf(requests[3]); got != "" {
			t.Errorf("no call has ended since the last notice, and there is another: %q", got)
		}
		// Who watches learns it too, and that the first round is over, before the second begins.
		var watched []string
		for _, e := range b.store.events() {
			if e.Type == turnkeeper.EventNotice || e.Type == turnkeeper.EventRoundStart ||
				e.Type == turnkeeper.EventRoundStop {
				watched = append(watched, fmt.Sprintf("%s %d", e.Type, e.Round))
			}
		}
		if want := []string{"round_start 1", "notice 1", "round_stop 1", "round_start 2"}; !cmp.Equal(
			watched[:min(len(watched), 4)], want) {
			t.Errorf("the events: %q", watched)
		}
		calls := b.store.calls()
		if calls[0].State != turnkeeper.CallSucceeded || calls[0].Starts != 1 ||
			calls[0].Duration != 12300*time.Millisecond {
			t.Errorf("the call ended as %+v", calls[0])
		}
		for _, past := range requests[1:] { // later requests keep the first results
			if got := results(past)[0]; got != results(requests[1])[0] {
				t.Errorf("the call was answered anew with %q", got)
			}
		}
		if b.store.turn().ChargedRounds > 2 {
			t.Errorf("%d rounds were charged", b.store.turn().ChargedRounds)
		}
		for _, line := range []string{"tool call continues in the background", "tool call in the background ended"} {
			if b.logged(line) != 1 {
				t.Errorf("%q is logged %d times", line, b.logged(line))
			}
		}
	})
}

// TestAttachmentsOfACallInTheBackground checks that attachments of a background call are
// stored with its result and can be read by their own ids.
func TestAttachmentsOfACallInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("camera"), asks("wait_for_tool_output {}"), says("Done."))
		b.with(once("camera").withBackground().does(func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(8 * time.Second)
			return tools.Result{Text: "a picture", Attached: []tools.Attachment{{Name: "image", MediaType: "image/png",
				Bytes: []byte{0, 1}}}}, nil
		}))
		if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
			t.Fatalf("%+v", outcome)
		}
		if len(b.store.outputs()) != 2 {
			t.Fatalf("%+v", b.store.outputs())
		}
		text, picture := b.store.outputs()[0], b.store.outputs()[1]
		if !strings.Contains(text.Text, "[image, stored as output "+string(picture.ID)) ||
			picture.MediaType != "image/png" || len(picture.Bytes) != 2 {
			t.Errorf("%+v, %+v", text, picture)
		}
	})
}

// TestTheLoopWaitsForTheFirst checks that, with all calls in the background, the loop
// waits for the first result.
func TestTheLoopWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("slow", "slower"), says("One is enough."))
		b.with(lasting("slow", turnkeeper.EffectOnce, 20*time.Second).withBackground(),
			lasting("slower", turnkeeper.EffectNone, 50*time.Second))
		start := time.Now()
		outcome := b.run(t.Context())
		if outcome.State != turnkeeper.TurnSucceeded || time.Since(start) != 20*time.Second {
			t.Errorf("ended %s after %s", outcome.State, time.Since(start))
		}
		if got := last(b.requests()[1]); !strings.Contains(got, "### Running (1)\n- slower") || !strings.Contains(got,
			"### Ready (1)\n- slow (") {
			t.Errorf("the notice: %q", got)
		}
		// A call that only reads is stopped after the model's last answer.
		if got, want := b.states(), []turnkeeper.CallState{turnkeeper.CallSucceeded,
			turnkeeper.CallCancelled}; !cmp.Equal(got, want) {
			t.Errorf("states %v", got)
		}
	})
}

// TestTheTurnClosesAfterItsEffects checks that a background call with an effect may
// finish, within its timeout, before the turn closes, and that the model sees how it
// ended.
func TestTheTurnClosesAfterItsEffects(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		after time.Duration // time of the turn's end
		state turnkeeper.CallState
		turn  turnkeeper.TurnState
		stop  turnkeeper.StopReason
		reply string
	}{
		"it ends": {30 * time.Second, 30 * time.Second, turnkeeper.CallSucceeded, turnkeeper.TurnSucceeded,
			turnkeeper.StopNone, "It is over."},
		"its time is up": {80 * time.Second, 60 * time.Second, turnkeeper.CallFailed, turnkeeper.TurnSucceeded,
			turnkeeper.StopNone, "It is over."},
		"the turn's is first": {
			80 * time.Second, 40 * time.Second, turnkeeper.CallCancelled, turnkeeper.TurnDegraded,
			turnkeeper.StopMaxDuration,
			"Tool results: 1 succeeded, 0 failed, 1 unknown.\n- sender: unknown: it may or may not have happened\n- quick: succeeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := asyncBench(t, asks("sender", "quick"), says("It is on its way."), says("It is over.")).with(
					lasting("sender", turnkeeper.EffectOnce, c.takes).withBackground(), read("quick"))
				if name == "the turn's is first" {
					b.bounds.MaxDuration, b.wall = 40*time.Second, 40*time.Second
				}
				start := time.Now()
				outcome := b.run(t.Context())
				if outcome.State != c.turn || outcome.StopReason != c.stop || time.Since(start) != c.after ||
					outcome.Reply != c.reply {
					t.Errorf("%+v after %s", outcome, time.Since(start))
				}
				if got := b.states()[0]; got != c.state {
					t.Errorf("the call is %s", got)
				}
			})
		})
	}
}

// TestAFailureInTheBackground checks that a notice reports a call that failed in the
// background, and that its error can be read.
func TestAFailureInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t)
		b.with(read("fetcher").does(func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(7 * time.Second)
			return tools.Result{}, errors.New("the mirror is down")
		}))
		b.script.Add(asks("fetcher"), inferencetest.Func(func(context.Context, inference.Request,
			func(inference.Delta)) (inference.Response, error) {
			return asking("", fmt.Sprintf(`get_tool_output {"id":%q,"mode":"raw"}`, b.store.calls()[0].OutputID)), nil
		}), says("It failed."))
		b.run(t.Context())
		requests := b.requests()
		if got := last(requests[1]); !strings.Contains(got,
			b.handle(0, "### Failed (1)\n- fetcher (id: @, the tool failed)")) {
			t.Errorf("the notice: %q", got)
		}
		if got := results(requests[2])[1]; got != `{"error":"tool error: the mirror is down"}` {
			t.Errorf("retrieved %q", got)
		}
	})
}

// TestAskingForWhatIsNotThere asks for outputs that cannot be read, and waits without a
// running call.
func TestAskingForWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t)
		b.with(lasting("fetcher", turnkeeper.EffectNone, 20*time.Second), read("quick"))
		b.script.Add(asks("fetcher", "quick"), inferencetest.Func(func(context.Context, inference.Request,
			func(inference.Delta)) (inference.Response, error) {
			return asking("", fmt.Sprintf(`get_tool_output {"id":%q,"mode":"raw"}`, b.store.calls()[0].OutputID),
					`get_continuation {"tool_call_id":"call_fetcher_1"}`,
					`get_tool_output {"id":"nobody","mode":"raw"}`),
				nil
		}), asks("wait_for_tool_output {}"), asks("wait_for_tool_output {}"), says("Well."))
		b.run(t.Context())
		requests := b.requests()
		got := results(requests[len(requests)-1])[2:]
		want := []string{
			`{"error":"Tool not ready. Use wait_for_tool_output."}`,
			`{"error":"Tool not ready. Use wait_for_tool_output."}`, `{"error":"Unknown tool ID: nobody"}`,
			b.handle(0, "Completed tools:\n- fetcher (id: @, size: 16B)"), "No async tools running.",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// TestANoticeListsWhatApplies checks that a notice lists only the options that the model
// has at that point with its tools.
func TestANoticeListsWhatApplies(t *testing.T) {
	const callTools, answer = "Call tools.", "Answer with what you have."
	const retrieve, wait = "Retrieve an output that is ready, with get_tool_output(id, mode)",
		"ait for %s that runs, with wait_for_tool_output()"
	runs := "W" + fmt.Sprintf(wait, "an output") + "."
	for name, c := range map[string]struct {
		calls []string
		set   func(*bench)
		want  []string // options
	}{
		"one runs":     {[]string{"slow", "quick"}, nil, []string{callTools, runs, answer}},
		"one is ready": {[]string{"big"}, nil, []string{callTools, retrieve + ".", answer}},
		"one runs, one is ready": {[]string{"slow", "big"}, nil,
			[]string{callTools, retrieve + ", or w" + fmt.Sprintf(wait, "one") + ".", answer}},
		"one has failed": {[]string{"broken"}, nil, []string{callTools, answer}},
		"no reader for handles": {[]string{"far", "quick"}, func(b *bench) {
			b.tools = slices.DeleteFunc(b.tools, isReader)
		}, []string{callTools, answer}},
		"detached, nothing else in the background": {[]string{"far", "quick"}, func(b *bench) {
			b.bounds.Async = false
		}, []string{callTools, runs, answer}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := newTool("broken", turnkeeper.EffectNone).does(func(ctx context.Context,
					_ tools.Call) (tools.Result, error) {
					time.Sleep(6 * time.Second)
					return tools.Result{}, errors.New("it is broken")
				})
				big := read("big").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{Text: strings.Repeat("x", 50_000)}, nil
				})
				remote := newTool("far", turnkeeper.EffectNone)
				remote.spec.Detached, remote.spec.Timeout = true, time.Hour
				b := asyncBench(t).with(lasting("slow", turnkeeper.EffectNone, 20*time.Second), read("quick"), big,
					broken, remote)
				if c.set != nil {
					c.set(b)
				}
				b.script.Add(asks(c.calls...), says("Done."))
				if _, err := b.dispatch(t.Context()); err != nil {
					t.Fatal(err)
				}
				requests := b.requests()
				_, options, _ := strings.Cut(last(requests[len(requests)-1]), "You can:\n")
				var want []string
				for i, option := range c.want {
					want = append(want, fmt.Sprintf("%d. %s", i+1, option))
				}
				if diff := cmp.Diff(strings.Join(want, "\n"), options); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		})
	}
}

func isReader(t tools.Tool) bool { return t.Spec().Paging }

// TestADetachedResultIsReadable checks that the result of a detached call can be read
// even if no other call goes to the background.
func TestADetachedResultIsReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("remote"), asksFor("get_tool_output", "r", `{"id":"1","mode":"raw"}`),
			says("Done.")).with(far("remote", turnkeeper.EffectNone))
		b.bounds.Async = false
		b.waits()
		b.store.arrive(farKey, turnkeeper.CallSucceeded, "forty-two")
		b.run(t.Context())
		var names []string
		for _, d := range b.requests()[1].Tools {
			names = append(names, d.Name)
		}
		if got := lastResult(b.requests()[2]); got != "forty-two" ||
			fmt.Sprint(names) != "[remote get_continuation get_tool_output wait_for_tool_output]" {
			t.Errorf("with %v it read %q", names, got)
		}
	})
}

// TestADetachedCallWithoutPaging checks that a call whose result nothing could read does not run.
func TestADetachedCallWithoutPaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("remote"), says("Done.")).with(far("remote", turnkeeper.EffectNone))
		b.bounds.Paging = false
		b.run(t.Context())
		if got := lastResult(b.requests()[1]); !strings.Contains(got,
			"paging is off, so its result could not be read. Nothing was run.") {
			t.Errorf("answered %q", got)
		}
	})
}

// TestACallThatRunsIsNotRepeated checks that a repeat of a running call is not run.
func TestACallThatRunsIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := lasting("fetcher", turnkeeper.EffectNone, 20*time.Second)
		slow.spec.Repeat = tools.RepeatGuard
		b := asyncBench(t, asks("fetcher", "quick"), asks("fetcher {\"n\":1}"), says("Well.")).with(read("quick"), slow)
		b.script = inferencetest.NewScript(asks("quick", `fetcher {"n":1}`), asks(`fetcher {"n":1}`), says("Well."))
		b.models["main/model"] = b.script
		b.run(t.Context())
		if n := slow.runs.count(); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		if got := results(b.requests()[2])[2]; !strings.Contains(got, "the same call was made directly before") {
			t.Errorf("the repeat gave %q", got)
		}
	})
}

// TestNothingGoesToTheBackground checks that the loop waits for a slow call if background
// calls are switched off, or if the agent has no tool that reads outputs.
func TestNothingGoesToTheBackground(t *testing.T) {
	for name, set := range map[string]func(*bench){
		"async off":  func(b *bench) { b.bounds.Async = false },
		"timeout 0":  func(b *bench) { b.bounds.AsyncTimeout = 0 },
		"no readers": func(b *bench) { b.tools = b.tools[:0] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := asyncBench(t, asks("fetcher"), says("Done."))
				set(b)
				b.with(lasting("fetcher", turnkeeper.EffectOnce, 20*time.Second))
				b.run(t.Context())
				if got := results(b.requests()[1])[0]; got != "fetcher found it" {
					t.Errorf("shown %q", got)
				}
			})
		})
	}
}

// TestAWorkerIsLostWithACallInTheBackground checks that calls in the background follow
// the rules of recovery when their worker dies.
func TestAWorkerIsLostWithACallInTheBackground(t *testing.T) {
	for name, c := range map[string]struct {
		effect turnkeeper.Effect
		state  turnkeeper.CallState
		runs   int
		turn   turnkeeper.TurnState
	}{
		"none":  {turnkeeper.EffectNone, turnkeeper.CallSucceeded, 2, turnkeeper.TurnSucceeded},
		"keyed": {turnkeeper.EffectKeyed, turnkeeper.CallSucceeded, 2, turnkeeper.TurnSucceeded},
		"once":  {turnkeeper.EffectOnce, turnkeeper.CallUnknown, 1, turnkeeper.TurnDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := lasting("worker", c.effect, 20*time.Second).withBackground()
				b := asyncBench(t, asks("worker", "quick")).with(slow, read("quick"))
				b.lose(agentturn.PointModelBefore, 2)
				call := b.store.calls()[0]
				if call.State != turnkeeper.CallRunning || call.Starts != 1 {
					t.Fatalf("the journal has %s, %d starts", call.State, call.Starts)
				}
				b.script.Add(asks("wait_for_tool_output {}"), says("Done."))
				outcome := b.run(t.Context())
				if outcome.State != c.turn {
					t.Errorf("ended %s", outcome.State)
				}
				if got := b.store.calls()[0]; got.State != c.state || got.OutputID != call.OutputID {
					t.Errorf("the call is %s, its output %q, before %q", got.State, got.OutputID, call.OutputID)
				}
				if n := slow.runs.count(); n != c.runs {
					t.Errorf("it ran %d times", n)
				}
				if c.state == turnkeeper.CallUnknown && !strings.Contains(last(b.requests()[1]),
					"### Unknown (1)\n- worker (id: "+string(call.OutputID)+", outcome unknown: ") {
					t.Errorf("the notice: %q", last(b.requests()[1]))
				}
				if results(b.requests()[2])[0] != call.Shown {
					t.Errorf("the handle became %q", results(b.requests()[2])[0])
				}
			})
		})
	}
}

// TestAResultIsAwaitedAndReadInOneAnswer checks that the result of a background call is stored before the next call of
// the answer that waits for it reads it.
func TestAResultIsAwaitedAndReadInOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := read("worker").does(func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(20 * time.Second)
			return tools.Result{Text: strings.Repeat("words ", 20_000)}, nil
		}).withBackground()
		b := asyncBench(t, asks("worker", "quick"), asks("wait_for_tool_output {}",
			`get_continuation {"tool_call_id":"call_worker_1","offset":0}`), says("Done.")).with(slow, read("quick"))
		b.run(t.Context())
		got := b.store.calls()[3]
		if got.State != turnkeeper.CallSucceeded || !strings.HasPrefix(got.Shown, "words words ") {
			t.Errorf("%s: %.200s", got.State, got.Shown)
		}
	})
}

// TestNoTimeForACallThatRanInTheBackground checks that a call which a lost worker ran in the background does not run
// again if too little time is left.
func TestNoTimeForACallThatRanInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := lasting("worker", turnkeeper.EffectKeyed, 20*time.Second).withBackground()
		b := asyncBench(t, asks("worker", "quick")).with(slow, read("quick"))
		b.lose(agentturn.PointModelBefore, 2)
		b.wall = -1
		outcome := b.run(t.Context())
		if outcome.State != turnkeeper.TurnDegraded || outcome.StopReason != turnkeeper.StopMaxDuration ||
			slow.runs.count() != 1 {
			t.Errorf("%+v, and the call ran %d times", outcome, slow.runs.count())
		}
	})
}

// TestAShutdownWithCallsInTheBackground checks that a worker that shuts down leaves
// repeatable calls to the next worker.
func TestAShutdownWithCallsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := lasting("again", turnkeeper.EffectKeyed, 20*time.Second).withBackground()
		never := lasting("never", turnkeeper.EffectOnce, 20*time.Second).withBackground()
		b := asyncBench(t, asks("again", "quick"), asks("never")).with(again, never, read("quick"))
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(12*time.Second, func() { stop(agentturn.ErrShutdown) })
		outcome := b.run(ctx)
		if outcome.State != turnkeeper.TurnQueued {
			t.Fatalf("ended %s", outcome.State)
		}
		if got, want := b.states(), []turnkeeper.CallState{turnkeeper.CallRunning, turnkeeper.CallSucceeded,
			turnkeeper.CallCancelled}; !cmp.Equal(got, want) {
			t.Fatalf("states %v", got)
		}
		b.script.Add(asks("wait_for_tool_output {}"), says("Done."))
		if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnDegraded {
			t.Errorf("ended %s", outcome.State)
		}
		if again.runs.count() != 2 || never.runs.count() != 1 {
			t.Errorf("ran %d and %d times", again.runs.count(), never.runs.count())
		}
	})
}

// TestAResultOverTheThreshold checks that a result above the threshold, and only such a
// one, is shown as a handle.
func TestAResultOverTheThreshold(t *testing.T) {
	for name, c := range map[string]struct {
		chars int
		shown string
	}{
		"at the threshold": {32000, ""},
		"one over": {32001,
			"Tool Output ID: @\nTool: big\nSize: ~10001 tokens\n\nUse get_tool_output(\"@\", mode) to retrieve this output:\n" +
				"- \"extract\": Extract specific information you need\n- \"slice\": Get bytes around an anchor string"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat("é", c.chars)
				b := asyncBench(t).with(read("big").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{Text: text}, nil
				}))
				b.script.Add(asks("big"), inferencetest.Func(func(context.Context, inference.Request,
					func(inference.Delta)) (inference.Response, error) {
					return asking("", `get_tool_output {"id":"1","mode":"raw"}`, `get_continuation {"id":"1"}`), nil
				}), says("Read."))
				b.run(t.Context())
				requests := b.requests()
				shown := results(requests[1])[0]
				if c.shown == "" {
					if !strings.Contains(shown, "[truncated — showing 6000/32000 chars.") ||
						strings.Contains(last(requests[1]), "Notice") {
						t.Errorf("shown %q, and %q", shown[len(shown)-100:], last(requests[1]))
					}
					return
				}
				if want := b.handle(0, c.shown); shown != want {
					t.Errorf("shown %s", cmp.Diff(want, shown))
				}
				if got, want := last(requests[1]),
					b.handle(0,
						"### Ready (1)\n- big (id: @, ~10K tokens, exceeds threshold, retrieved 0 times)"); !strings.Contains(got, want) {
					t.Errorf("the notice: %q", got)
				}
				read := results(requests[2])
				if want := `{"error":"Response too large (64002 bytes). Use extract or slice mode."}`; read[1] != want {
					t.Errorf("raw gave %q", read[1])
				}
				if !strings.HasPrefix(read[2], text[:12000]) || !strings.Contains(read[2],
					"[truncated — showing 0-6000/32001 chars.") {
					t.Errorf("reading on began with %q", read[2][max(0, len(read[2])-150):])
				}
			})
		})
	}
}

// TestAHandleOfAnEarlierTurn checks that a later turn is shown the text of an earlier
// result, not its handle.
func TestAHandleOfAnEarlierTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t, asks("fetcher"), says("It is done."))
		b.with(lasting("fetcher", turnkeeper.EffectNone, 12*time.Second))
		b.run(t.Context())
		past := turnlog.Past{TurnID: 6, Body: "before", Rounds: b.store.rounds(), Reply: "It is done."}

		next := newBench(t, says("Hello again."))
		next.with(read("fetcher"))
		next.store.history = []turnlog.Past{past}
		next.run(t.Context())
		want := []string{"[the output of fetcher is stored; it began: fetcher found it]"}
		if diff := cmp.Diff(want, results(next.requests()[0])); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}
