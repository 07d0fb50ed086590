package agentturn

import (
	"context"
	"sync"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
)

// maxParallel bounds how many calls of effect none run at once in a turn.
const maxParallel = 8

// isRead says that a call needs no start on record.
func isRead(call *turnkeeper.ToolCall) bool {
	return call.Effect == turnkeeper.EffectNone && call.Starts == 0
}

// leadingReads returns the leading open calls that may run beside each other. One that
// repeats the call before it waits for that one's result, where its tool is guarded, and so does one with
// handles for whatever they may name.
func (l *ledger) leadingReads(open []*turnkeeper.ToolCall) []*turnkeeper.ToolCall {
	room := l.bounds.MaxToolCalls - l.rounds.executed()
	for i, call := range open {
		if !call.Paging {
			if room--; room < 0 {
				return open[:i]
			}
		}
		spec, known := l.offered.Spec(call.Name)
		if !known || spec.Detached || !isRead(call) || i > 0 && l.offered.HasHandles(call) || i > 0 && spec.Guarded() && call.ArgsHash == lastHash(open[:i]) {
			return open[:i]
		}
		if call.Name == turnkeeper.ToolWaitForToolOutput { // what comes after it may read what it waits for
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

// runReads runs calls of effect none, and leaves their results for the next
// write.
func (e *execution) runReads(ctx context.Context, calls []*turnkeeper.ToolCall) error {
	if e.pending.Round != nil || e.pending.hasEffect() || e.pending.hasOutput() {
		if err := e.commit(ctx); err != nil {
			return err
		}
	}
	for _, call := range calls {
		e.startEvent(call)
	}
	running, kill := context.WithCancelCause(ctx) // what goes on in the background goes on in it
	jobs := make([]*toolrun.Run, len(calls))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, call := range calls {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			jobs[i] = e.launch(running, call)
			<-e.longEnough(jobs[i])
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	err := e.until(ctx, done, kill)
	e.at(ctx, pointReadsDone)
	e.collect() // what one of the calls has waited for is written before it
	for i, call := range calls {
		if jobs[i].IsOver() {
			e.keep(call, jobs[i], "")
		} else {
			e.goOn(call, jobs[i])
		}
	}
	return err
}
