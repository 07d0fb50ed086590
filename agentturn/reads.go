package agentturn

import (
	"context"
	"slices"
	"sync"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
)

// maxParallel is the maximum number of calls of effect none that run at once in a turn.
const maxParallel = 8

// isRead reports whether a call runs without a recorded start.
func isRead(call *turnkeeper.ToolCall) bool {
	return call.Effect == turnkeeper.EffectNone && call.Starts == 0
}

// leadingReads returns the leading open calls that may run in parallel. It stops before a
// call that may be answered with the result of the one before it, and before a call with
// handles, which may name results of earlier calls, and before one that may need a person.
func (l *ledger) leadingReads(ctx context.Context, open []*turnkeeper.ToolCall) []*turnkeeper.ToolCall {
	room := l.bounds.MaxToolCalls - l.rounds.executed()
	for i, call := range open {
		if !call.Paging {
			if room--; room < 0 {
				return open[:i]
			}
		}
		spec, known := l.offered.Spec(call.Name)
		if !known || spec.Detached || spec.AsksInput || !isRead(call) || i > 0 && l.offered.HasHandles(call) || i > 0 && spec.Guarded() && call.ArgsHash == lastHash(open[:i]) {
			return open[:i]
		}
		if i > 0 && (rulings{l}).mayAsk(ctx, call) {
			return open[:i]
		}
		if call.Name == turnkeeper.ToolWaitForToolOutput { // later calls may read the results it waits for
			return open[:i+1]
		}
	}
	return open
}

func lastHash(calls []*turnkeeper.ToolCall) string {
	for i := len(calls) - 1; i >= 0; i-- {
		if !calls[i].Paging {
			return calls[i].ArgsHash
		}
	}
	return ""
}

// remember adds the start of a call to the next write, which also has its result, if the tool has a freshness window, because later
// turns look up starts, or if the call had handles, because starts record the arguments as run. It returns the start's nonce, or ""
// if it added none.
func (e *execution) remember(call *turnkeeper.ToolCall) string {
	spec, _ := e.offered.Spec(call.Name)
	start := approvals{e.ledger}.newStart(call)
	if _, checks := spec.ChecksEarlier(0); !checks && start.RunArgs == "" {
		return ""
	}
	e.pending.Starts = append(e.pending.Starts, start)
	call.Nonce, call.Starts = start.Nonce, start.Attempt
	start.SetArguments(call)
	return start.Nonce
}

// runReads runs calls of effect none in parallel. The results go into the next write.
func (e *execution) runReads(ctx context.Context, calls []*turnkeeper.ToolCall) error {
	if e.pending.Round != nil || e.pending.hasEffect() || e.pending.hasOutput() || slices.ContainsFunc(calls, (flows{e.ledger}).mustBeWritten) {
		if err := e.commit(ctx); err != nil {
			return err
		}
	}
	for _, call := range calls {
		e.startEvent(call)
	}
	running, kill := context.WithCancelCause(ctx) // not cancelled here: runs may continue in the background
	runs := make([]*toolrun.Run, len(calls))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, call := range calls {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			runs[i] = e.launch(running, call)
			<-e.overOrSlow(runs[i])
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	err := e.awaitDone(ctx, done, kill)
	e.at(ctx, pointReadsDone)
	e.collect() // the results that a call waited for are recorded before its own
	for i, call := range calls {
		if runs[i].IsOver() {
			e.recordRun(call, runs[i], e.remember(call))
		} else {
			e.toBackground(call, runs[i])
		}
	}
	return err
}
