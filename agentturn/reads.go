package agentturn

import (
	"context"
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/toolrun"
)

// maxParallel is the maximum number of calls of effect none that run at once in a turn.
const maxParallel = 8

// leadingReads returns the leading open calls that may run in parallel with the first of them.
func (x *executor) leadingReads(ctx context.Context, open []*calls.Call) []*calls.Call {
	for i, call := range open {
		if i > 0 && !x.joins(ctx, call, open[:i]) {
			return open[:i]
		}
	}
	return open
}

// joins reports whether a call may run together with the reads before it. It does not if it may be answered with the
// result of the one before it, if it has handles, which may name results of earlier calls, if it may need a person, and
// if it may read the results that the one before it waits for.
func (x *executor) joins(ctx context.Context, call *calls.Call, reads []*calls.Call) bool {
	if n := len(reads); n > 0 && reads[n-1].Name == turnkeeper.ToolWaitForToolOutput {
		return false
	}
	if call.Handles || call.Spec.Guarded() && call.ArgsHash == lastHash(reads) {
		return false
	}
	turn := x.calls.Turn(call)
	for _, read := range reads {
		if !read.Paging {
			turn.Left--
		}
	}
	step := call.Next(turn)
	if step.Do == calls.Rule {
		x.rules.rule(ctx, call)
		step = call.Next(turn)
	}
	return step.Do == calls.Read
}

func lastHash(before []*calls.Call) string {
	for _, call := range slices.Backward(before) {
		if !call.Paging {
			return call.ArgsHash
		}
	}
	return ""
}

// remember adds the start of a call to the next write, which also has its result, if the tool has a freshness window,
// because later turns look up starts, or if the call had handles, because starts record the arguments as run. It
// returns the start's nonce, or "" if it added none.
func (x *executor) remember(call *calls.Call) string {
	start := newStart(call)
	if _, checks := call.Spec.ChecksEarlier(0); !checks && start.RunArgs == "" {
		return ""
	}
	x.pending.Starts = append(x.pending.Starts, start)
	call.Nonce, call.Starts = start.Nonce, start.Attempt
	start.SetArguments(call.ToolCall)
	return start.Nonce
}

// mustWriteFirst reports whether what waits to be written must be on record before reads start.
func (x *executor) mustWriteFirst(reads ...*calls.Call) bool {
	return x.pending.hasEffect() || x.pending.hasOutput() || !x.def.WritesBehind() ||
		slices.ContainsFunc(reads, x.rules.seeLabels)
}

// runReads runs the leading open calls, which are of effect none, in parallel. The results go into the next write.
func (x *executor) runReads(ctx context.Context, open []*calls.Call) error {
	reads := x.leadingReads(ctx, open)
	if x.mustWriteFirst(reads...) {
		if err := x.commit(ctx); err != nil {
			return err
		}
	}
	for _, call := range reads {
		x.startEvent(call)
	}
	running, kill := context.WithCancelCause(ctx) // not cancelled here: runs may continue in the background
	runs := make([]*toolrun.Run, len(reads))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, call := range reads {
		if runs[i] = x.early.take(running, call); runs[i] != nil {
			slots <- struct{}{}
		}
	}
	for i, call := range reads {
		if runs[i] == nil {
			if runs[i] = x.tooling.keptRun(call); runs[i] != nil {
				continue
			}
		}
		group.Go(func() {
			if runs[i] == nil {
				slots <- struct{}{}
				runs[i] = x.tooling.launch(running, call)
			}
			defer func() { <-slots }()
			<-x.tooling.overOrSlow(call, runs[i])
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	err := x.awaitDone(ctx, done, kill)
	x.at(ctx, pointReadsDone)
	x.collect() // the results that a call waited for are recorded before its own
	for i, call := range reads {
		if runs[i].IsOver() {
			x.recordRun(call, runs[i], x.remember(call))
		} else {
			x.toBackground(call, runs[i])
		}
	}
	return err
}
