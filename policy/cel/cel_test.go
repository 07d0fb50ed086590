package cel_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/policy/cel"
)

func decide(t *testing.T, source, args string) policy.Decision {
	t.Helper()
	rule, err := cel.Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return rule.Decide(policy.Call{
		Tool: "pay_invoice", Arguments: json.RawMessage(args), Effect: turnkeeper.EffectOnce,
		Agent: "clerk", User: "anna", Conversation: "main", Trigger: turnkeeper.TriggerMessage,
		Labels: []policy.Mark{{Label: policy.Private, Source: "a note"}},
	})
}

func TestARuleDecides(t *testing.T) {
	const limit = `args.amount > 500 ? ask("the amount is above 500") : allow`
	for _, c := range []struct {
		rule, args string
		want       policy.Verdict
		reason     string
	}{
		{limit, `{"amount":501}`, policy.Ask, "the amount is above 500"},
		{limit, `{"amount":500.5}`, policy.Ask, "the amount is above 500"},
		{limit, `{"amount":500}`, policy.Allow, ""},
		{`args.to.endsWith("@example.com") ? allow : deny("only example.com")`, `{"to":"a@b.c"}`, policy.Deny,
			"only example.com"},
		{
			`tool == "pay_invoice" && agent == "clerk" && effect == "once" && trigger == "message" && conversation == "main" ? ask : allow`, `{}`, policy.Ask, ""},
		{`"private" in labels ? ask("private content") : allow`, `{}`, policy.Ask, "private content"},
		{`"untrusted" in labels ? ask : allow`, `{}`, policy.Allow, ""},
		{`has(args.note) ? deny : allow`, `{}`, policy.Allow, ""},
		{`args.text.lowerAscii().contains("secret") ? ask("a: b") : allow`, `{"text":"SECRET"}`, policy.Ask, "a: b"},
	} {
		want := policy.Decision{Verdict: c.want, Rule: c.rule, Reason: c.reason}
		if got := decide(t, c.rule, c.args); got != want {
			t.Errorf("%s with %s: %+v, want %+v", c.rule, c.args, got, want)
		}
	}
}

func TestARuleThatCannotBeEvaluatedAsks(t *testing.T) {
	for rule, args := range map[string]string{
		`args.amount > 500 ? ask : allow`:   `{}`,               // no such argument
		`args.amount > 500 ? deny : allow `: `{"amount":"501"}`, // another type
		`string(args.verdict)`:              `{"verdict":"yes"}`,
		`args.a.all(x, args.a.all(y, x == y)) ? ask : allow`: `{"a":[` + strings.TrimSuffix(strings.Repeat("1,",
			1000), ",") + `]}`,
	} {
		got := decide(t, rule, args)
		if got.Verdict != policy.Ask || !strings.HasPrefix(got.Reason, "the rule could not be evaluated: ") {
			t.Errorf("%s: %+v", rule, got)
		}
	}
}

// TestNumbersAreExact tests that a rule compares the number of the text, not a float.
func TestNumbersAreExact(t *testing.T) {
	const one = `args.n == 1122334455667788801 ? allow : ask("another")`
	for _, c := range []struct {
		rule, args string
		want       policy.Verdict
		reason     string
	}{
		{one, `{"n":1122334455667788801}`, policy.Allow, ""},
		{one, `{"n":1122334455667788801.0}`, policy.Allow, ""},
		{one, `{"n":1122334455667788802}`, policy.Ask, "another"},
		{one, `{"n":1122334455667788800}`, policy.Ask, "another"},
		{`args.n <= 9007199254740992 ? allow : ask`, `{"n":9007199254740993}`, policy.Ask, ""},
		{`args.n == args.m ? allow : ask`, `{"n":9007199254740993,"m":9007199254740992}`, policy.Ask, ""},
		{`args == {"n": 9007199254740993} ? allow : ask`, `{"n":9007199254740992}`, policy.Ask, ""},
		{`args.n in [9007199254740993] ? allow : ask`, `{"n":9007199254740992}`, policy.Ask, ""},
		{`args.n == 18446744073709551615u ? allow : ask`, `{"n":18446744073709551615}`, policy.Allow, ""},
		{`args.n == 18446744073709551615u ? allow : ask`, `{"n":18446744073709551614}`, policy.Ask, ""},
		{`args.n == -9223372036854775808 ? allow : ask`, `{"n":-9223372036854775808}`, policy.Allow, ""},
		{`args.n == 19.99 ? allow : ask`, `{"n":1.999e1}`, policy.Allow, ""},
		{`args.n == 500.0 && args.n >= 500 && args.n < 500.5 ? allow : ask`, `{"n":500}`, policy.Allow, ""},
		{`args.n > -0.5 ? allow : deny`, `{"n":-0.25}`, policy.Allow, ""},
		{`args.n == 1e-3 || args.n == .25 ? allow : deny`, `{"n":0.25}`, policy.Allow, ""},
		{`args.n > 1000.0 ? allow : ask`, `{"n":1e300}`, policy.Allow, ""},
		{`-args.n < 0.0 ? allow : ask`, `{"n":1e300}`, policy.Allow, ""},
		{`args.n > 0.75-0.5 ? allow : ask`, `{"n":0.5}`, policy.Allow, ""},
		{`double(args.n) > 1.5E+0 ? allow : ask`, `{"n":2}`, policy.Allow, ""},
		{`[ask, allow][args.n > 2251799813685249.5 ? 1 : 0]`, `{"n":2251799813685250}`, policy.Allow, ""},
		{`args.n > 0007.50 ? ask : allow`, `{"n":7}`, policy.Allow, ""},
		{`has(args.n) ? ask : allow`, ``, policy.Allow, ""},
		{`tool == "pay_invoice" ? allow : ask`, `{"n":0.10000000000000000001}`, policy.Allow, ""},
	} {
		if got := decide(t, c.rule, c.args); got.Verdict != c.want || got.Reason != c.reason {
			t.Errorf("%s with %s: %+v, want %s %s", c.rule, c.args, got, c.want, c.reason)
		}
	}
	for rule, args := range map[string]string{
		`args.n == 0.1 ? allow : allow`: `{"n":0.10000000000000000001}`,
		`has(args.m) ? deny : allow`:    `{"n":[{"x":123456789012345678901}]}`,
		`args.n == 18446744073709551616.5 ? deny : allow`[:24] +
			` ? deny : allow `: `{"n":18446744073709551617}`,
		`double(args.n) == double(9007199254740992) ? allow : allow`:                       `{"n":9007199254740993}`,
		`[args.n].exists(n, double(n) * 1.0 == double("9007199254740992")) ? allow : deny`: `{"n":9007199254740993}`,
	} {
		if got := decide(t, rule, args); got.Verdict != policy.Ask || !strings.HasPrefix(got.Reason,
			"the rule could not be evaluated: ") {
			t.Errorf("%s with %s: %+v", rule, args, got)
		}
	}
}

// TestNumbersAreNeverTheSameByAccident tests that a rule takes two numbers for the same, alone and in lists and maps,
// exactly if they are, or cannot be evaluated.
func TestNumbersAreNeverTheSameByAccident(t *testing.T) {
	var numbers []string
	for _, near := range []string{"0", "1", "9007199254740992", "9223372036854775807", "18446744073709551615",
		"1122334455667788801", "-9223372036854775808", "100000000000000000000"} {
		n, _ := new(big.Int).SetString(near, 10)
		for d := int64(-2); d <= 2; d++ {
			numbers = append(numbers, new(big.Int).Add(n, big.NewInt(d)).String())
		}
	}
	numbers = append(numbers, "0.1", "0.10000000000000000001", "0.1000000000000000055", "1e-1", "1.0", "1.5", "15e-1",
		"1e300", "4503599627370497.5", "4503599627370497.3")
	rules := map[string]policy.Rule{}
	for _, source := range []string{
		`args.a == args.b ? allow : deny`, `args.a != args.b ? deny : allow`, `args.a in [args.b] ? allow : deny`,
		`{"n": [args.a]} == {"n": [args.b]} ? allow : deny`, `args.a <= args.b && args.a >= args.b ? allow : deny`,
	} {
		rule, err := cel.Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		rules[source] = rule
	}
	decided := 0
	for _, a := range numbers {
		for _, b := range numbers {
			ratA, _ := new(big.Rat).SetString(a)
			ratB, _ := new(big.Rat).SetString(b)
			want := map[bool]policy.Verdict{true: policy.Allow, false: policy.Deny}[ratA.Cmp(ratB) == 0]
			for source, rule := range rules {
				got := rule.Decide(policy.Call{Arguments: json.RawMessage(`{"a":` + a + `,"b":` + b + `}`)})
				if got.Verdict == want {
					decided++
				} else if got.Verdict != policy.Ask {
					t.Errorf("%s with %s and %s: %+v", source, a, b, got)
				}
			}
		}
	}
	if all := len(numbers) * len(numbers) * len(rules); decided < all/2 {
		t.Errorf("only %d of %d could be decided", decided, all)
	}
}

func TestAnInvalidRuleIsRefused(t *testing.T) {
	for rule, want := range map[string]string{
		`args.amount >`:           "the rule is not valid CEL: ",
		`args.amount > 500`:       "the rule returns bool: it must return allow, ask or deny",
		`nobody ? ask : allow`:    "undeclared reference to 'nobody'",
		strings.Repeat("a", 4000): "the rule is not valid CEL",
		strings.Repeat("a", 4001): "the rule has 4001 bytes: at most 4000 are allowed",

		`args.n == 9223372036854775808 ? allow : ask`:                    "invalid int literal",
		`args.n == 18446744073709551616u ? allow : ask`:                  "invalid uint literal",
		`args.n == 1e400 ? allow : ask`:                                  "invalid double literal",
		`args.n == 1122334455667788801.0 ? allow : ask`:                  "stands for several integers",
		`args.n == -9007199254740992.0 ? allow : ask`:                    "stands for several integers",
		`"é" == tool || args.n == -0.10000000000000000001 ? allow : ask`: "the rule has the number -0.10000000000000000001, which has more digits",
		`args.n == [1, .30000000000000001 ][1] ? allow : ask`:            "the rule has the number .30000000000000001, which has more digits",
	} {
		if _, err := cel.Compile(rule); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want an error with %q", rule, err, want)
		}
	}
}

func TestFixedRulesNeedNoCompiler(t *testing.T) {
	for source, want := range map[string]policy.Verdict{policy.Always: policy.Ask, policy.Never: policy.Allow} {
		rule, err := policy.Compile(source, nil)
		if err != nil || rule.Decide(policy.Call{}) != (policy.Decision{Verdict: want, Rule: source}) {
			t.Errorf("%s: %v, %v", source, rule, err)
		}
	}
	if _, err := policy.Compile("ask", nil); err == nil || !strings.Contains(err.Error(), "neither always nor never") {
		t.Errorf("a rule without a compiler: %v", err)
	}
	if rule, err := policy.Compile("ask", cel.Compile); err != nil || rule.Decide(policy.Call{}).Verdict != policy.Ask {
		t.Errorf("a rule with a compiler: %v, %v", rule, err)
	}
}

func TestTheStrictestDecisionWins(t *testing.T) {
	allow, ask, deny := policy.Decision{}, policy.Decision{Verdict: policy.Ask}, policy.Decision{Verdict: policy.Deny}
	for _, c := range []struct{ a, b, want policy.Decision }{
		{ask, deny, deny}, {deny, ask, deny}, {allow, ask, ask}, {ask, allow, ask},
		{allow, policy.Decision{Verdict: policy.Allow}, allow},
	} {
		if got := policy.Strictest(c.a, c.b); got != c.want {
			t.Errorf("the stricter of %+v and %+v is %+v", c.a, c.b, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	rule, err := cel.Compile(`args.amount > 500 ? ask("the amount is above 500") : allow`)
	if err != nil {
		b.Fatal(err)
	}
	call := policy.Call{Arguments: json.RawMessage(`{"amount":501}`)}
	for b.Loop() {
		rule.Decide(call)
	}
}
