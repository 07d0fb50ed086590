package agentturn

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/tools"
)

// maxParallel bounds how many calls of effect none run at once in a turn.
const maxParallel = 8

// execute runs the open calls in order: neighbours of effect none beside each
// other, the others one by one. Results are written with the next start, or
// before anything else is begun.
func (t *turn) execute(ctx context.Context) (state, error) {
	for open := t.open(); len(open) > 0; open = t.open() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := t.executeFirst(ctx, open); err != nil {
			return nil, err
		}
	}
	return t.decide, nil
}

// executeFirst brings the first of the open calls, or more, to an answer.
func (t *turn) executeFirst(ctx context.Context, open []*turnkeeper.ToolCall) error {
	call := open[0]
	tool, ok := t.offered.Get(call.Name)
	if !ok { // planned by a worker that had it
		t.answerMissing(call)
		return nil
	}
	if first, ok := repeated(t.callsUpTo(call.Key)); ok {
		result := textResult(call, turnkeeper.CallSkipped, repeatedResult(first))
		result.Preview = first.Preview
		t.answer(call, result)
		return nil
	}
	if isRead(call) {
		return t.runReads(ctx, t.reads(open))
	}
	spec, _ := t.offered.Spec(call.Name)
	if !t.timeFor(spec) {
		t.denyRest(open)
		return nil
	}
	if spec.Transactional {
		return t.runTransactional(ctx, call, tool, spec)
	}
	return t.runEffect(ctx, call, tool, spec)
}

// isRead says that a call needs no start on record.
func isRead(call *turnkeeper.ToolCall) bool {
	return call.Effect == turnkeeper.EffectNone && call.Starts == 0
}

// reads are the leading open calls that may run beside each other. One that
// repeats the call before it waits for that one's result.
func (t *turn) reads(open []*turnkeeper.ToolCall) []*turnkeeper.ToolCall {
	for i, call := range open {
		_, known := t.offered.Get(call.Name)
		if !known || !isRead(call) || i > 0 && !call.Paging && call.ArgsHash == lastHash(open[:i]) {
			return open[:i]
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

func (t *turn) callsUpTo(key turnkeeper.CallKey) []turnkeeper.ToolCall {
	var calls []turnkeeper.ToolCall
	for _, call := range t.calls() {
		if call.Key.Compare(key) <= 0 {
			calls = append(calls, call)
		}
	}
	return calls
}

// answerMissing answers a call whose tool the agent no longer has.
func (t *turn) answerMissing(call *turnkeeper.ToolCall) {
	if call.State != turnkeeper.CallPlanned { // its worker was lost, and it cannot be run again
		t.giveVerdict(call)
		return
	}
	t.answer(call, textResult(call, turnkeeper.CallDenied,
		"tool not found: "+call.Name+"\nIt was taken away after the call was planned. Nothing was run."))
}

// denyRest answers all open calls: the lease is too short for the first of
// them, and so the turn goes to its reply. Calls that a lost worker had started
// keep their doubt.
func (t *turn) denyRest(open []*turnkeeper.ToolCall) {
	t.log.Warn("not enough time left in this turn", zap.Stringer("call", open[0].Key),
		zap.String("tool", open[0].Name), zap.Duration("lease_left", time.Until(t.lease)), zap.Duration("margin", t.bounds.Margin))
	for _, call := range open {
		if call.State == turnkeeper.CallPlanned {
			t.answer(call, textResult(call, turnkeeper.CallDenied, shownNoTime))
		} else {
			t.giveVerdict(call)
		}
	}
}

// runReads runs calls of effect none, and leaves their results for the next
// write.
func (t *turn) runReads(ctx context.Context, calls []*turnkeeper.ToolCall) error {
	if t.next.Round != nil || t.owesResult() {
		if err := t.commit(ctx); err != nil {
			return err
		}
	}
	for _, call := range calls {
		t.tellStarted(call)
	}
	runs := make([]run, len(calls))
	var group sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i, call := range calls {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			runs[i] = t.runTool(ctx, call)
		})
	}
	group.Wait()
	t.at(ctx, PointReadsDone)
	for i, call := range calls {
		t.keep(call, runs[i], "")
	}
	return nil
}

// owesResult says that a result of an effect waits to be written.
func (t *turn) owesResult() bool {
	for _, result := range t.next.Results {
		if result.Nonce != "" {
			return true
		}
	}
	return false
}

// runEffect runs one call of effect keyed or once: start on record, time check,
// effect. Its result is left for the next write.
func (t *turn) runEffect(ctx context.Context, call *turnkeeper.ToolCall, tool tools.Tool, spec tools.Spec) error {
	if err := t.start(ctx, call); err != nil {
		return err
	}
	if !t.timeFor(spec) {
		t.answer(call, textResult(call, turnkeeper.CallFailed, shownNoTime)) // it certainly did not run
		if open := t.open(); len(open) > 0 {
			t.denyRest(open)
		}
		return nil
	}
	t.at(ctx, PointChecked)
	done := t.runTool(ctx, call)
	t.at(ctx, PointEffectDone)
	t.keep(call, done, call.Nonce)
	return nil
}

// start makes the start of a call durable, together with what else is owed.
func (t *turn) start(ctx context.Context, call *turnkeeper.ToolCall) error {
	t.told = len(t.next.Events)
	t.next.Starts = append(t.next.Starts, newStart(call))
	t.tellStarted(call)
	return t.commit(ctx)
}

// dropStarts takes back a start that could not be written: the call did not
// run, and must not look as if it had.
func (t *turn) dropStarts() {
	if len(t.next.Starts) > 0 {
		t.next.Starts, t.next.Events = nil, t.next.Events[:t.told]
	}
}

func newStart(call *turnkeeper.ToolCall) turnkeeper.CallStart {
	return turnkeeper.CallStart{Key: call.Key, Nonce: rand.Text(), Attempt: call.Starts + 1, Effect: call.Effect}
}

func (t *turn) tellStarted(call *turnkeeper.ToolCall) {
	t.event(turnkeeper.EventToolStarted, call.Key.Round, 0, ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
	})
}

// A run is one finished run of a tool.
type run struct {
	tools.Ending
	took time.Duration
}

// runTool runs the call's tool within its time. It may be called by several
// goroutines at once.
func (t *turn) runTool(ctx context.Context, call *turnkeeper.ToolCall) run {
	tool, _ := t.offered.Get(call.Name)
	spec, _ := t.offered.Spec(call.Name)
	options := tools.ExecuteOptions{Log: t.log}
	if timeout := t.timeout(spec); time.Until(t.wall) > timeout { // else the end of the turn ends it
		options.Timeout = timeout
	}
	name, key := call.Name, call.Key
	options.Late = func(late tools.Ending) {
		t.log.Warn("a tool that was left behind has returned",
			zap.String("tool", name), zap.Stringer("call", key), zap.String("outcome", string(late.Outcome)))
	}
	started := time.Now()
	ending := tools.Execute(ctx, tool, t.toolCall(call), options)
	return run{Ending: ending, took: time.Since(started)}
}

// keep keeps what a run ended with. One that was cut short by the end of the
// turn's context waits for what the turn makes of that.
func (t *turn) keep(call *turnkeeper.ToolCall, done run, nonce string) {
	result := t.take(call, done.Result)
	result.Nonce, result.Duration, result.Ran = nonce, done.took, !call.Paging
	switch done.Outcome {
	case tools.Succeeded:
		result.State = turnkeeper.CallSucceeded
	case tools.Cancelled:
		result.State = turnkeeper.CallCancelled
		t.interrupted[call.Key] = result
		return
	default:
		result.State = turnkeeper.CallFailed
	}
	t.answer(call, result)
}

// runTransactional runs a call inside the transaction that records it.
func (t *turn) runTransactional(ctx context.Context, call *turnkeeper.ToolCall, tool tools.Tool, spec tools.Spec) error {
	if t.next.Round != nil || t.owesResult() {
		if err := t.commit(ctx); err != nil {
			return err
		}
		if !t.timeFor(spec) {
			t.denyRest(t.open())
			return nil
		}
	}
	t.at(ctx, PointTransactEnter)
	start := newStart(call)
	var result turnkeeper.CallResult
	err := t.journal.Transact(ctx, start, func(ctx context.Context) turnkeeper.CallResult {
		done := t.runTool(ctx, call)
		result = t.take(call, done.Result)
		result.Nonce, result.Duration, result.Ran = start.Nonce, done.took, !call.Paging
		// Whatever did not succeed is undone, and so has failed.
		result.State = turnkeeper.CallFailed
		if done.Outcome == tools.Succeeded {
			result.State = turnkeeper.CallSucceeded
		}
		t.at(ctx, PointTransactRan)
		return result
	})
	if err != nil {
		return &journalError{err}
	}
	call.Starts, call.Nonce = start.Attempt, start.Nonce
	t.tellStarted(call)
	t.apply(call, result)
	t.at(ctx, PointTransactLeave)
	return nil
}
