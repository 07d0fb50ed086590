// Package policy defines rules about tool calls. A rule allows a call, asks a person first, or denies it. Package
// policy/cel compiles rules written in CEL.
package policy

import (
	"encoding/json"
	"fmt"
	"sync"

	"turnkeeper"
)

// A Verdict decides what happens to a call.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow" // it runs
	Ask   Verdict = "ask"   // it runs after a person has approved it
	Deny  Verdict = "deny"  // it does not run, and the model gets the reason
)

// A Decision is the verdict about one call, with its rule and reason. The zero value allows the call.
type Decision struct {
	Verdict Verdict
	Rule    string // the source of the rule
	Reason  string // one sentence for people and the model; empty: none
}

// Allows reports whether the call may run without a person.
func (d Decision) Allows() bool { return rank(d.Verdict) == 0 }

// A Call is a tool call, as rules see it.
type Call struct {
	Tool string
	// a JSON object, as the tool will get it: handles are replaced by the text of their results
	Arguments    json.RawMessage
	Effect       turnkeeper.Effect
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Trigger      turnkeeper.Trigger
	Labels       []Mark // of its arguments and of the content that led to it; one mark for each label
}

// A Rule decides about calls. It must be safe for concurrent use and depend only on the call. If it cannot be
// evaluated, it asks.
type Rule interface {
	Decide(c Call) Decision
}

// A Compiler compiles the source of a rule. Its errors are written for the author of the rule.
type Compiler func(source string) (Rule, error)

// The rules that need no compiler.
const (
	Always = "always" // asks about every call
	Never  = "never"  // allows every call
)

// AllTools is the key of the rule for all tools in a map of rules by tool.
const AllTools = "*"

// Strictest returns the stricter of two decisions: Deny before Ask before Allow. If they are equally strict, it returns
// a.
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

// Compile compiles a rule. It uses other for all rules except Always and Never. If other is nil, such rules are an
// error.
func Compile(source string, other Compiler) (Rule, error) {
	switch {
	case source == Always:
		return fixed{Verdict: Ask, Rule: source}, nil
	case source == Never:
		return fixed{Verdict: Allow, Rule: source}, nil
	case other == nil:
		return nil, fmt.Errorf("the rule %q is neither %s nor %s, and this program compiles no other rules", source,
			Always, Never)
	}
	return other(source)
}

// A fixed rule makes the same decision about every call.
type fixed Decision

// Decide returns the decision.
func (f fixed) Decide(Call) Decision { return Decision(f) }

// A Cache compiles each rule at its first use. It is safe for concurrent use.
type Cache struct {
	Compiler Compiler // compiles rules other than Always and Never; nil: such rules ask
	rules    sync.Map // by source
}

// Decide returns the decision of a rule about a call. An empty source allows it. A rule that does not compile asks:
// programs check rules when they read them, so it was written for another version.
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
