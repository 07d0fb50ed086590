package tools

import (
	"cmp"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
)

// MaxResultChars is the maximum of Spec.MaxResultChars.
const MaxResultChars = 1_000_000

// FreshnessOff as a Spec's Freshness disables skipping: equal calls always run again.
const FreshnessOff time.Duration = -1

// Repeat says whether to run a call that repeats the one directly before it.
type Repeat string

// The values of Repeat. The zero value is RepeatAllow for a tool of effect none, and
// RepeatGuard for all others.
const (
	RepeatAllow Repeat = "allow" // run it again
	RepeatGuard Repeat = "guard" // if the first one succeeded, answer with its result
)

// MaxCache is the maximum of Spec.Cache.
const MaxCache = 24 * time.Hour

// CacheScope says whose calls share the results that a process keeps.
type CacheScope string

// The values of CacheScope.
const (
	CacheConversation CacheScope = "conversation" // those of one user in one conversation of the agent
	CacheAgent        CacheScope = "agent"        // all calls of the agent
)

// Guarded reports whether a call is not run again directly after an equal one
// that succeeded.
func (s Spec) Guarded() bool {
	if s.Paging {
		return false
	}
	if s.Repeat == "" {
		return s.Effect != turnkeeper.EffectNone
	}
	return s.Repeat == RepeatGuard
}

// ChecksEarlier reports whether a call in a turn of a schedule depends on equal calls
// of earlier turns: on one that succeeded within fresh (0: on no success), and on
// repeated failures. window is the turn's freshness window.
func (s Spec) ChecksEarlier(window time.Duration) (fresh time.Duration, ok bool) {
	if s.Paging || s.Effect == turnkeeper.EffectNone && s.Freshness <= 0 {
		return 0, false
	}
	return max(0, cmp.Or(s.Freshness, window)), true
}

// Switches override fields of a tool's Spec. A zero field changes nothing.
type Switches struct {
	Timeout        time.Duration
	Freshness      time.Duration
	Repeat         Repeat
	Early          *bool
	Cache          *time.Duration
	CacheScope     CacheScope
	MaxResultChars int
	Background     *bool
	Approve        string
	Flow           policy.Flow // its fields are overrides, each for itself
}

// Configure changes the spec of a registered tool. It refuses an unknown name, and an
// invalid spec as Register does. The tool is then unchanged.
func (r *Registry) Configure(name string, s Switches) error {
	e, ok := r.entries[name]
	if !ok {
		return r.unknown(name)
	}
	e.spec.Timeout = cmp.Or(s.Timeout, e.spec.Timeout)
	e.spec.Freshness = cmp.Or(s.Freshness, e.spec.Freshness)
	e.spec.Repeat = cmp.Or(s.Repeat, e.spec.Repeat)
	e.spec.Early = *cmp.Or(s.Early, &e.spec.Early)
	e.spec.Cache = *cmp.Or(s.Cache, &e.spec.Cache)
	e.spec.CacheScope = cmp.Or(s.CacheScope, e.spec.CacheScope)
	e.spec.MaxResultChars = cmp.Or(s.MaxResultChars, e.spec.MaxResultChars)
	e.spec.Background = cmp.Or(s.Background, e.spec.Background)
	e.spec.Approve = cmp.Or(s.Approve, e.spec.Approve)
	e.spec.Flow = s.Flow.Or(e.spec.Flow)
	if _, err := checkSpec(&e.spec); err != nil {
		return err
	}
	r.entries[name] = e
	return nil
}

func checkSwitches(spec Spec) error {
	switch {
	case spec.Repeat != "" && spec.Repeat != RepeatAllow && spec.Repeat != RepeatGuard:
		return fmt.Errorf("tool %q has repeat %q; it must be %s or %s", spec.Name, spec.Repeat,
			RepeatAllow, RepeatGuard)
	case spec.MaxResultChars < 0 || spec.MaxResultChars > MaxResultChars:
		return fmt.Errorf("tool %q has a max_result_chars of %d; it must be 0 to %d", spec.Name, spec.MaxResultChars,
			MaxResultChars)
	}
	return checkReads(spec)
}

// checkReads validates the switches of reads.
func checkReads(spec Spec) error {
	set := spec.readSwitch()
	switch {
	case spec.Cache < 0 || spec.Cache > MaxCache:
		return fmt.Errorf("tool %q has a cache of %s; it must be 0 to %s", spec.Name, spec.Cache, MaxCache)
	case spec.CacheScope != "" && spec.CacheScope != CacheConversation && spec.CacheScope != CacheAgent:
		return fmt.Errorf("tool %q has cache_scope %q; it must be %s or %s", spec.Name, spec.CacheScope,
			CacheConversation, CacheAgent)
	case set == "":
		return nil
	case spec.Effect != turnkeeper.EffectNone:
		return fmt.Errorf("tool %q has effect %s; %s is only for tools that read (effect none)", spec.Name,
			spec.Effect, set)
	case spec.Detached || spec.Paging || spec.AsksInput || len(spec.OutputIDs) > 0:
		return fmt.Errorf("tool %q: %s is not for tools that are detached, ask for input or read stored outputs",
			spec.Name, set)
	}
	return nil
}

// readSwitch names a switch that is set and only for reads; empty: none is.
func (s Spec) readSwitch() string {
	switch {
	case s.Early:
		return "early"
	case s.Cache > 0:
		return "cache"
	default:
		return ""
	}
}
