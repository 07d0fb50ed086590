package agentturn

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/outputs"
)

// The states of an execution, and what comes after each:
//
//	recover   reconcile the calls that a lost worker had started   → ask, execute
//	ask       call the model                                       → plan
//	plan      check its calls and add the round to the next write  → execute
//	execute   run the open calls, in order                         → decide, finish (the turn waits)
//	decide    continue, wait or end                                → ask, finish
//	finish    answer the open calls and write the outcome
//
// Each write is one commit. A state that ends the loop sets end. If an error ends the
// loop, endings.endingOf sets it.

// An execution is the run of a turn under one dispatch. It decides what comes next, for the turn and for each call; its
// asker and its executor do it. They share the state of the turn. Only the goroutine of Runner.Run uses them.
type execution struct {
	*turnState
	asker    asker     // of the models
	executor executor  // of the calls
	round    openRound // the current round, for the Observer
	end      *ending   // set by the state that ends the loop
}

// A state does one step and returns the next state. nil ends the loop: end is set.
type state func(ctx context.Context) (state, error)

func newExecution(r *Runner, a Assignment, journal Journal) *execution {
	given := newTask(&r.cfg, a)
	made := prompt.NewState(a.Record, a.Definition, given.offered, &r.memory)
	known := newRoster(given)
	spent := newSpending(given, known)
	all := calls.New(a.Record, given.offered, given.labelsBefore())
	progress := toolrun.NewProgress()
	runs := &tooling{
		task: given, calls: all, progress: progress, sizes: made.Sizes, memory: r.cfg.ResultMemory.Account(),
		kept: &r.kept, leftBehind: &r.leftBehind, asker: &toolAsker{
			task: given, roster: known, spending: spent, questions: newQuestions(a.Record),
			searches: make(chan struct{}, extract.Parallel), progress: progress,
		},
	}
	runs.drafts, _ = journal.(toolrun.Drafts)
	s := &turnState{
		task: given, journal: journal, calls: all, progress: progress, dirty: dirtyIn(a.Record.Rounds),
		events: turnevents.New(a.Record.Turn.ID, a.Record.NextBlock),
		rules:  &rules{task: given, newest: a.Newest, retired: a.Retired, calls: all, toolCall: runs.asRuled},
	}
	e := &execution{
		turnState: s,
		asker: asker{turnState: s, prompt: made, spending: spent, models: &models{
			roster: known, log: given.log, cache: &r.counted, health: newModelHealth(a.Record),
			failures: a.Record.Failures,
		}},
		executor: executor{turnState: s, tooling: runs},
	}
	e.executor.early = &earlyReads{x: &e.executor, shows: made.HasCallID}
	return e
}

// runStates runs the states until one ends the loop. A panic becomes an error.
func (e *execution) runStates(ctx context.Context) (err error) {
	defer e.catchPanic(&err)
	e.at(ctx, PointStart)
	for next := state(e.recover); next != nil && err == nil; {
		next, err = next(e.round.within(ctx))
	}
	return err
}

// recover continues from the journal. Ended calls stay as they are. Planned calls, and
// started calls that may run again, are left to execute. The other started calls get a
// result here, before anything else happens.
func (e *execution) recover(ctx context.Context) (state, error) {
	e.openStream()
	e.see()
	e.pending.Labels = e.calls.Before
	for _, call := range e.calls.All() {
		e.executor.tooling.measure(ctx, call)
	}
	if len(e.calls.Rounds) == 0 {
		return e.ask, nil
	}
	for _, call := range e.calls.Unanswered() {
		if err := e.recoverCall(ctx, call); err != nil {
			return nil, err
		}
	}
	if len(e.pending.Verdicts) > 0 || len(e.pending.Results) > 0 {
		if err := e.commit(ctx); err != nil {
			return nil, err
		}
	}
	return e.execute, nil
}

// openStream adds the turn_start event, or those of a turn that continues.
func (e *execution) openStream() {
	turn := e.record.Turn
	if turn.LastSeq == 0 {
		data := turnevents.TurnStartData{Trigger: turn.Trigger, Agent: turn.Agent, Message: turn.MessageID,
			Attempt: turn.Attempt}
		if lineage := e.record.Lineage; lineage.Parent != 0 {
			data.Parent = &turnevents.ParentData{Turn: lineage.Parent, Call: lineage.Call.String(), Root: lineage.Root}
		}
		e.events.Event(turnkeeper.EventTurnStart, 0, 0, data)
		return
	}
	if e.record.OpenRound != 0 {
		e.events.Event(turnkeeper.EventRoundRollback, e.record.OpenRound, 0,
			turnevents.RollbackData{Reason: string(turnkeeper.StopWorkerLost)})
	}
	e.events.Event(turnkeeper.EventTurnResumed, 0, 0, turnevents.TurnResumedData{Dispatch: turn.Dispatches})
}

// ask makes the model call of the next round, after it has written what must be on record.
func (e *execution) ask(ctx context.Context) (state, error) {
	if e.pending.hasStep() && (!e.def.WritesBehind() || e.pending.mustRecord(e.calls)) {
		if err := e.commit(ctx); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx = e.round.enter(ctx, e.cfg.Observer, e.calls.Rounds, len(e.calls.Rounds)+1, false)
	a, err := e.asker.generate(ctx, e.executor.early)
	e.at(ctx, PointModelAfter)
	if blocked, ok := errors.AsType[*blockedError](err); ok && e.def.Budget.AsksOnLimit() && !e.finishing() {
		if asked, wrong := e.askToGoOn(ctx, blocked); asked || wrong != nil {
			return nil, wrong
		}
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (state, error) { return e.plan(ctx, a) }, nil
}

// plan turns an answer into a round: it checks every call and denies it, skips it, or
// plans it to run.
func (e *execution) plan(ctx context.Context, a modelAnswer) (state, error) {
	round := turnkeeper.Round{
		Number:       a.number,
		Provider:     outputs.Clean(a.Provider),
		Model:        outputs.Clean(a.Model),
		Attempts:     max(1, a.Attempts),
		Latency:      a.latency,
		FinishReason: outputs.Clean(a.FinishReason),
		Usage:        a.Usage.Add(e.sideUsage),
		Text:         outputs.Clean(a.Text),
		Reasoning:    outputs.Clean(a.Reasoning),
		Raw:          cleanRaw(a.Raw),
		EndedAt:      time.Now(),
	}
	e.dirty = false // the request reported all ended calls
	p := newPlanner(e.turnState, a, e.asker.prompt.HasCallID)
	for i, wire := range a.Calls {
		p.add(ctx, turnkeeper.CallKey{Round: a.number, Ordinal: i + 1}, wire)
	}
	for _, call := range p.made {
		round.Calls = append(round.Calls, *call.ToolCall)
	}
	e.pending.Gates = e.rules.gatesOf(ctx, p.made)
	if p.doubt != "" {
		e.executor.early.drop("the answer's calls are in doubt")
	}
	e.executor.early.settle(p.made)
	e.asker.keepRequest(&round, &a.sent)
	e.sideUsage = turnkeeper.Usage{}
	// Always charge the last round: if only paging calls made it free, another would follow.
	round.Charged = a.final() || !allPaging(round.Calls)
	e.add(round, p.made)
	e.at(ctx, PointPlanned)
	return e.execute, nil
}

// execute runs the open calls in order: adjacent calls of effect none in parallel, the
// others one at a time. Results are written with the next start, or as ask says.
func (e *execution) execute(ctx context.Context) (state, error) {
	// the round's answer came in an earlier dispatch
	if n := len(e.calls.Rounds); e.round.number != n && len(e.calls.Runnable()) > 0 {
		ctx = e.round.enter(ctx, e.cfg.Observer, e.calls.Rounds, n, true)
	}
	for open := e.calls.Runnable(); len(open) > 0; open = e.calls.Runnable() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		finishing := e.finishing()
		if finishing && e.executor.endCalls(calls.Finishing, open) {
			continue
		}
		wait, err := e.executor.awaitBlockers(ctx, open[0])
		if !wait && err == nil {
			wait, err = e.executor.mustWait(ctx, open[0])
		}
		if err != nil {
			return nil, err
		}
		if wait {
			e.end = e.waiting()
			return nil, nil
		}
		if e.finishing() && !finishing {
			continue
		}
		if err := e.executeFirst(ctx, open); err != nil || e.end != nil {
			return nil, err
		}
	}
	return e.decide, nil
}

// recoverCall answers a call that a lost worker had started, unless it is left to execute.
func (e *execution) recoverCall(ctx context.Context, call *calls.Call) error {
	call.Begin()
	turn := calls.Turn{Phase: calls.Recovering, Settles: e.def.Settles()}
	step := call.Next(turn)
	if step.Do == calls.Reconcile {
		result, known := e.executor.reconcile(ctx, call)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if known {
			e.answer(call, result)
			return nil
		}
		call.Reconciled()
		step = call.Next(turn)
	}
	e.executor.endCall(call, step)
	return nil
}

// executeFirst gets the first of the open calls answered, and possibly more of them, or
// ends the loop to wait for a person.
func (e *execution) executeFirst(ctx context.Context, open []*calls.Call) error {
	call, x := open[0], &e.executor
	call.Begin()
	turn := e.calls.Turn(call)
	for {
		turn.Time, turn.Settles = e.clock.timeFor(call.Spec), e.def.Settles()
		switch step := call.Next(turn); step.Do {
		case calls.Resolve:
			if err := x.resolve(ctx, call); err != nil {
				return err
			}
			turn = e.calls.Turn(call)
		case calls.Rule:
			e.rules.rule(ctx, call)
		case calls.Recheck:
			e.rules.recheck(ctx, call)
		case calls.Ask:
			e.putAll(ctx, call, step.Question)
			return e.waitForPerson(ctx)
		case calls.Wait:
			return e.waitForPerson(ctx)
		case calls.Spawn:
			return x.spawn(ctx, call)
		case calls.Detach:
			return x.detach(ctx, call)
		case calls.Read:
			return x.runReads(ctx, open)
		case calls.Run:
			return x.runEffect(ctx, call)
		case calls.Transact:
			return x.runTransactional(ctx, call)
		case calls.Resume:
			return x.resume(ctx, call)
		case calls.Rerun:
			return x.rerun(ctx, call)
		case calls.NoTime:
			x.denyRest(open)
			return nil
		default:
			x.endCall(call, step)
			return nil
		}
	}
}

// decide continues, suspends or ends the turn once every call of the newest round is
// answered.
func (e *execution) decide(ctx context.Context) (state, error) {
	e.executor.early.drop("the call was answered otherwise")
	if err := e.executor.takeCompleted(ctx); err != nil {
		return nil, err
	}
	e.executor.collect()
	if e.finishing() {
		e.executor.stopReads()
	}
	if waits, err := e.executor.awaitReplies(ctx); waits || err != nil {
		if waits {
			e.end = e.waiting()
		}
		return nil, err
	}
	last := e.calls.Rounds[len(e.calls.Rounds)-1]
	end, outlast := e.endings().endAfter(last)
	if end == nil {
		return e.continueFrom(ctx, last)
	}
	if err := e.executor.awaitRuns(ctx, len(last.Calls) > 0); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(e.calls.Detached(), outlast) {
		end = e.waiting
	} else if len(last.Calls) == 0 && len(unreportedEffects(e.calls.Rounds)) > 0 && !e.calls.UsedUp() {
		e.log.Info("a call with an effect ended after the answer; asking the model once more",
			zap.Int("round", last.Number+1))
		return e.ask, nil
	}
	e.end = end()
	return nil, nil
}

func noCall(*calls.Call) bool { return false }

func anyCall(*calls.Call) bool { return true }

// continueFrom asks the model again as soon as there is something new for it, or, in a turn that is to finish, as soon
// as nothing runs. Until then it blocks for background calls. If only detached calls run, the turn waits as a row.
func (e *execution) continueFrom(ctx context.Context, last turnkeeper.Round) (state, error) {
	for nextMove(e.calls.Rounds, e.dirty) == moveWait || e.finishing() && e.calls.Any(isRunning) {
		if len(e.calls.Runs()) == 0 {
			e.end = e.waiting()
			return nil, nil
		}
		if err := e.executor.awaitRun(ctx); err != nil {
			return nil, err
		}
		if err := e.executor.takeCompleted(ctx); err != nil {
			return nil, err
		}
	}
	e.log.Info("tool continuation started",
		zap.Int("round", last.Number+1), zap.Int("calls", len(last.Calls)))
	return e.ask, nil
}

// finish writes the outcome together with everything not yet written. A panic becomes an
// error.
func (e *execution) finish(ctx context.Context, end ending) (outcome turnlog.Outcome, err error) {
	defer e.catchPanic(&err)
	if e.pending.dropStarts() { // before the events of the end are added
		e.events.Rewind()
	}
	e.pending.Inputs = nil // of calls that have not gone on
	e.executor.stopRuns(errOver)
	switch end.state {
	case turnkeeper.TurnWaiting: // only detached calls are open, or the turn waits for a model
	case turnkeeper.TurnQueued:
		e.executor.endCalls(calls.HandingBack, e.calls.Unanswered())
	default:
		e.executor.closeDetached(ctx)
		e.executor.endCalls(calls.Closing, e.calls.Unanswered())
	}
	e.asker.endStream()
	switch models := end.outcome.WaitsFor; {
	case end.state == turnkeeper.TurnWaiting && len(models) > 0:
		data := turnevents.WaitingFor(waiting.ModelDown)
		data.Models = models
		e.events.Event(turnkeeper.EventTurnWaiting, 0, 0, data)
	case end.state == turnkeeper.TurnQueued && end.outcome.Backoff > 0 && end.outcome.ErrorClass == classBudget:
		e.events.Event(turnkeeper.EventTurnWaiting, 0, 0, turnevents.WaitingFor(waiting.BudgetSpent))
	}
	e.writeSideUsage()
	outcome = e.endings().outcome(end)
	if end.state.Terminal() {
		e.events.Event(endEvent(end.state), 0, 0, turnevents.TurnEndData{
			State: outcome.State, StopReason: outcome.StopReason, Rounds: len(e.calls.Rounds),
			Calls: len(e.calls.All()),
			Reply: outcome.Reply, Retry: outcome.Retry,
		})
	}
	e.pending.Outcome = &outcome
	if err := e.commit(ctx); err != nil {
		return turnlog.Outcome{}, err
	}
	e.endings().logEnd(outcome)
	return outcome, nil
}

// unwritable returns the error after which no outcome can be written, if err or the cause
// of ctx is one, else nil.
func unwritable(ctx context.Context, err error) error {
	if errors.Is(err, turnkeeper.ErrFenced) || errors.Is(context.Cause(ctx), turnkeeper.ErrFenced) {
		return turnkeeper.ErrFenced
	}
	if errors.Is(err, turnkeeper.ErrJournalMoved) {
		return err
	}
	// A write that failed because ctx has ended does not prevent the end of the turn:
	// that write outlives ctx.
	if _, ok := errors.AsType[*journalError](err); ok && ctx.Err() == nil {
		return err
	}
	return nil
}

// reportLate reports the results of tools that could not be written, if the lease is lost or the
// journal has moved. It returns err.
func (e *execution) reportLate(ctx context.Context, err error) error {
	e.executor.stopRuns(errOver)
	fenced := errors.Is(err, turnkeeper.ErrFenced)
	if !fenced && !errors.Is(err, turnkeeper.ErrJournalMoved) {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
	defer stop()
	for _, result := range e.pending.Results {
		if result.Nonce == "" || !result.Ran {
			continue
		}
		e.at(ctx, PointLate)
		e.executor.tooling.inline(&result)
		if err := e.journal.Late(ctx, result); err != nil {
			e.log.Error("cannot store a late tool result; it is lost", zap.Stringer("call", result.Key), zap.Error(err))
		}
	}
	if fenced {
		return turnkeeper.ErrFenced
	}
	return err
}

// lateTime is the timeout for reporting all late results.
const lateTime = 5 * time.Second
