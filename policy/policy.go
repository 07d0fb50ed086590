// Package policy says what a rule about tool calls is: it allows a call, asks a person first, or denies it. Package
// policy/cel compiles rules that are written in CEL.
package policy

import (
	"encoding/json"
	"fmt"
	"sync"

	"turnkeeper"
)

// A Verdict is what happens to a call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // it runs
	Ask   Verdict = "ask"   // it runs once a person has approved it
	Deny  Verdict = "deny"  // it does not run, and the model is told why
)

// A Decision is the verdict about one call. The zero value allows it.
type Decision struct {
	Verdict Verdict
	Rule    string // its source
	Reason  string // one sentence for people and for the model; empty: the rule gives none
}

// A Call is what a rule sees of a tool call.
type Call struct {
	Tool         string
	Arguments    json.RawMessage // a JSON object: those that will run, with handles replaced by their texts
	Effect       turnkeeper.Effect
	Agent        string
	Conversation string
	Trigger      turnkeeper.Trigger
	Labels       []Mark // of its arguments and of what led to it; one for each label
}

// A Rule decides about calls. It is safe for concurrent use, depends on nothing but the call, and never fails: a rule
// that cannot be evaluated asks.
type Rule interface {
	Decide(c Call) Decision
}

// A Compiler compiles the source of a rule. Its errors are sentences for the author of the rule.
type Compiler func(source string) (Rule, error)

// The rules that need no compiler.
const (
	Always = "always" // ask about each call
	Never  = "never"  // allow each call
)

// AllTools is the key of a rule for all tools, among rules by tool.
const AllTools = "*"

// Strictest returns the stricter of two decisions: a denial, else a question, else a. Of equally strict ones it returns a.
func Strictest(a, b Decision) Decision {
	if rank(b.Verdict) > rank(a.Verdict) {
		return b
	}
	return a
}

func rank(v Verdict) int {
	switch v {
	case Deny:
		return 2
	case Ask:
		return 1
	default:
		return 0
	}
}

// Compile compiles a rule, without other if it is Always or Never. A nil other refuses everything else.
func Compile(source string, other Compiler) (Rule, error) {
	switch {
	case source == Always:
		return fixed{Verdict: Ask, Rule: source}, nil
	case source == Never:
		return fixed{Verdict: Allow, Rule: source}, nil
	case other == nil:
		return nil, fmt.Errorf("the rule %q is neither %s nor %s, and this program compiles no other rules", source, Always, Never)
	}
	return other(source)
}

// A fixed rule decides the same about each call.
type fixed Decision

// Decide returns the decision.
func (f fixed) Decide(Call) Decision { return Decision(f) }

// A Cache compiles rules when they are first used. It is safe for concurrent use.
type Cache struct {
	Compiler Compiler // of other rules than Always and Never; nil: they ask
	rules    sync.Map // by source
}

// Decide decides about a call by a rule. An empty source allows it. A rule that does not compile asks: programs check
// rules when they read them, so it was written for another version.
func (c *Cache) Decide(source string, call Call) Decision {
	if source == "" {
		return Decision{Verdict: Allow}
	}
	if known, ok := c.rules.Load(source); ok {
		return known.(Rule).Decide(call)
	}
	rule, err := Compile(source, c.Compiler)
	if err != nil {
		rule = fixed{Verdict: Ask, Rule: source, Reason: err.Error()}
	}
	c.rules.Store(source, rule)
	return rule.Decide(call)
}
