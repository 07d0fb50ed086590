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

// A task is what an execution is given. It does not change while that runs, and any
// goroutine may use it.
type task struct {
	cfg     Config
	record  turnkeeper.Record
	def     *agentdef.Definition
	bounds  turnkeeper.Bounds
	offered prompt.Offer // what the agent may call, in the order it lists it
	log     *zap.Logger

	began  time.Time // the execution
	loaded time.Time // when the journal was read
	wall   time.Time // when the turn's time is over
	lease  time.Time // when the lease is

	searches   chan struct{} // a slot for each model call that may search stored results at once
	leftBehind *atomic.Int64 // tools of the process that did not return in their time
}

// An execution is one grant's run of a turn. Its fields belong to the goroutine that runs
// it.
type execution struct {
	*task
	journal    Journal
	rounds     calls                  // of the turn so far, with what pending has not made durable yet
	pending    pending                // decided and not yet durable
	events     *transcript.Transcript // likewise
	prompt     *prompt.State          // makes the requests
	models     *models                // answers them
	background toolrun.Set            // calls that go on in the background
	progress   *toolrun.Progress      // of the calls that run
	stream     *transcript.Stream     // of the model call under way; nil: none
	round      openRound              // that the execution is in, for the Observer
	resolved   resolvedCall           // the arguments of the call that is run next, where these had handles

	// interrupted are calls that were stopped while they ran, with what to
	// record of them should the turn end.
	interrupted map[turnkeeper.CallKey]turnkeeper.CallResult
	dirty       bool // a call has ended that no request has told of

	stillUntil time.Time                                       // until then the turn stands still for replies of sub-agents
	subAgents  map[turnkeeper.CallKey]*transcript.SubAgentData // that have ended, for the watchers

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
	given.offered = prompt.Offer{
		Registry: withSpawn(offered(cfg, a.Definition, bounds), given.spawnable(), cfg.Agents), Bounds: bounds, Stored: cfg.Outputs != nil,
	}
	t := &execution{
		task: given, journal: journal, progress: toolrun.NewProgress(), background: toolrun.Set{},
		events:      transcript.New(a.Record.Turn.ID, a.Record.NextBlock),
		prompt:      prompt.NewState(a.Record, a.Definition, given.offered, &r.learned),
		models:      &models{task: given, cache: &r.counted, health: newModelHealth(a.Record)},
		interrupted: map[turnkeeper.CallKey]turnkeeper.CallResult{},
		subAgents:   map[turnkeeper.CallKey]*transcript.SubAgentData{},
		dirty:       dirtyIn(a.Record.Rounds),
	}
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
func (t *execution) run(ctx context.Context) (turnkeeper.Outcome, error) {
	err := t.guard(func() error { return t.loop(ctx) })
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

func (t *execution) loop(ctx context.Context) (err error) {
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

// commit makes what was decided durable.
func (t *execution) commit(ctx context.Context) error {
	if t.pending.Outcome == nil {
		t.tellProgress()
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

func (t *task) scheduled() bool { return t.record.Turn.Trigger == turnkeeper.TriggerSchedule }

// A panicError is a panic of the loop or of a provider.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the worker panicked: %v", e.value) }

// guard turns a panic of f into an error.
func (t *task) guard(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			t.log.Error("turn panicked", zap.Any("panic", value), zap.ByteString("stack", debug.Stack()))
			err = &panicError{value}
		}
	}()
	return f()
}

// moment is the turn as requests show it.
func (t *execution) moment(final bool) prompt.Moment {
	return prompt.Moment{Rounds: t.rounds, Final: final, Age: t.runs}
}

// runs is how long a call has been in the background.
func (t *execution) runs(call turnkeeper.ToolCall) time.Duration {
	if j := t.background[call.Key]; j != nil {
		return time.Since(j.Since)
	}
	if call.Elsewhere && !call.StartedAt.IsZero() {
		return max(time.Since(call.StartedAt), 0)
	}
	return 0
}
