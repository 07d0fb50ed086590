package agentturn

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/outputs"
)

// The states of an execution, and what comes after each:
//
//	recover   take up the journal: settle what a lost worker left   → ask, execute
//	ask       call the model                                        → plan
//	plan      check what it asks for; the round goes into the next write → execute
//	execute   run the open calls, in order                          → decide, or the turn waits
//	decide    go on, wait, or end                                   → ask, or finish
//	finish    answer what is open and write the outcome
//
// Each write is one commit. A state that ends the loop sets end; an error that stops it
// is made an ending by endings.endingOf.

// An execution is one grant's run of a turn. Its fields belong to the goroutine that runs
// it.
type execution struct {
	*ledger
	journal    Journal
	prompt     *prompt.State      // makes the requests
	models     *models            // answers them
	stream     *transcript.Stream // of the model call under way; nil: none
	background toolrun.Set        // calls that go on in the background
	round      openRound          // that the execution is in, for the Observer
	stillUntil time.Time          // until then it stands still for replies of sub-agents
	end        *ending            // set by the state that ends the loop
}

// A state does one thing and says what comes next. nil: the turn's end is
// decided.
type state func(ctx context.Context) (state, error)

func newExecution(r *Runner, a Assignment, journal Journal) *execution {
	cfg := r.cfg
	bounds := a.Bounds
	if bounds == (turnkeeper.Bounds{}) {
		bounds = a.Definition.Bounds(cfg.Bounds)
	}
	now := time.Now()
	given := &task{
		cfg: cfg, record: a.Record, def: a.Definition, bounds: bounds, log: cfg.Log.With(TurnFields(a.Record.Turn, a.Record.Message.TraceParent)...),
		began: now, loaded: now, wall: a.WallDeadline, lease: a.LeaseDeadline, searches: make(chan struct{}, extract.Parallel), leftBehind: &r.leftBehind,
	}
	if given.wall.IsZero() {
		given.wall = now.Add(bounds.MaxDuration - a.Record.Elapsed)
	}
	if given.lease.IsZero() {
		given.lease = now.Add(a.Record.Remaining)
	}
	given.offered = prompt.Offer{
		Registry: withSpawn(offered(cfg, a.Definition, bounds), given.spawnable(), cfg.Agents), Bounds: bounds, Stored: cfg.Outputs != nil,
	}
	made := prompt.NewState(a.Record, a.Definition, given.offered, &r.learned)
	t := &execution{
		ledger: &ledger{
			task: given, progress: toolrun.NewProgress(), events: transcript.New(a.Record.Turn.ID, a.Record.NextBlock), sizes: made.Sizes,
			interrupted: map[turnkeeper.CallKey]turnkeeper.CallResult{},
			subAgents:   map[turnkeeper.CallKey]*transcript.SubAgentData{},
			dirty:       dirtyIn(a.Record.Rounds),
		},
		journal: journal, prompt: made, models: &models{task: given, cache: &r.counted, health: newModelHealth(a.Record)}, background: toolrun.Set{},
	}
	for _, round := range a.Record.Rounds {
		round.Calls = slices.Clone(round.Calls)
		t.rounds = append(t.rounds, round)
	}
	return t
}

// run drives the states, and turns whatever stopped them into an outcome.
func (t *execution) run(ctx context.Context) (turnkeeper.Outcome, error) {
	err := t.guard(func() (err error) {
		t.at(ctx, PointStart)
		for next := state(t.recover); next != nil && err == nil; {
			next, err = next(t.round.within(ctx))
		}
		return err
	})
	if fatal := unwritable(ctx, err); fatal != nil {
		return turnkeeper.Outcome{}, t.leave(ctx, fatal)
	}
	if err != nil {
		t.end = t.endings().endingOf(ctx, err)
	}
	var outcome turnkeeper.Outcome
	err = t.guard(func() (err error) {
		outcome, err = t.finish(ctx, *t.end)
		return err
	})
	if err != nil {
		return turnkeeper.Outcome{}, t.leave(ctx, err)
	}
	return outcome, nil
}

// recover goes on from what the journal says. Calls that are finished stay as
// they are; planned ones, and started ones that may run again, are left to
// execute; the others are settled here, before anything is built on them.
func (t *execution) recover(ctx context.Context) (state, error) {
	t.announce()
	for _, call := range t.rounds.all() {
		t.measure(ctx, call, t.sizes)
	}
	if len(t.rounds) == 0 {
		return t.ask, nil
	}
	for _, call := range t.rounds.open() {
		if call.State == turnkeeper.CallPlanned || call.Effect.Repeatable() {
			continue
		}
		result, known := t.reconcile(ctx, call)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if known {
			t.answer(call, result)
		} else {
			t.giveVerdict(call)
		}
	}
	if len(t.pending.Verdicts) > 0 || len(t.pending.Results) > 0 {
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	return t.execute, nil
}

// ask makes the model call of the next round.
func (t *execution) ask(ctx context.Context) (state, error) {
	if t.pending.Round != nil || len(t.pending.Results) > 0 {
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx = t.round.enter(ctx, t.cfg.Observer, t.rounds, len(t.rounds)+1, false)
	a, err := t.generate(ctx)
	t.at(ctx, PointModelAfter)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (state, error) { return t.plan(ctx, a) }, nil
}

// plan turns an answer into a round: it checks every call and denies it, skips it, or
// plans it to run. The round becomes durable before any of its calls runs.
func (t *execution) plan(ctx context.Context, a answer) (state, error) {
	round := turnkeeper.Round{
		Number:       a.number,
		Provider:     outputs.Clean(a.Provider),
		Model:        outputs.Clean(a.Model),
		Attempts:     max(1, a.Attempts),
		Latency:      a.latency,
		FinishReason: outputs.Clean(a.FinishReason),
		Usage:        a.Usage.Add(t.models.sideUsage),
		Text:         outputs.Clean(a.Text),
		Reasoning:    outputs.Clean(a.Reasoning),
		Raw:          cleanRaw(a.Raw),
		EndedAt:      time.Now(),
	}
	t.dirty = false // the request of this answer told everything
	p := t.newPlanner(a)
	for i, wire := range a.Calls {
		p.add(ctx, turnkeeper.CallKey{Round: a.number, Ordinal: i + 1}, wire)
	}
	round.Calls = p.all[p.first:]
	round.Recipe, t.pending.Parts = &a.sent.Recipe, t.prompt.Unwritten(a.sent.Parts)
	t.pending.Summary, t.models.sideUsage = t.prompt.TakeSummary(), turnkeeper.Usage{}
	// The last round is charged whatever it asks for, so that it stays the last.
	round.Charged = a.final || !allPaging(round.Calls)
	t.add(round)
	t.at(ctx, PointPlanned)
	return t.execute, nil
}

// execute runs the open calls in order: adjacent calls of effect none in parallel, the
// others one at a time. Results are written with the next start, or before anything
// else begins.
func (t *execution) execute(ctx context.Context) (state, error) {
	if n := len(t.rounds); t.round.number != n && len(t.runnable()) > 0 { // the round's answer came in an earlier dispatch
		ctx = t.round.enter(ctx, t.cfg.Observer, t.rounds, n, true)
	}
	for open := t.runnable(); len(open) > 0; open = t.runnable() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		wait, err := t.awaitHolders(ctx, open[0])
		if !wait && err == nil {
			wait, err = t.mustWait(ctx, open[0])
		}
		if err != nil {
			return nil, err
		}
		if wait {
			t.end = t.waiting()
			return nil, nil
		}
		if err := t.executeFirst(ctx, open); err != nil {
			return nil, err
		}
	}
	return t.decide, nil
}

// executeFirst gets the first of the open calls answered, and possibly more of them.
func (t *execution) executeFirst(ctx context.Context, open []*turnkeeper.ToolCall) error {
	call := open[0]
	spec, ok := t.offered.Spec(call.Name)
	if !ok { // planned by a worker that had the tool
		t.answerMissing(call)
		return nil
	}
	if first, ok := t.repeated(t.rounds.upTo(call.Key)); ok {
		result := textResult(call, turnkeeper.CallSkipped, repeatedResult(first))
		result.Preview = first.Preview
		t.answer(call, result)
		return nil
	}
	if call.State == turnkeeper.CallPlanned && !call.Paging && t.bounds.MaxToolCalls-t.rounds.executed() < 1 {
		t.answer(call, textResult(call, turnkeeper.CallDenied, shownOverCalls(t.bounds)))
		return nil
	}
	if spec.Detached && t.offered.HasHandles(call) {
		return t.refuse(call, shownNoHandles, nil)
	}
	if refused, err := t.resolve(ctx, call); err != nil || refused != "" {
		return t.refuse(call, refused, err)
	}
	if call.Name == turnkeeper.ToolSpawnAgent {
		return t.spawn(ctx, call)
	}
	if spec.Detached {
		return t.detach(ctx, call, spec)
	}
	if call.State == turnkeeper.CallRunning {
		return t.rerun(ctx, call, spec)
	}
	if isRead(call) {
		return t.runReads(ctx, t.leadingReads(open))
	}
	if !t.timeFor(spec) {
		t.denyRest(open)
		return nil
	}
	if spec.Transactional {
		return t.runTransactional(ctx, call, spec)
	}
	return t.runEffect(ctx, call, spec)
}

// decide says how the turn goes on when every call of the newest round is
// answered.
func (t *execution) decide(ctx context.Context) (state, error) {
	if err := t.takeCompleted(ctx); err != nil {
		return nil, err
	}
	t.collect()
	if waits, err := t.awaitReplies(ctx); waits || err != nil {
		if waits {
			t.end = t.waiting()
		}
		return nil, err
	}
	last := t.rounds[len(t.rounds)-1]
	end, outlast := t.endAfter(last)
	if end == nil {
		return t.goOnFrom(ctx, last)
	}
	if len(last.Calls) == 0 && len(t.background) > 0 { // the answer is not lost with the worker
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.awaitJobs(ctx, len(last.Calls) > 0); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(t.rounds.detached(), outlast) {
		end = t.waiting
	} else if len(last.Calls) == 0 && len(unreportedEffects(t.rounds)) > 0 && !t.rounds.usedUp(t.bounds) {
		t.log.Info("a call with an effect has ended after the answer; the model is asked once more", zap.Int("round", last.Number+1))
		return t.ask, nil
	}
	t.end = end()
	return nil, nil
}

// endAfter makes the turn's end, if the newest round is its last; else it is nil.
// outlast picks the calls detached that the end waits for: a summary tells
// of all of them, and an answer does not cut an effect in two.
func (t *ledger) endAfter(last turnkeeper.Round) (end func() *ending, outlast func(*turnkeeper.ToolCall) bool) {
	switch {
	case len(last.Calls) == 0:
		return func() *ending { return t.endings().answered(last) }, hasEffect
	case anyRefused(last.Calls, prompt.ShownNoTime):
		return func() *ending { return t.endings().capped(turnkeeper.StopMaxDuration) }, noCall
	case !t.bounds.Continuation && !t.rounds.overLimit():
		return func() *ending { return t.endings().single(last) }, anyCall
	case !t.bounds.Continuation, t.rounds.usedUp(t.bounds), announcedLast(last):
		return func() *ending { return t.endings().capped(t.rounds.lastStop()) }, anyCall
	default:
		return nil, nil
	}
}

func noCall(*turnkeeper.ToolCall) bool { return false }

func anyCall(*turnkeeper.ToolCall) bool { return true }

// hasEffect picks what would be in doubt if it were stopped on its way. A
// sub-agent's own turn keeps the record of what it has done.
func hasEffect(call *turnkeeper.ToolCall) bool {
	return call.Effect != turnkeeper.EffectNone && !isSpawn(*call)
}

// goOnFrom calls the model again as soon as it has something new to see. For what
// runs here the turn stands still; for what is detached alone it waits, and
// holds nothing.
func (t *execution) goOnFrom(ctx context.Context, last turnkeeper.Round) (state, error) {
	for nextMove(t.rounds, t.dirty) == moveWait {
		if len(t.background) == 0 {
			t.end = t.waiting()
			return nil, nil
		}
		if err := t.awaitJob(ctx); err != nil {
			return nil, err
		}
		if err := t.takeCompleted(ctx); err != nil {
			return nil, err
		}
	}
	t.log.Info("tool continuation started",
		zap.Int("round", last.Number+1), zap.Int("calls", len(last.Calls)))
	return t.ask, nil
}

// finish writes the outcome together with everything not yet written.
func (t *execution) finish(ctx context.Context, e ending) (turnkeeper.Outcome, error) {
	if t.pending.dropStarts() { // before the events of the end are added
		t.events.Rewind()
	}
	t.stopJobs(errOver)
	switch e.state {
	case turnkeeper.TurnWaiting: // nothing is open here
	case turnkeeper.TurnQueued:
		t.handBack()
	default:
		t.closeDetached(ctx)
		t.closeCalls()
	}
	if t.stream != nil {
		t.stream.Rollback("the turn ended")
		t.stream = nil
	}
	t.models.keepSide(&t.pending, len(t.rounds)+1)
	outcome := t.endings().outcome(e)
	if e.state.Terminal() {
		t.events.Event(endEvent(e.state), 0, 0, transcript.TurnEndData{
			State: outcome.State, StopReason: outcome.StopReason, Rounds: len(t.rounds), Calls: len(t.rounds.all()),
			Reply: outcome.Reply, Retry: outcome.Retry,
		})
	}
	t.pending.Outcome = &outcome
	if err := t.commit(ctx); err != nil {
		t.pending.Outcome = nil
		return turnkeeper.Outcome{}, err
	}
	t.endings().logEnd(outcome)
	return outcome, nil
}

// commit makes what was decided durable.
func (t *execution) commit(ctx context.Context) error {
	if t.pending.Outcome == nil {
		t.progressEvents()
	}
	t.pending.Events = t.events.Unwritten()
	if t.pending.empty() {
		return nil
	}
	writes := writesOf(t.pending.Entry)
	t.atEach(ctx, writes, ".before")
	if err := t.journal.Append(ctx, t.pending.Entry); err != nil {
		return &journalError{err}
	}
	for _, start := range t.pending.Starts {
		call := t.rounds.call(start.Key)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, time.Now()
		if call.State == turnkeeper.CallPlanned {
			call.State = turnkeeper.CallStarted
		}
	}
	t.pending = pending{}
	t.events.Written()
	t.atEach(ctx, writes, ".after")
	return nil
}

// runnable returns the calls that are left to be run, in order.
func (t *execution) runnable() []*turnkeeper.ToolCall {
	return slices.DeleteFunc(t.rounds.open(), func(c *turnkeeper.ToolCall) bool { return t.background[c.Key] != nil })
}

// moment is the turn as requests show it.
func (t *execution) moment(final bool) prompt.Moment {
	return prompt.Moment{Rounds: t.rounds, Final: final, Age: t.background.Age}
}

// A journalError is why an entry could not be written.
type journalError struct{ err error }

func (e *journalError) Error() string {
	return "the turn's journal could not be written: " + e.err.Error()
}
func (e *journalError) Unwrap() error { return e.err }

// unwritable is the error after which no outcome can be written, if err, or
// what ended ctx, is one.
func unwritable(ctx context.Context, err error) error {
	if errors.Is(err, turnkeeper.ErrFenced) || errors.Is(context.Cause(ctx), turnkeeper.ErrFenced) {
		return turnkeeper.ErrFenced
	}
	if errors.Is(err, turnkeeper.ErrJournalMoved) {
		return err
	}
	// A write that failed because the time is over does not keep the turn from
	// its end, which has a grace of its own.
	if _, ok := errors.AsType[*journalError](err); ok && ctx.Err() == nil {
		return err
	}
	return nil
}

// leave reports what tools did that the journal could not take, and passes err
// on.
func (t *execution) leave(ctx context.Context, err error) error {
	t.stopJobs(errOver)
	fenced := errors.Is(err, turnkeeper.ErrFenced)
	if !fenced && !errors.Is(err, turnkeeper.ErrJournalMoved) {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
	defer stop()
	for _, result := range t.pending.Results {
		if result.Nonce == "" || !result.Ran {
			continue
		}
		t.at(ctx, PointLate)
		t.inline(&result)
		if err := t.journal.Late(ctx, result); err != nil {
			t.log.Warn("a late tool result could not be kept", zap.Stringer("call", result.Key), zap.Error(err))
		}
	}
	if fenced {
		return turnkeeper.ErrFenced
	}
	return err
}

// lateTime bounds the report of one dispatch's late results.
const lateTime = 5 * time.Second
