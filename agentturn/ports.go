// Package agentturn runs one bounded turn of an agent: it builds requests, calls the
// model, plans, starts and records tool calls, enforces the bounds, and decides how the
// turn ends. It reaches databases, queues and sockets only through the interfaces of this
// file, which lets tests run it in fake time.
//
// A Runner is safe for concurrent use. Each dispatch of a turn has one goroutine, the only
// one that writes to its Journal. The package must not import storage or jobs.
package agentturn

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
)

// A Journal writes the record of a turn. It belongs to one dispatch of one turn, and only
// one goroutine at a time calls it.
type Journal interface {
	// Append writes the entry in one transaction and returns once it is durable. It
	// returns turnkeeper.ErrFenced if the turn no longer has this grant,
	// turnkeeper.ErrJournalMoved if the journal is not what the entry builds on, and the
	// cause of ctx if that ends first. While the database is unavailable, it retries
	// until ctx ends. If a commit gets no answer, it reads back whether the entry was
	// written. A nil error means that the entry is in the journal, once.
	//
	// Append numbers the events. It writes an entry with an Outcome on a context that
	// outlives ctx by a short grace, because a cancelled turn must still close.
	Append(ctx context.Context, entry turnlog.Entry) error

	// Transact records the start of a transactional call, runs it, and records its
	// result, in one transaction. run gets a context that carries the transaction, and
	// must return within the given time. If the result's state is CallFailed, the tool's
	// writes are rolled back, and the result is kept. Transact returns the result that
	// was recorded: a failure if a statement of the tool failed, whatever run returned.
	// Errors are those of Append.
	Transact(ctx context.Context, start turnlog.CallStart, within time.Duration,
		run func(context.Context) turnlog.CallResult) (turnlog.CallResult, error)

	// Arrivals returns the results of detached calls that are not in the journal yet,
	// without Shown. The turn appends them. Their outputs are already stored.
	Arrivals(ctx context.Context) ([]turnlog.CallResult, error)

	// RequestParts reads stored parts of requests, by hash. It omits those that are not stored. Errors are those of the
	// database, and the cause of ctx.
	RequestParts(ctx context.Context, hashes ...string) (map[string]string, error)

	// NewMessage returns a new id for a message to a sub-agent, which the start of a
	// call will write (turnlog.Spawn). An id may stay unused.
	NewMessage(ctx context.Context) (turnkeeper.MessageID, error)

	// Late stores a result that came after the lease was lost: as the call's result if
	// the call is open and no other worker has the turn, else beside the call's result.
	Late(ctx context.Context, result turnlog.CallResult) error
}

// A Freshness looks up earlier calls of an agent, for turns that a schedule started.
type Freshness interface {
	// RecentCalls lists the agent's calls with this name and arguments hash that ended
	// within the window, newest first, at most 20.
	RecentCalls(ctx context.Context, agent, name, argsHash string, within time.Duration) ([]turnlog.PastCall, error)
}

// A Budget limits model calls. Implementations are safe for concurrent use.
type Budget interface {
	// Reserve takes the estimate of one call out of the budget, or returns a blocked
	// Reservation. The reservation lasts until Settle, and for ever if the worker dies:
	// spend only adds up. It is called for agents without limits too, and should then
	// return at once.
	Reserve(ctx context.Context, spender Spender, estimate turnkeeper.Usage) (Reservation, error)
	// Settle replaces the reservation by the actual usage. For a failed call this is
	// what the provider reported, an estimate, or zero.
	Settle(ctx context.Context, r Reservation, used turnkeeper.Usage) error
}

// A Spender says whose budget a model call uses.
type Spender struct {
	Turn   turnkeeper.TurnID
	Agent  string
	Root   turnkeeper.TurnID // root of the tree of agents, if the tree has limits; else 0
	Limits SpendLimits
	Level  survival.Level // for which the model was chosen; empty: any, if the agent's file names no levels
}

// SpendLimits are the limits of a Spender. 0: unlimited.
type SpendLimits struct {
	TurnTokens, TurnCalls, DayTokens, DayCalls int64
	TreeTokens, TreeCalls                      int64 // of the turn's tree of agents
}

// times returns n times the limits.
func (l SpendLimits) times(n int64) SpendLimits {
	for _, limit := range []*int64{&l.TurnTokens, &l.TurnCalls, &l.DayTokens, &l.DayCalls, &l.TreeTokens,
		&l.TreeCalls} {
		*limit *= n
	}
	return l
}

// A Reservation is the result of Reserve.
type Reservation struct {
	// Level is the agent's survival level; empty: unknown. If it is not that of the Spender, nothing was reserved, and
	// the call must not be made.
	Level   survival.Level
	ID      int64         // 0: nothing was reserved, Settle does nothing
	Blocked bool          // the call must not be made
	Scope   string        // if Blocked: "turn", "tree" or "day"
	Retry   time.Duration // if Blocked by the day: time until the budget opens again
	Never   bool          // if Blocked by the day: the call exceeds a whole day's budget
	Reason  string        // if Blocked: for operators; never a reply
}

// Models finds the provider and the properties of a model.
type Models interface {
	// Find looks a model up by its name, "provider/model". If its provider is not
	// configured, the error says so in a plain sentence.
	Find(name string) (inference.Provider, ModelInfo, error)
}

// Agents describes the agents that can be sub-agents. Implementations are safe for
// concurrent use.
type Agents interface {
	// Describe returns the description from the agent's file. known is false if this
	// process has no such agent.
	Describe(name string) (description string, known bool)
}

// ModelInfo holds the properties of a model.
type ModelInfo struct {
	Provider      string
	Model         string // the provider's name for it
	ContextWindow int    // tokens; 0: unknown
}
