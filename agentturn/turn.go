package agentturn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/tools"
)

// A turn is one dispatch. Its fields belong to the goroutine that runs it.
type turn struct {
	cfg     Config
	record  turnkeeper.Record
	def     *agentdef.Definition
	bounds  turnkeeper.Bounds
	offered prompt.Offer // what the agent may call, in the order it lists it
	journal Journal
	log     *zap.Logger
	models  []*candidate // found on the first model call
	health  modelHealth  // of models that are down
	began   time.Time    // this dispatch
	loaded  time.Time    // when the journal was read
	wall    time.Time    // when the turn's time is over
	lease   time.Time    // when the lease is

	extracting chan struct{} // a slot for each model call that may search stored results at once

	prompt     *prompt.State
	counted    *prompt.Cache    // of the process
	beside     turnkeeper.Usage // of model calls that are no round, for the next one
	leftBehind *atomic.Int64    // tools of the process that did not return in their time

	round    openRound          // that this dispatch is in
	rounds   []turnkeeper.Round // as decided, with what next has not made durable yet
	next     turnkeeper.Entry   // decided and not yet durable
	events   *transcript.Transcript
	progress *toolrun.Progress  // of the calls that run
	stream   *transcript.Stream // of the model call under way; nil: none
	values   resolvedCall       // the arguments of the call that is run next, where these had handles

	// interrupted are calls that were stopped while they ran, with what to
	// record of them should the turn end.
	interrupted map[turnkeeper.CallKey]turnkeeper.CallResult

	jobs toolrun.Set // of the calls in the background

	unseen bool // a call has ended that no request has told of

	stillFor  time.Time                                       // until then the turn stands still for replies of sub-agents
	subAgents map[turnkeeper.CallKey]*transcript.SubAgentData // that have ended, for the watchers

	end *ending // set by the state that ends the loop
}

// TurnFields are what every line of the log that is about a turn begins with.
func TurnFields(turn turnkeeper.Turn, traceParent string) []zap.Field {
	return []zap.Field{
		zap.Int64("turn_id", int64(turn.ID)), zap.String("agent", turn.Agent), zap.Stringer("trace_id", turn.Trace(traceParent)),
	}
}

// A state does one thing and says what comes next. nil: the turn's end is
// decided.
type state func(ctx context.Context) (state, error)

func newTurn(cfg Config, a Assignment, journal Journal, learned *prompt.Calibrations) *turn {
	bounds := a.Bounds
	if bounds == (turnkeeper.Bounds{}) {
		bounds = a.Definition.Bounds(cfg.Bounds)
	}
	now := time.Now()
	t := &turn{
		cfg: cfg, record: a.Record, def: a.Definition, bounds: bounds, journal: journal,
		progress: toolrun.NewProgress(),
		log:      cfg.Log.With(TurnFields(a.Record.Turn, a.Record.Message.TraceParent)...),
		loaded:   now, wall: a.WallDeadline, lease: a.LeaseDeadline,
		events:      transcript.New(a.Record.Turn.ID, a.Record.NextBlock),
		interrupted: map[turnkeeper.CallKey]turnkeeper.CallResult{},
		jobs:        toolrun.Set{},
		extracting:  make(chan struct{}, extract.Parallel),
		unseen:      unseenIn(a.Record.Rounds),
	}
	t.health, t.began = newModelHealth(a.Record), now
	t.subAgents = map[turnkeeper.CallKey]*transcript.SubAgentData{}
	t.offered = prompt.Offer{
		Registry: withSpawn(offered(cfg, a.Definition, bounds), t.spawnable(), cfg.Agents), Bounds: bounds, Stored: cfg.Outputs != nil,
	}
	t.prompt = prompt.NewState(a.Record, a.Definition, t.offered, learned)
	if t.wall.IsZero() {
		t.wall = now.Add(bounds.MaxDuration - a.Record.Elapsed)
	}
	if t.lease.IsZero() {
		t.lease = now.Add(a.Record.Remaining)
	}
	for _, round := range a.Record.Rounds {
		round.Calls = slices.Clone(round.Calls)
		t.rounds = append(t.rounds, round)
	}
	return t
}

// offered are the tools an agent lists and the process has, as they are now, and
// those that read stored results, without those that are switched off. The check of
// agent files reports what is not there.
func offered(cfg Config, d *agentdef.Definition, bounds turnkeeper.Bounds) *tools.Registry {
	all := cfg.Tools
	handles := bounds.Async || slices.ContainsFunc(d.Tools, func(name string) bool {
		spec, _ := all.Spec(name)
		return spec.Detached // its calls are answered with handles, whatever the settings say
	})
	off := map[string]bool{
		turnkeeper.ToolGetContinuation:   !bounds.Paging,
		turnkeeper.ToolGetToolOutput:     !bounds.Paging && !handles,
		turnkeeper.ToolWaitForToolOutput: !handles,
	}
	var known []string
	for _, name := range slices.Concat(d.Tools, prompt.Readers) {
		if _, ok := all.Get(name); ok && !off[name] && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	subset, err := all.Subset(known)
	if err != nil { // every name is known, once
		panic(err)
	}
	more, _ := cfg.More.ToolsOf(d)
	for _, tool := range more {
		if err := subset.Register(tool); err != nil {
			cfg.Log.Error("a tool is left out of a turn", zap.String("agent", d.Name), zap.Error(err))
		}
	}
	return subset
}

// run drives the states, and turns whatever stopped them into an outcome.
func (t *turn) run(ctx context.Context) (turnkeeper.Outcome, error) {
	err := t.guard(func() error { return t.loop(ctx) })
	if fatal := unwritable(ctx, err); fatal != nil {
		return turnkeeper.Outcome{}, t.leave(ctx, fatal)
	}
	if err != nil {
		t.end = t.endingOf(ctx, err)
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

func (t *turn) loop(ctx context.Context) (err error) {
	t.at(ctx, PointStart)
	for next := state(t.recover); next != nil && err == nil; {
		next, err = next(t.inRound(ctx))
	}
	return err
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
func (t *turn) leave(ctx context.Context, err error) error {
	t.stopJobs(errOver)
	fenced := errors.Is(err, turnkeeper.ErrFenced)
	if !fenced && !errors.Is(err, turnkeeper.ErrJournalMoved) {
		return err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
	defer stop()
	for _, result := range t.next.Results {
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

// commit makes what was decided durable.
func (t *turn) commit(ctx context.Context) error {
	if t.next.Outcome == nil {
		t.tellProgress()
	}
	t.next.Events = t.events.Unwritten()
	if emptyEntry(t.next) {
		return nil
	}
	writes := writesOf(t.next)
	t.atEach(ctx, writes, ".before")
	if err := t.journal.Append(ctx, t.next); err != nil {
		return &journalError{err}
	}
	for _, start := range t.next.Starts {
		call := t.call(start.Key)
		call.Nonce, call.Starts, call.StartedAt = start.Nonce, start.Attempt, time.Now()
		if call.State == turnkeeper.CallPlanned {
			call.State = turnkeeper.CallStarted
		}
	}
	t.next = turnkeeper.Entry{}
	t.events.Written()
	t.atEach(ctx, writes, ".after")
	return nil
}

func emptyEntry(e turnkeeper.Entry) bool {
	return e.Round == nil && e.Outcome == nil &&
		len(e.Verdicts) == 0 && len(e.Starts) == 0 && len(e.Results) == 0 && len(e.Events) == 0
}

// calls are all calls of the turn in the order they were asked for.
func (t *turn) calls() []turnkeeper.ToolCall { return prompt.CallsOf(t.rounds) }

// call is the turn's own copy of a call; it exists.
func (t *turn) call(key turnkeeper.CallKey) *turnkeeper.ToolCall {
	for i := range t.rounds {
		for j := range t.rounds[i].Calls {
			if call := &t.rounds[i].Calls[j]; call.Key == key {
				return call
			}
		}
	}
	panic(fmt.Sprintf("the turn has no call %s", key))
}

// open are the calls without an end, in order, but for those that are open
// elsewhere.
func (t *turn) open() []*turnkeeper.ToolCall {
	var open []*turnkeeper.ToolCall
	for i := range t.rounds {
		for j := range t.rounds[i].Calls {
			if call := &t.rounds[i].Calls[j]; !call.State.Answered() && !isElsewhere(*call) {
				open = append(open, call)
			}
		}
	}
	return open
}

// pending are the calls that are left to be run, in order.
func (t *turn) pending() []*turnkeeper.ToolCall {
	return slices.DeleteFunc(t.open(), func(c *turnkeeper.ToolCall) bool { return t.jobs[c.Key] != nil })
}

// anyExecuted says that a tool has started in this turn, in whichever dispatch.
func (t *turn) anyExecuted() bool {
	if len(t.interrupted) > 0 {
		return true
	}
	return slices.ContainsFunc(t.calls(), func(c turnkeeper.ToolCall) bool { return c.State.Executed() })
}

func (t *turn) scheduled() bool { return t.record.Turn.Trigger == turnkeeper.TriggerSchedule }

// A panicError is a panic of the loop or of a provider.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the worker panicked: %v", e.value) }

// guard turns a panic of f into an error.
func (t *turn) guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			t.log.Error("turn panicked", zap.Any("panic", value), zap.ByteString("stack", debug.Stack()))
			err = &panicError{value}
		}
	}()
	return f()
}

// moment is the turn as requests show it.
func (t *turn) moment(final bool) prompt.Moment {
	return prompt.Moment{Rounds: t.rounds, Final: final, Age: t.runs}
}

// runs is how long a call has been in the background.
func (t *turn) runs(call turnkeeper.ToolCall) time.Duration {
	if j := t.jobs[call.Key]; j != nil {
		return time.Since(j.Since)
	}
	if call.Elsewhere && !call.StartedAt.IsZero() {
		return max(time.Since(call.StartedAt), 0)
	}
	return 0
}
