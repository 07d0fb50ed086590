package policy_test

import (
	"errors"
	"testing"

	"turnkeeper/policy"
)

func TestStrictest(t *testing.T) {
	order := []policy.Verdict{policy.Allow, policy.Ask, policy.Deny}
	for i, a := range order {
		for j, b := range order {
			one, other := policy.Decision{Verdict: a, Rule: "one"}, policy.Decision{Verdict: b, Rule: "other"}
			want := one // of equally strict ones, the first
			if j > i {
				want = other
			}
			if got := policy.Strictest(one, other); got != want {
				t.Errorf("of %s and %s: %+v", a, b, got)
			}
		}
	}
}

// TestRulesWithoutACompiler compiles the two rules that need none. A cache asks about what it cannot compile.
func TestRulesWithoutACompiler(t *testing.T) {
	compiled := 0
	cache := policy.Cache{Compiler: func(string) (policy.Rule, error) {
		compiled++
		return nil, errors.New("no")
	}}
	for range 2 {
		for source, want := range map[string]policy.Decision{
			"": {Verdict: policy.Allow}, policy.Always: {Verdict: policy.Ask, Rule: policy.Always},
			policy.Never: {Verdict: policy.Allow, Rule: policy.Never},
			"x":          {Verdict: policy.Ask, Rule: "x", Reason: "no"},
		} {
			if got := cache.Decide(source, policy.Call{}); got != want {
				t.Errorf("%q: %+v, want %+v", source, got, want)
			}
		}
	}
	if compiled != 1 {
		t.Errorf("compiled %d times, want once", compiled)
	}
	if _, err := policy.Compile("x", nil); err == nil {
		t.Error("a rule was compiled without a compiler")
	}
}
