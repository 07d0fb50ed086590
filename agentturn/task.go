package agentturn

import (
	"fmt"
	"runtime/debug"
	"slices"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// A task is the immutable input of an execution. It is safe for concurrent use.
type task struct {
	cfg     *Config
	record  *turnlog.Record
	def     *agentdef.Definition
	bounds  turnkeeper.Bounds
	offered prompt.Offer // the agent's tools, in the order of its file
	clock   clock
	log     *zap.Logger

	finishAsked <-chan struct{} // closed when the turn is to finish; nil: it is not
}

// newTask returns the input of an execution that begins now.
func newTask(cfg *Config, a Assignment) *task {
	bounds := a.Bounds
	if bounds == (turnkeeper.Bounds{}) {
		bounds = a.Definition.Bounds(cfg.Bounds)
	}
	t := &task{
		cfg: cfg, record: a.Record, def: a.Definition, bounds: bounds, clock: newClock(a, bounds),
		log:         cfg.Log.With(TurnFields(a.Record.Turn, a.Record.Message.TraceParent)...),
		finishAsked: a.Finish,
	}
	if a.Record.End == turnlog.EndFinish {
		asked := make(chan struct{})
		close(asked)
		t.finishAsked = asked
	}
	t.offered = prompt.Offer{
		Registry: withSpawn(offered(cfg, a.Definition, bounds), t.family().spawnable(), cfg.Agents),
		Bounds:   bounds, Stored: cfg.Outputs != nil,
	}
	return t
}

// TurnFields returns the fields that every log line about a turn begins with.
func TurnFields(turn turnkeeper.Turn, traceParent string) []zap.Field {
	return []zap.Field{
		zap.Int64("turn_id", int64(turn.ID)), zap.String("agent", turn.Agent), zap.Stringer("trace_id",
			traceparent.Of(turn, traceParent)),
	}
}

// offered returns the tools that the agent lists and the process has, and the tools that
// read stored results: none without paging, and nothing to wait for without handles. Missing
// tools are skipped: the check of agent files reports them.
func offered(cfg *Config, d *agentdef.Definition, bounds turnkeeper.Bounds) *tools.Registry {
	all := cfg.Tools
	handles := bounds.Async || slices.ContainsFunc(d.Tools, func(name string) bool {
		spec, _ := all.Spec(name)
		return spec.Detached // its calls are answered with handles even if async is off
	})
	off := func(name string) bool {
		return slices.Contains(prompt.Readers, name) &&
			(!bounds.Paging || name == turnkeeper.ToolWaitForToolOutput && !handles)
	}
	var known []string
	for _, name := range slices.Concat(d.Tools, prompt.Readers) {
		if _, ok := all.Get(name); ok && !off(name) && !slices.Contains(known, name) {
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
			cfg.Log.Error("cannot offer a tool", zap.String("agent", d.Name), zap.Error(err))
		}
	}
	return subset
}

func (t *task) scheduled() bool { return t.record.Turn.Trigger == turnkeeper.TriggerSchedule }

// catchPanic, when deferred, sets err if the function panics.
func (t *task) catchPanic(err *error) {
	if value := recover(); value != nil {
		t.log.Error("turn panicked", zap.Any("panic", value), zap.ByteString("stack", debug.Stack()))
		*err = &panicError{value}
	}
}

// guard calls f and returns its error, or its panic as an error.
func (t *task) guard(f func() error) (err error) {
	defer t.catchPanic(&err)
	return f()
}

// A panicError is a panic of the execution or of a provider.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the worker panicked: %v", e.value) }
