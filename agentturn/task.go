package agentturn

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
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

// TurnFields are what every line of the log that is about a turn begins with.
func TurnFields(turn turnkeeper.Turn, traceParent string) []zap.Field {
	return []zap.Field{
		zap.Int64("turn_id", int64(turn.ID)), zap.String("agent", turn.Agent), zap.Stringer("trace_id", turnkeeper.TraceOf(turn, traceParent)),
	}
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

func (t *task) scheduled() bool { return t.record.Turn.Trigger == turnkeeper.TriggerSchedule }

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

// A panicError is a panic of the loop or of a provider.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the worker panicked: %v", e.value) }
