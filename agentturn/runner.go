package agentturn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/extract"
	"turnkeeper/inference"
	"turnkeeper/internal/fault"
	"turnkeeper/tools"
)

// Causes that end the context of a Run. A lost lease ends it with
// turnkeeper.ErrFenced. Whatever else ends it counts as ErrShutdown.
var (
	// ErrShutdown hands the turn back, to be granted again: the worker goes
	// away. The caller gives the turn its grace before it ends the context.
	ErrShutdown = errors.New("the worker is shutting down")

	// ErrCancelled closes the turn: somebody asked for that.
	ErrCancelled = errors.New("the turn was cancelled")
)

// A Config is what every turn of a process shares.
type Config struct {
	Models       Models
	DefaultModel string // "provider/model", for agents that name none
	// ExtractionModel searches stored results, for agents that name none. Empty:
	// the models of the agent's own turns.
	ExtractionModel string
	Tools           *tools.Registry                        // all there are; an agent has those it lists. nil: none
	More            ToolSource                             // beside Tools; nil: none
	Bounds          turnkeeper.Bounds                      // of agents that set none; start from turnkeeper.DefaultBounds
	Agents          Agents                                 // nil: sub-agents are offered by name only
	Freshness       Freshness                              // nil: scheduled turns run every call
	Budget          Budget                                 // nil: spend has no bounds
	Outputs         toolrun.Outputs                        // nil: results cannot be read on where they are cut
	Extractions     extract.Cache                          // nil: every extraction asks a model
	Tokens          func(model string) prompt.TokenCounter // nil: HeuristicTokens for all
	Retry           inference.Retry                        // how a model is called; Provider, AttemptTimeout and OnRetry are set here
	Log             *zap.Logger                            // nil: nothing is logged
	Observer        Observer                               // nil: nobody is told
	Fault           fault.Hook                             // nil in production
}

// A Runner runs turns. It is safe for concurrent use.
type Runner struct {
	cfg        Config
	leftBehind atomic.Int64
	learned    prompt.Calibrations
	counted    prompt.Cache
}

// New makes a Runner. Models must be set.
func New(cfg Config) *Runner {
	if cfg.Tools == nil {
		cfg.Tools = &tools.Registry{}
	}
	if cfg.More == nil {
		cfg.More = noSource{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	return &Runner{cfg: cfg}
}

// A ToolSource has tools that are not the same for as long as the process lives.
// Implementations are safe for concurrent use.
type ToolSource interface {
	// ToolsOf are an agent's tools, as they are now, of names that no other tool
	// has. lacks names what the agent lists and this process cannot have.
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

// Lacks are the tools that an agent lists and this process does not have. Its
// turns run without them.
func (r *Runner) Lacks(d *agentdef.Definition) (names []string) {
	_, names = r.cfg.More.ToolsOf(d)
	for _, name := range d.Tools {
		if _, ok := r.cfg.Tools.Get(name); !ok && name != turnkeeper.ToolSpawnAgent {
			names = append(names, name)
		}
	}
	return names
}

// An Assignment is one dispatch of a turn: what its journal says, and the time
// it has, by the monotonic clock of this process.
type Assignment struct {
	Record     turnkeeper.Record
	Definition *agentdef.Definition // parsed from Record.Definition
	Before     turnkeeper.Dispatch  // the grant before this one, for the Observer; zero: none, or not known

	// Bounds of this turn. Zero: the definition's, over Config.Bounds.
	Bounds turnkeeper.Bounds

	// WallDeadline is the grant plus max_duration. Zero: what Record.Elapsed
	// leaves of it, from now.
	WallDeadline time.Time
	// LeaseDeadline is when the lease ends. Zero: Record.Remaining from now.
	LeaseDeadline time.Time
}

// Run goes on with a turn until this dispatch of it ends, and writes all of it
// to the journal, the outcome included. It returns the outcome that was
// written.
//
// An error means that no outcome was written: turnkeeper.ErrFenced when the
// lease is lost (the tools are stopped and late results reported by then);
// turnkeeper.ErrJournalMoved when the caller must load the record again and
// call Run with it; otherwise whatever kept the journal from being written, so
// that the turn is found again as one of a lost worker.
//
// Failures of models and tools, panics, spent bounds and the end of ctx are
// outcomes, not errors. What ends ctx decides which; see ErrShutdown.
func (r *Runner) Run(ctx context.Context, a Assignment, journal Journal) (turnkeeper.Outcome, error) {
	t := newExecution(r, a, journal)
	ctx, stop := context.WithDeadlineCause(ctx, t.wall, errWallTime)
	defer stop()
	ctx, end := t.cfg.Observer.Dispatch(ctx, DispatchBegin{Record: a.Record, Before: a.Before})
	outcome, err := t.run(ctx)
	t.round.leave(t.rounds)
	end(ended(outcome, err, t.rounds))
	return outcome, err
}

// LeftBehind is how many tools run now that did not return in their time: their
// calls are answered, their goroutines are not to be had back.
func (r *Runner) LeftBehind() int64 { return r.leftBehind.Load() }

var errWallTime = errors.New("the turn's time is over")
