package turnkeeper

import (
	"errors"
	"fmt"
	"time"
)

// MaxOutputBytes is the maximum size of a stored tool result, as the tool produced it. The rest is cut.
const MaxOutputBytes = 10_000_000

// Bounds limit one turn. Zero values are not defaults: start from DefaultBounds.
type Bounds struct {
	MaxRounds      int           // model calls, including the first; 1 to 20
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

	FreshnessWindow  time.Duration // scheduled turns: skip a call that succeeded with equal arguments this recently; 0: off
	CooldownFailures int           // equal failures that start a cooldown; 0: off
	CooldownWindow   time.Duration // the time in which they count
	Cooldown         time.Duration // how long the call is then skipped

	MaxAttempts   int           // failed attempts of a message that count
	GiveUpAfter   time.Duration // how long a message may wait for a failing service, since its first failure; 0: no time
	MaxDispatches int           // lost workers after which a message gets its reply without another run
}

// DefaultBounds returns the bounds of an agent that sets none.
func DefaultBounds() Bounds {
	return Bounds{
		MaxRounds:           3,
		RoundCeiling:        20,
		MaxDuration:         90 * time.Second,
		MaxToolCalls:        12,
		MaxPagingCalls:      64,
		ToolTimeout:         60 * time.Second,
		ModelIdle:           20 * time.Second,
		Continuation:        true,
		MaxSubAgentDepth:    3,
		MaxSubAgents:        8,
		MaxTreeSubAgents:    32,
		SubAgentTimeout:     24 * time.Hour,
		LeaseTTL:            240 * time.Second,
		Margin:              30 * time.Second,
		MaxToolResultChars:  6000,
		Paging:              true,
		Async:               true,
		AsyncTokenThreshold: 10000,
		AsyncTimeout:        5 * time.Second,
		FreshnessWindow:     600 * time.Second,
		CooldownFailures:    3,
		CooldownWindow:      1800 * time.Second,
		Cooldown:            1800 * time.Second,
		MaxAttempts:         3,
		GiveUpAfter:         24 * time.Hour,
		MaxDispatches:       3,
		Summarise:           true,
	}
}

// Check returns one joined error for each invalid bound, which starts with its name in the settings, or nil.
func (b Bounds) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if b.MaxRounds < 1 || b.MaxRounds > 20 {
		fault("max_rounds is %d; it must be 1 to 20", b.MaxRounds)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"max_duration", b.MaxDuration}, {"tool_timeout", b.ToolTimeout},
		{"model_idle_timeout", b.ModelIdle}, {"lease_ttl", b.LeaseTTL},
		{"sub_agent_timeout", b.SubAgentTimeout},
	} {
		if d.value <= 0 {
			fault("%s is %s; it must be more than 0", d.name, d.value)
		}
	}
	if b.ModelTimeout < 0 {
		fault("model_timeout is %s; it must not be negative", b.ModelTimeout)
	}
	if b.GiveUpAfter < 0 {
		fault("give_up_after is %s; it must not be negative", b.GiveUpAfter)
	}
	if b.Margin < 0 {
		fault("lease_margin is %s; it must not be negative", b.Margin)
	}
	if b.MaxDuration+b.Margin >= b.LeaseTTL {
		fault("max_duration %s plus the lease margin %s must be less than the lease of %s: lower max_duration or raise lease_ttl",
			b.MaxDuration, b.Margin, b.LeaseTTL)
	}
	if b.MaxToolCalls < 0 || b.MaxToolCalls > 1000 {
		fault("max_tool_calls is %d; it must be 0 to 1000", b.MaxToolCalls)
	}
	if b.MaxSubAgentDepth < 0 || b.MaxSubAgents < 0 || b.MaxTreeSubAgents < 0 {
		fault("max_sub_agent_depth is %d, max_sub_agents %d and max_tree_sub_agents %d; none may be negative",
			b.MaxSubAgentDepth, b.MaxSubAgents, b.MaxTreeSubAgents)
	}
	if b.MaxToolResultChars < 1 {
		fault("max_tool_result_chars is %d; it must be at least 1", b.MaxToolResultChars)
	}
	if b.AsyncTokenThreshold < 0 || b.AsyncTimeout < 0 {
		fault("async_token_threshold is %d and async_timeout is %s; neither may be negative", b.AsyncTokenThreshold, b.AsyncTimeout)
	}
	return errors.Join(faults...)
}
