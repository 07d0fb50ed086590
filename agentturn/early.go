package agentturn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/tools"
)

// A call of a tool that allows it (tools.Spec.Early) may start while the answer that asks for it still streams. It is
// decided as after the answer: the planner plans the calls that have come whole, and one starts if it would join the
// reads that run first. Nothing may have to be written before, so no rule and no sink looks at it; and every call
// before it is such a read too. Whatever else the answer has is not considered.
//
// Until the answer stands, the run is only known here. Then it is taken where the call would have begun, if the call
// is still the same. Otherwise it is cancelled, and its result thrown away.

// earlyReads are the calls of a turn that have started while the answer that asks for them streams. Only the
// execution's goroutine uses it.
type earlyReads struct {
	x       *executor
	shows   func(id string) bool // see planner
	ctx     context.Context      //nolint:containedctx // of the round, for the runs
	plan    *planner             // of the answer that streams; nil: no call of it may start any more
	number  int                  // of its round
	parts   []*heardCall         // its calls so far
	planned int                  // number of them that were planned
	reads   []*calls.Call        // the planned ones that will run
	runs    []*earlyRun          // in the order of their calls
	dropped []*toolrun.Run       // cancelled ones
}

// A heardCall is a call of an answer that streams.
type heardCall struct {
	name, args strings.Builder
	done       bool
}

// An earlyRun is a run that began while its answer streamed.
type earlyRun struct {
	call *calls.Call // as the answer had it then
	run  *toolrun.Run

	stands  chan struct{}        // closed when the answer stands and the call is run
	wireID  string               // of the call; set before stands is closed
	outputs func() tools.Outputs // returns what the call can read
	stored  tools.Outputs        // likewise, set before stands is closed; nil: nothing

	mu     sync.Mutex
	report func(text string) // reports progress
	held   []string          // the newest report, until the answer stands
	passes bool              // reports are passed on
}

var errUnused = errors.New("the answer that asked for it was not used")

// begin begins to listen to another answer. What the one before has started is thrown away.
func (r *earlyReads) begin(ctx context.Context, a modelAnswer) {
	r.drop("the answer was not used")
	r.plan, r.parts, r.planned, r.reads = nil, nil, 0, nil
	if a.final() || !r.x.def.WritesBehind() || !slices.ContainsFunc(r.x.offered.Specs(), func(s tools.Spec) bool {
		return s.Early
	}) {
		return
	}
	r.ctx, r.number, r.plan = ctx, a.number, newPlanner(r.x.turnState, a, r.shows)
}

// heard takes a delta of the answer.
func (r *earlyReads) heard(d inference.Delta) {
	if r.plan == nil || d.Kind != inference.DeltaTool {
		return
	}
	if d.Index == len(r.parts) {
		r.parts = append(r.parts, &heardCall{})
	}
	if d.Index < 0 || d.Index >= len(r.parts) || r.parts[d.Index].done && d.Name+d.Text != "" {
		r.plan = nil // the provider is wrong about its calls
		return
	}
	part := r.parts[d.Index]
	part.name.WriteString(d.Name)
	part.args.WriteString(d.Text)
	part.done = part.done || d.Done
	for r.plan != nil && r.planned < len(r.parts) && r.parts[r.planned].done {
		r.planned++
		if !r.consider(r.planned, r.parts[r.planned-1]) {
			r.plan = nil
		}
	}
}

// consider plans a call, and starts it if it may. It reports whether calls after it may start too.
func (r *earlyReads) consider(ordinal int, part *heardCall) bool {
	x, ctx := r.x, r.ctx
	call, fault := r.plan.read(turnkeeper.CallKey{Round: r.number, Ordinal: ordinal},
		inference.Call{Name: part.name.String(), Arguments: part.args.String()})
	if call.Effect != turnkeeper.EffectNone || r.plan.looksBack(call) || x.mustWriteFirst(call) {
		return false
	}
	if r.plan.decide(ctx, call, fault); call.State.Answered() {
		return true // it does not run
	}
	if ctx.Err() != nil || x.finishing() || !x.joins(ctx, call, r.reads) {
		return false
	}
	r.reads = append(r.reads, call)
	r.dropped = slices.DeleteFunc(r.dropped, (*toolrun.Run).IsOver)
	if call.Spec.Early && x.tooling.keptFor(call) == nil && len(r.runs)+len(r.dropped) < maxParallel {
		r.runs = append(r.runs, x.tooling.launchEarly(ctx, call))
	}
	return true
}

// settle throws away the runs of calls that the answer does not have, or that do not run. made are its calls.
func (r *earlyReads) settle(made []*calls.Call) {
	r.plan = nil
	for _, e := range slices.Clone(r.runs) {
		if i := e.call.Key.Ordinal - 1; i >= len(made) || !e.fits(made[i]) {
			r.discard(e, "the answer has another call in its place")
		}
	}
}

// take returns the run of a call that is to run now, or nil if none has begun. The run ends with ctx.
func (r *earlyReads) take(ctx context.Context, call *calls.Call) *toolrun.Run {
	i := slices.IndexFunc(r.runs, func(e *earlyRun) bool { return e.call.Key == call.Key })
	switch {
	case i < 0:
		return nil
	case !r.runs[i].fits(call) || r.runs[i].run.IsOver(): // if it is over, it was cancelled
		r.discard(r.runs[i], "the call is no longer the same")
		return nil
	}
	e := r.runs[i]
	r.runs = slices.Delete(r.runs, i, i+1)
	e.run.Call, e.run.Since = *call.ToolCall, time.Now()
	e.run.Within(ctx)
	e.stand(call.WireID)
	return e.run
}

// drop throws all runs away.
func (r *earlyReads) drop(why string) {
	r.plan = nil
	for len(r.runs) > 0 {
		r.discard(r.runs[0], why)
	}
}

// discard throws a run away.
func (r *earlyReads) discard(e *earlyRun, why string) {
	r.runs = slices.DeleteFunc(r.runs, func(other *earlyRun) bool { return other == e })
	r.dropped = append(r.dropped, e.run)
	e.run.Cancel(errUnused)
	r.x.log.Debug("a read that had started before its answer was complete is thrown away",
		zap.Stringer("call", e.call.Key), zap.String("tool", e.call.Name), zap.String("reason", why))
}

// end waits for the runs that were thrown away. None takes longer than a tool may take to return.
func (r *earlyReads) end() {
	for _, run := range r.dropped {
		<-run.Over()
	}
}

// launchEarly starts a run of a call whose answer is not complete.
func (w *tooling) launchEarly(ctx context.Context, call *calls.Call) *earlyRun {
	e, used := &earlyRun{call: call, stands: make(chan struct{})}, &toolrun.Meter{}
	asked, options := w.toolCall(call, nil, used), w.executeOptions(call)
	options.Collect = tools.Collect // nothing is stored of a result that may be thrown away
	e.report, asked.Progress, asked.Sample = asked.Progress, e.progress, e.sample(asked.Sample)
	if e.outputs = func() tools.Outputs { return w.outputs(used) }; w.task.cfg.Outputs != nil {
		asked.Outputs = e
	}
	e.run = w.start(ctx, call, newOutputID(call), w.runOf(call, asked, options, used, e))
	return e
}

// fits reports whether the run is one of the call, which is to run.
func (e *earlyRun) fits(call *calls.Call) bool {
	return call.State == turnkeeper.CallPlanned && call.Name == e.call.Name && call.Reads() && !call.Gate &&
		string(call.Args()) == e.call.Arguments
}

// stand makes the run that of a call of the turn.
func (e *earlyRun) stand(wireID string) {
	e.wireID, e.stored = wireID, e.outputs()
	e.mu.Lock()
	for _, text := range e.held {
		e.report(text)
	}
	e.passes = true
	e.mu.Unlock()
	close(e.stands)
}

// await waits until the answer stands. It returns an error if the run ends before that.
func (e *earlyRun) await(ctx context.Context) error {
	select {
	case <-e.stands:
	case <-ctx.Done():
		if !isReady(e.stands) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// progress reports progress once the answer stands.
func (e *earlyRun) progress(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.passes {
		e.report(text)
	} else {
		e.held = []string{text}
	}
}

// sample returns a function that asks a model once the answer stands.
func (e *earlyRun) sample(ask func(context.Context, tools.Sampling) (tools.Sampled, error)) func(context.Context,
	tools.Sampling) (tools.Sampled, error) {
	return func(ctx context.Context, s tools.Sampling) (tools.Sampled, error) {
		if err := e.await(ctx); err != nil {
			return tools.Sampled{}, err
		}
		return ask(ctx, s)
	}
}

// Find reads an output once the answer stands.
func (e *earlyRun) Find(ctx context.Context, id string) (o tools.Output, found bool, err error) {
	if err := e.await(ctx); err != nil {
		return o, false, err
	}
	return e.stored.Find(ctx, id)
}

// Wait waits for background calls once the answer stands.
func (e *earlyRun) Wait(ctx context.Context) (done []tools.Finished, any bool, err error) {
	if err := e.await(ctx); err != nil {
		return nil, false, err
	}
	return e.stored.Wait(ctx)
}
