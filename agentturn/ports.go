// Package agentturn runs one bounded turn of an agent: it composes requests,
// calls the model, plans, starts and records tool calls, keeps the bounds, and
// decides how the turn ends. It knows no database, queue or socket: everything
// outside is behind the interfaces of this file, so that all of it can be
// tested with fake time.
//
// A Runner is safe for concurrent use; one dispatch of a turn is one goroutine,
// which alone writes to its Journal. It must not import storage or jobs.
package agentturn

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/inference"
)

// A Journal is where a turn writes. It belongs to one dispatch of one turn,
// and is called by one goroutine at a time.
type Journal interface {
	// Append makes the entry durable, whole or not at all, and returns when it
	// is. It fails with turnkeeper.ErrFenced when the grant is no longer the
	// turn's, with turnkeeper.ErrJournalMoved when the journal is not what the
	// entry builds on, and with the cause of ctx when that ends first. It waits
	// for a database that is away, as long as ctx allows. An entry whose
	// commit was sent and not answered is settled by reading back: a nil error
	// means that the entry is there, once.
	//
	// Event numbers are given here. An entry with an Outcome is written on a
	// context that outlives ctx by a short grace, so that a cancelled turn can
	// still close.
	Append(ctx context.Context, entry turnkeeper.Entry) error

	// Transact records the start of a transactional call, runs it, and records
	// its result, in one transaction. run gets a context that carries the
	// transaction, and takes no longer than within. A result in state
	// CallFailed undoes what run wrote and keeps the result. It returns the result that was recorded, which is a
	// failure where a statement of the tool had failed, whatever run said.
	// Errors are those of Append.
	Transact(ctx context.Context, start turnkeeper.CallStart, within time.Duration,
		run func(context.Context) turnkeeper.CallResult) (turnkeeper.CallResult, error)

	// Arrivals are the results of calls that are detached which have arrived
	// and are not in the journal yet, without what is shown. The turn appends
	// them; an output that one names is kept already.
	Arrivals(ctx context.Context) ([]turnkeeper.CallResult, error)

	// NewMessage takes an id for a message to a sub-agent, which the start of a
	// call will write (turnkeeper.Spawn). One that is not used is no harm.
	NewMessage(ctx context.Context) (turnkeeper.MessageID, error)

	// Late keeps a result that came after the lease was lost: as the call's
	// result when nobody has given a verdict on it, else beside the verdict.
	Late(ctx context.Context, result turnkeeper.CallResult) error
}

// A Freshness tells what earlier calls of an agent did, for turns that a
// schedule started.
type Freshness interface {
	// RecentCalls lists ended calls of the agent with this name and arguments hash
	// that ended within the window, newest first, at most 20.
	RecentCalls(ctx context.Context, agent, name, argsHash string, within time.Duration) ([]turnkeeper.PastCall, error)
}

// A Budget is asked before each model call. Implementations are safe for
// concurrent use.
type Budget interface {
	// Reserve takes the estimate of one call out of the budget, or says why it
	// may not be made. The reservation lasts until Settle, and for ever when
	// the worker dies: spend only ever adds up. It is asked for agents without
	// limits too, and then should answer at once.
	Reserve(ctx context.Context, spender Spender, estimate turnkeeper.Usage) (Reservation, error)
	// Settle replaces the reservation by what was used. A failed call settles
	// with what the provider reported, or zero.
	Settle(ctx context.Context, r Reservation, used turnkeeper.Usage) error
}

// A Spender is who a model call is for.
type Spender struct {
	Turn   turnkeeper.TurnID
	Agent  string
	Root   turnkeeper.TurnID // of the tree of agents that has limits; 0: it has none
	Limits SpendLimits
}

// SpendLimits bound a spender. 0: no bound.
type SpendLimits struct {
	TurnTokens, TurnCalls, DayTokens, DayCalls int64
	TreeTokens, TreeCalls                      int64 // of the turn's tree of agents
}

// A Reservation is an answer of Reserve.
type Reservation struct {
	ID      int64         // 0: nothing was reserved, Settle does nothing
	Blocked bool          // the call must not be made
	Scope   string        // Blocked: "turn", "tree" or "day"
	Retry   time.Duration // Blocked by the day: when the budget is open again
	Never   bool          // Blocked by the day: it takes more than any day has
	Reason  string        // Blocked: for operators; never a reply
}

// Models finds the provider of a model name ("provider/model") and what is
// known of it.
type Models interface {
	// Find returns an error in plain words for a provider nobody configured.
	Find(name string) (inference.Provider, ModelInfo, error)
}

// Agents tells of the agents that others may give work to. Implementations are safe
// for concurrent use.
type Agents interface {
	// Describe is what an agent says it is for; known is false where this process
	// has no such agent.
	Describe(name string) (description string, known bool)
}

// ModelInfo is what a turn must know of a model.
type ModelInfo struct {
	Provider      string
	Model         string // the provider's own name
	ContextWindow int    // tokens; 0: not known
}
