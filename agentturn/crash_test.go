package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// A plot is a turn with tools of every effect. Its model decides by the request alone, so
// the turn can be killed and continued at any point.
type plot struct {
	*bench
	send, keyed, look, note *tool
}

const plotReply = "Everything was done, slowly told."

// pace is how long the tools of a plot run.
type pace struct {
	name string
	time.Duration
}

// paces has a pace at which the loop waits for the tools, and one at which they go to the
// background.
var paces = []pace{{"at once", 0}, {"in the background", 8 * time.Second}}

func newPlot(t *testing.T, pace pace) *plot {
	p := &plot{
		bench: newBench(t), look: read("look"),
		send: once("send"), keyed: newTool("keyed", turnkeeper.EffectKeyed), note: once("note"),
	}
	p.note.spec.Transactional = true
	for _, effect := range []*tool{p.send, p.keyed} {
		effect.does(func(_ context.Context, call tools.Call) (tools.Result, error) {
			if c := p.store.call(call.Key); c.Nonce == "" {
				t.Errorf("%s ran before its start was on record", call.Key)
			}
			time.Sleep(pace.Duration)
			return tools.Result{Text: "done"}, nil
		})
	}
	p.look.does(func(context.Context, tools.Call) (tools.Result, error) {
		time.Sleep(pace.Duration)
		return tools.Result{Text: "seen"}, nil
	})
	p.tools = append(p.tools, builtin.NewReaders()...)
	p.note.does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
		return tools.Result{Text: "noted"}, p.store.notes(ctx, call.Key.String())
	})
	p.with(p.look, p.send, p.keyed, p.note)
	p.models["main/model"] = p
	t.Cleanup(func() { time.Sleep(time.Minute) }) // until the tools of killed workers end
	return p
}

// Generate answers by the number of rounds in the request.
func (p *plot) Generate(ctx context.Context, r inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if err := strict(r); err != nil {
		p.t.Error(err)
	}
	rounds := 0
	for _, m := range r.Messages {
		if len(m.Calls) > 0 {
			rounds++
		}
	}
	switch rounds {
	case 0:
		return asking("First.", "look", "send", "keyed", `look {"n":2}`, `look {"n":3}`), nil
	case 1:
		return asking("Second.", "note", "nothing", `send {"n":2}`), nil
	}
	return stream(300*time.Millisecond, strings.SplitAfter(plotReply, " ")...)(ctx, r, onDelta)
}

// die runs a dispatch until its hook kills the worker, which ends the worker's goroutine.
func (p *plot) die(n int) (died bool) {
	p.fault = at("", n, func() { died = true; runtime.Goexit() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = p.dispatch(p.t.Context())
	}()
	<-done
	p.fault = nil
	return died
}

// sound checks the invariants of every ended turn.
func (p *plot) sound(where string) {
	p.t.Helper()
	for _, violation := range p.store.violations() {
		p.t.Errorf("%s: journal: %s", where, violation)
	}
	for name, runs := range map[string]map[turnkeeper.CallKey]int{"send": p.send.runs.perCall()} {
		for key, n := range runs {
			if n > 1 {
				p.t.Errorf("%s: %s ran %d times for %s", where, name, n, key)
			}
		}
	}
	if len(p.store.effects) > 1 {
		p.t.Errorf("%s: the transactional tool has written %v", where, p.store.effects)
	}
	keys := map[string]bool{}
	for _, call := range p.keyed.runs.calls {
		keys[call.IdempotencyKey] = true
	}
	if len(keys) > 1 {
		p.t.Errorf("%s: keys %v", where, keys)
	}
	var ends []turnlog.Outcome
	for _, o := range p.store.outcomes() {
		if o.State.Terminal() {
			ends = append(ends, o)
		}
	}
	if len(ends) != 1 {
		p.t.Errorf("%s: outcomes %+v", where, p.store.outcomes())
		return
	}
	p.soundEnd(where, ends[0])
}

func (p *plot) soundEnd(where string, end turnlog.Outcome) {
	p.t.Helper()
	want, inDoubt := turnkeeper.TurnSucceeded, ""
	for _, call := range p.store.calls() {
		if !call.State.Answered() {
			p.t.Errorf("%s: %s is left %s", where, call.Key, call.State)
		}
		cut := call.State == turnkeeper.CallCancelled && call.Effect != turnkeeper.EffectNone && call.Nonce != ""
		if call.State == turnkeeper.CallUnknown || cut {
			want = turnkeeper.TurnDegraded
			inDoubt += "\n- " + call.Name + ": unknown: it may or may not have happened"
		}
	}
	if inDoubt != "" {
		inDoubt = "\n" + inDoubt
	}
	// The reply is the summary if the turn was interrupted after the model's answer.
	summed := inDoubt != "" && strings.HasPrefix(end.Reply, "Tool results: ") &&
		strings.Contains(end.Reply, inDoubt[1:])
	if end.State != want || end.Reply != plotReply+inDoubt && !summed {
		p.t.Errorf("%s: %+v with calls %v", where, end, p.states())
	}
	if text := p.streamed(3); text != plotReply {
		p.t.Errorf("%s: watchers end with %q", where, text)
	}
	terminal := 0
	for _, e := range p.store.events() {
		if e.Type.Terminal() {
			terminal++
		}
	}
	if terminal != 1 {
		p.t.Errorf("%s: %d terminal events", where, terminal)
	}
}

func TestPlotWithoutFaults(t *testing.T) {
	for _, pace := range paces {
		t.Run(pace.name, func(t *testing.T) { plotWithoutFaults(t, pace) })
	}
}

func plotWithoutFaults(t *testing.T, pace pace) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlot(t, pace)
		p.run(t.Context())
		p.sound("no fault")
		want := []turnkeeper.CallState{"succeeded", "succeeded", "succeeded", "succeeded", "succeeded", "succeeded",
			"denied", "succeeded"}
		if !slices.Equal(p.states(), want) {
			t.Errorf("states %v", p.states())
		}
	})
}

// TestKilledAnywhere kills a worker at every point of the turn, and dispatches the turn
// again.
func TestKilledAnywhere(t *testing.T) {
	for _, pace := range paces {
		t.Run(pace.name, func(t *testing.T) { killedAnywhere(t, pace) })
	}
}

func killedAnywhere(t *testing.T, pace pace) {
	points := 0
	for alive := false; !alive; points++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPlot(t, pace)
			if alive = !p.die(points + 1); !alive && p.store.turn().State == turnkeeper.TurnRunning {
				p.run(t.Context())
			}
			p.sound(fmt.Sprint("killed at point ", points+1))
		})
	}
	if points < 40 {
		t.Errorf("only %d points were reached", points)
	}
}

// TestKilledTwice kills two workers, one after the other.
func TestKilledTwice(t *testing.T) {
	for _, pace := range paces {
		t.Run(pace.name, func(t *testing.T) { killedTwice(t, pace) })
	}
}

func killedTwice(t *testing.T, pace pace) {
	for first := 1; first < 60; first += testrun.Count(9, 3) {
		for second := 1; second < 45; second += testrun.Count(4, 2) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlot(t, pace)
				for _, n := range []int{first, second} {
					if p.store.turn().State != turnkeeper.TurnSucceeded && !p.store.turn().State.Terminal() {
						p.die(n)
					}
				}
				if !p.store.turn().State.Terminal() {
					p.run(t.Context())
				}
				p.sound(fmt.Sprintf("killed at points %d and %d", first, second))
			})
		}
	}
}

// TestStoppedAnywhere stops a worker at every point until another worker has taken over
// and ended the turn, and then resumes it.
func TestStoppedAnywhere(t *testing.T) {
	for _, pace := range paces {
		t.Run(pace.name, func(t *testing.T) { stoppedAnywhere(t, pace) })
	}
}

func stoppedAnywhere(t *testing.T, pace pace) {
	points := 0
	for woke := true; woke; points++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPlot(t, pace)
			woke = false
			where := fmt.Sprint("stopped at point ", points+1)
			p.fault = at("", points+1, func() {
				woke, p.fault = true, nil
				if !p.store.turn().State.Terminal() {
					p.run(t.Context())
				}
			})
			_, err := p.dispatch(t.Context())
			if woke && err != nil && !errors.Is(err, turnkeeper.ErrFenced) {
				t.Errorf("%s: it woke to %v", where, err)
			}
			p.sound(where)
			for _, late := range p.store.lateCalls {
				call := p.store.call(late.Key)
				if call.State == turnkeeper.CallUnknown && call.LateResult != "done" && call.Name == "send" {
					t.Errorf("%s: the late result of %s is lost", where, late.Key)
				}
			}
		})
	}
	if points < 40 {
		t.Errorf("only %d points were reached", points)
	}
}

// TestShutdownAnywhere ends the grace period of a shutdown at every point; the turn is
// handed back and another worker continues it.
func TestShutdownAnywhere(t *testing.T) {
	for _, pace := range paces {
		t.Run(pace.name, func(t *testing.T) { shutdownAnywhere(t, pace) })
	}
}

func shutdownAnywhere(t *testing.T, pace pace) {
	points := 0
	for hit := true; hit; points++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPlot(t, pace)
			ctx, cancel := context.WithCancelCause(t.Context())
			hit = false
			p.fault = at("", points+1, func() { hit = true; cancel(agentturn.ErrShutdown) })
			got, err := p.dispatch(ctx)
			where := fmt.Sprint("shut down at point ", points+1)
			if err != nil {
				t.Errorf("%s: %v", where, err)
			}
			p.fault = nil
			if got.State == turnkeeper.TurnQueued {
				p.run(t.Context())
			}
			p.sound(where)
		})
	}
}

// TestFaultPoints checks that FaultPoints lists every point, and that one turn and its
// recovery reach nearly all of them.
func TestFaultPoints(t *testing.T) {
	pace := paces[0]
	seen := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		p := newPlot(t, pace)
		hook := &trap{label: agentturn.PointChecked, n: 1, f: func() { runtime.Goexit() }}
		p.fault = hook
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.dispatch(t.Context())
		}()
		<-done
		hook.label = "none"
		p.run(t.Context())
		detached := newBench(t).with(far("remote", turnkeeper.EffectNone))
		detached.fault = hook
		claimed := turnlog.ClaimedCall{Limit: time.Hour, Left: time.Hour, Call: turnkeeper.ToolCall{Key: farKey,
			Name: "remote", Arguments: "{}"}}
		if _, err := detached.runner().RunDetached(t.Context(), claimed, &callBox{}); err != nil {
			t.Error(err)
		}
		asking := newBench(t, asks("pay"), says("Paid.")).with(once("pay").needsApproval())
		asking.fault = hook
		asking.waits()
		asking.answer(yes)
		asking.run(t.Context())
		probing := newBench(t, says("ok"), says("done")).inDoubt()
		probing.fault = hook
		probing.run(t.Context())
		for _, label := range hook.seen {
			seen[label] = true
		}
	})
	all := agentturn.FaultPoints()
	for label := range seen {
		if !slices.Contains(all, label) {
			t.Errorf("the point %s is not listed", label)
		}
	}
	for _, label := range all {
		if !seen[label] && label != agentturn.PointReconcile && label != agentturn.PointLate {
			t.Errorf("the point %s is not reached", label)
		}
	}
}
