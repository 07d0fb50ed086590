package turnkeeper

import "time"

// MaxOutputBytes is the maximum size of a stored tool result, as the tool produced it. The rest is cut.
const MaxOutputBytes = 10_000_000

// Bounds limit one turn. Zero values are not defaults; package internal/bounds has the defaults and ranges.
type Bounds struct {
	MaxRounds      int           // model calls, including the first
	RoundCeiling   int           // model calls, including rounds of paging calls
	MaxDuration    time.Duration // wall time since the grant
	MaxToolCalls   int           // executed calls
	MaxPagingCalls int           // paging calls
	ToolTimeout    time.Duration // one tool call
	ModelTimeout   time.Duration // one model call without streaming; 0: the rest of the turn
	ModelIdle      time.Duration // the longest pause without a byte in a model call
	Continuation   bool          // false: the turn ends after one round and its tools

	MaxSubAgentDepth int           // maximum depth of a sub-agent below the first turn; 0: no sub-agents
	MaxSubAgents     int           // sub-agents per turn; 0: none
	MaxTreeSubAgents int           // sub-agents per tree; 0: none
	SubAgentTimeout  time.Duration // how long a call waits for a sub-agent's reply

	LeaseTTL time.Duration // duration of a grant
	Margin   time.Duration // time kept free before the lease ends

	MaxToolResultChars int  // of a result in the conversation
	Paging             bool // the model may read the rest of a cut result
	OutputHandles      bool // string arguments may name stored results, see outputs.Handle

	Async               bool          // show large results as handles, move slow calls to the background
	AsyncTokenThreshold int           // show a result of more estimated tokens as a handle
	AsyncTimeout        time.Duration // move a call to the background after this time; 0: never

	Summarise bool // a model call summarises older turns that do not fit the window; false: they are left out

	// scheduled turns: skip a call that succeeded with equal arguments this recently; 0: off
	FreshnessWindow  time.Duration
	CooldownFailures int           // equal failures that start a cooldown; 0: off
	CooldownWindow   time.Duration // the time in which they count
	Cooldown         time.Duration // how long the call is then skipped

	MaxAttempts int // failed attempts of a message that count
	// how long a message may wait for a failing service, since its first failure; 0: no time
	GiveUpAfter   time.Duration
	MaxDispatches int // lost workers after which a message gets its reply without another run
}
