package turnkeeper

import (
	"errors"
	"fmt"
	"time"
)

// MaxOutputBytes is how much of one tool result is kept: 10 MB, as the tool
// produced it.
const MaxOutputBytes = 10_000_000

// OutputChunkBytes is how much of a stored result is read and written at once at
// most. What is larger is stored in chunks of this size.
const OutputChunkBytes = 64 << 10

// Bounds limit one turn. The zero value of a field is not a default: start
// from DefaultBounds.
type Bounds struct {
	MaxRounds      int           // model calls, the first included; 1 to 20
	RoundCeiling   int           // model calls with paging rounds included
	MaxDuration    time.Duration // wall time from the grant
	MaxToolCalls   int           // executed calls
	MaxPagingCalls int           // paging calls
	ToolTimeout    time.Duration // one tool call
	ModelTimeout   time.Duration // one model call that does not stream; 0: what is left of the turn
	ModelIdle      time.Duration // one model call without a byte
	Continuation   bool          // false: one round, its tools run, then the turn ends

	MaxSubAgentDepth int           // turns above another in a tree of sub-agents; 0: none is spawned
	MaxSubAgents     int           // sub-agents that one turn spawns; 0: none
	MaxTreeSubAgents int           // sub-agents in a whole tree; 0: none
	SubAgentTimeout  time.Duration // how long the reply of one is waited for

	LeaseTTL time.Duration // how long a grant lasts
	Margin   time.Duration // what must be left of the lease for safety

	MaxToolResultChars int  // of a result shown inline
	Paging             bool // the model may read on where a result was cut
	OutputHandles      bool // string arguments may name stored results: see outputs.Handle

	Async               bool          // large results as handles, slow calls in the background
	AsyncTokenThreshold int           // estimated tokens above which a result is a handle
	AsyncTimeout        time.Duration // after which a call goes to the background; 0: none does

	Summarise bool // older turns that do not fit the window are summarised by a model call; false: they are left out

	FreshnessWindow  time.Duration // scheduled turns: an equal success this recent is not run again; 0: off
	CooldownFailures int           // equal failures that start a cool-down; 0: off
	CooldownWindow   time.Duration // within which they count
	Cooldown         time.Duration // how long the call is then not run

	MaxAttempts   int           // turns for one message that fail by what counts against it
	GiveUpAfter   time.Duration // how long a message waits for a service that fails, from its acceptance; 0: not at all
	MaxDispatches int           // lost workers after which a message is answered without running
}

// DefaultBounds are the bounds of a turn whose agent sets none.
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

// Check says which bounds are impossible, each in an error that begins with the name of
// one, joined; or nil.
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
