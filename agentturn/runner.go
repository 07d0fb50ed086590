package agentturn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Causes with which a caller cancels the context of a Run. For a lost lease the cause is
// turnkeeper.ErrFenced. Any other cause counts as ErrShutdown.
var (
	// ErrShutdown hands the turn back, to be granted again, because the worker stops.
	// The caller gives the turn its grace before it cancels the context.
	ErrShutdown = errors.New("the worker is shutting down")

	// ErrCancelled closes the turn as cancelled.
	ErrCancelled = errors.New("the turn was cancelled")
)

// A Config holds what all turns of a process share. Models is required.
type Config struct {
	Models       Models
	DefaultModel string // "provider/model", for agents without a model
	// ExtractionModel searches stored results for agents that set none. Empty: the
	// agent's own models.
	ExtractionModel string
	Tools           *tools.Registry // all tools; an agent gets those it lists. nil: none
	More            ToolSource      // tools in addition to Tools; nil: none
	// for agents that set none; start from turnkeeper.DefaultBounds
	Bounds  turnkeeper.Bounds
	Agents  Agents        // nil: sub-agents are offered without a description
	Rules   *policy.Cache // compiles the rules about calls; nil: only always and never
	Approve string        // a rule for all calls of all agents; empty: none
	// policy.ReplyAllow, ReplyWithhold or ReplyAsk, of agents that set none; empty: ReplyAllow
	ReplySink    string
	Freshness    Freshness                              // nil: scheduled turns run every call
	Budget       Budget                                 // nil: unlimited
	Outputs      toolrun.Outputs                        // nil: stored results cannot be read
	Extractions  extract.Cache                          // nil: not cached
	Tokens       func(model string) prompt.TokenCounter // nil: HeuristicTokens for all models
	Retry        inference.Retry                        // of model calls; a Runner sets Provider and OnRetry
	ResultMemory *membudget.Budget                      // of the results of tools; nil: unlimited
	Log          *zap.Logger                            // nil: no log
	Observer     Observer                               // nil: none
	Fault        fault.Hook                             // nil in production
}

// A Runner runs turns. It is safe for concurrent use.
type Runner struct {
	cfg        Config
	leftBehind atomic.Int64
	memory     prompt.Memory
	counted    prompt.Cache
	kept       keptResults
}

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.Tools == nil {
		cfg.Tools = &tools.Registry{}
	}
	if cfg.More == nil {
		cfg.More = noSource{}
	}
	if cfg.Rules == nil {
		cfg.Rules = &policy.Cache{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	return &Runner{cfg: cfg}
}

// A ToolSource has tools that may change while the process runs. Implementations are safe
// for concurrent use.
type ToolSource interface {
	// ToolsOf returns the current tools of an agent. Their names must differ from those
	// of all other tools. lacks names what the agent lists and this process does not have.
	ToolsOf(d *agentdef.Definition) (have []tools.Tool, lacks []string)
}

// noSource has no tools.
type noSource struct{}

func (noSource) ToolsOf(d *agentdef.Definition) (have []tools.Tool, lacks []string) {
	for _, server := range d.MCPServers {
		lacks = append(lacks, "mcp_servers."+server.Name)
	}
	return nil, lacks
}

// Lacks returns the names of the tools that an agent lists and this process does not have.
// The agent's turns run without them.
func (r *Runner) Lacks(d *agentdef.Definition) (names []string) {
	_, names = r.cfg.More.ToolsOf(d)
	for _, name := range d.Tools {
		if _, ok := r.cfg.Tools.Get(name); !ok && name != turnkeeper.ToolSpawnAgent {
			names = append(names, name)
		}
	}
	return names
}

// An Assignment is one dispatch of a turn: the record from its journal, and its deadlines
// by the monotonic clock of this process.
type Assignment struct {
	Record     *turnlog.Record
	Definition *agentdef.Definition // parsed from Record.Definition
	// Newest is the agent's definition as it was last registered. A call that a person allowed starts only if it has
	// the tool, and no call starts that its rules deny. nil: Definition, or unknown.
	Newest  *agentdef.Definition
	Retired bool                // the agent was retired: no call starts that a person allowed
	Before  turnkeeper.Dispatch // the dispatch before this one, for the Observer; zero: none, or unknown

	// Finish is closed when the turn is to finish with what it has, as a request on record says. A Record that says so
	// suffices. nil: it is not closed.
	Finish <-chan struct{}

	// Bounds of this turn. Zero: those of Definition, with Config.Bounds as defaults.
	Bounds turnkeeper.Bounds

	// WallDeadline is the grant plus max_duration. Zero: now plus max_duration, less
	// Record.Elapsed.
	WallDeadline time.Time
	// LeaseDeadline is the end of the lease. Zero: now plus Record.Remaining.
	LeaseDeadline time.Time
}

// Run executes a turn until this dispatch ends, and writes everything to the journal,
// including the outcome. It returns the outcome that was written.
//
// An error means that no outcome was written:
//   - turnkeeper.ErrFenced: the lease is lost. The tools are stopped, and late results
//     are reported.
//   - turnkeeper.ErrJournalMoved: the caller must load the record again and call Run
//     with it.
//   - Any other error: the journal could not be written. The scheduler will reclaim the
//     turn as that of a lost worker.
//
// Failures of models and tools, panics, exhausted bounds and the end of ctx are outcomes,
// not errors. The cause of ctx decides which outcome; see ErrShutdown.
func (r *Runner) Run(ctx context.Context, a Assignment, journal Journal) (outcome turnlog.Outcome, err error) {
	e := newExecution(r, a, journal)
	defer e.executor.tooling.memory.Close()
	defer e.executor.early.end()
	ctx, stop := context.WithDeadlineCause(ctx, e.clock.wall, errWallTime)
	defer stop()
	ctx, end := e.cfg.Observer.Dispatch(ctx, DispatchBegin{Record: a.Record, Before: a.Before})
	defer func() {
		e.round.leave(e.calls.Rounds)
		end(ended(outcome, err, e.calls.Rounds))
	}()
	err = e.runStates(ctx)
	e.executor.early.drop("the turn does not go on")
	if fatal := unwritable(ctx, err); fatal != nil {
		return turnlog.Outcome{}, e.reportLate(ctx, fatal)
	}
	if err != nil {
		e.end = e.endings().endingOf(ctx, err)
	}
	e.keepSaid()
	e.guardReply(err == nil)
	if outcome, err = e.finish(ctx, *e.end); err != nil {
		return turnlog.Outcome{}, e.reportLate(ctx, err)
	}
	return outcome, nil
}

// LeftBehind returns the number of tools that run past their timeout. Their calls are
// answered, but their goroutines cannot be stopped.
func (r *Runner) LeftBehind() int64 { return r.leftBehind.Load() }

var errWallTime = errors.New("the turn's time is over")
