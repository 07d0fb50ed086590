package tools_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// TestConfigure sets each switch of a tool alone: it changes its own field and no other. A switch that is not set
// changes nothing, and a refused one leaves the tool as it was.
func TestConfigure(t *testing.T) {
	reads := named("reads")
	reads.spec.Effect, reads.spec.Early, reads.spec.Cache = turnkeeper.EffectNone, true, time.Hour
	r := registry(t, reads)
	if err := r.Configure("reads", tools.Switches{Early: new(false), Cache: new(time.Minute),
		CacheScope: tools.CacheAgent}); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.Spec("reads"); got.Early || got.Cache != time.Minute || got.CacheScope != tools.CacheAgent {
		t.Errorf("a read is configured as %+v", got)
	}
	if err := r.Configure("reads", tools.Switches{Cache: new(time.Duration(0))}); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.Spec("reads"); got.Early || got.Cache != 0 || got.CacheScope != tools.CacheAgent {
		t.Errorf("a read is configured as %+v", got)
	}
	before := named("tool")
	before.spec.Effect, before.spec.Timeout, before.spec.Freshness, before.spec.Repeat = turnkeeper.EffectKeyed,
		time.Second, time.Minute, tools.RepeatAllow
	before.spec.MaxResultChars, before.spec.Background, before.spec.Approve = 10, new(true), "always"
	before.spec.Flow = policy.Flow{Labels: []policy.Label{policy.Private}, Destinations: []string{"a@b.example"}}
	for name, c := range map[string]struct {
		set  tools.Switches
		does func(*tools.Spec)
	}{
		"nothing": {tools.Switches{}, func(*tools.Spec) {}},
		"the timeout": {tools.Switches{Timeout: 2 * time.Second}, func(s *tools.Spec) {
			s.Timeout = 2 * time.Second
		}},
		"the freshness": {tools.Switches{Freshness: tools.FreshnessOff}, func(s *tools.Spec) {
			s.Freshness = tools.FreshnessOff
		}},
		"the repeat": {tools.Switches{Repeat: tools.RepeatGuard}, func(s *tools.Spec) {
			s.Repeat = tools.RepeatGuard
		}},
		"the size": {tools.Switches{MaxResultChars: 1_000_000}, func(s *tools.Spec) {
			s.MaxResultChars = 1_000_000
		}},
		"the background": {tools.Switches{Background: new(false)}, func(s *tools.Spec) { s.Background = new(false) }},
		"the approval":   {tools.Switches{Approve: "never"}, func(s *tools.Spec) { s.Approve = "never" }},
		"a flow of its own": {tools.Switches{Flow: policy.Flow{Destinations: []string{"x@y.example"}}},
			func(s *tools.Spec) {
				s.Flow.Destinations = []string{"x@y.example"}
			}},
	} {
		r := registry(t, before, named("other"))
		if err := r.Configure("tool", c.set); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := before.spec
		c.does(&want)
		got, ok := r.Spec("tool")
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if other, _ := r.Spec("other"); other.Timeout != 0 || other.Approve != "" {
			t.Errorf("%s: the other tool is %+v", name, other)
		}
	}
	r = registry(t, before)
	for want, set := range map[string]tools.Switches{
		`tool "tool" has repeat "never"; it must be allow or guard`: {Repeat: "never",
			Timeout: time.Hour},
		`tool "tool" has a max_result_chars of 1000001; it must be 0 to 1000000`: {MaxResultChars: 1_000_001,
			Timeout: time.Hour},
		`tool "tool" has a max_result_chars of -1; it must be 0 to 1000000`: {MaxResultChars: -1,
			Timeout: time.Hour},
		`tool "tool" has effect keyed; early is only for tools that read (effect none)`: {Early: new(true)},
		`tool "tool" has effect keyed; cache is only for tools that read (effect none)`: {Cache: new(time.Minute)},
		`tool "tool" has a cache of 24h0m0.000000001s; it must be 0 to 24h0m0s`: {
			Cache: new(tools.MaxCache + 1)},
		`tool "tool" has a cache of -1ns; it must be 0 to 24h0m0s`:             {Cache: new(time.Duration(-1))},
		`tool "tool" has cache_scope "user"; it must be conversation or agent`: {CacheScope: "user"},
		`tool "tool" has a timeout of -1s; it must not be negative`:            {Timeout: -time.Second},
		`tool "tool" has the destination "": it must have 1 to 200 bytes without spaces`: {
			Flow: policy.Flow{Destinations: []string{""}}},
	} {
		if err := r.Configure("tool", set); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		got, _ := r.Spec("tool")
		if diff := cmp.Diff(before.spec, got); diff != "" {
			t.Errorf("after a refusal (-want +got):\n%s", diff)
		}
	}
	if err := r.Configure("tol", tools.Switches{}); err == nil ||
		err.Error() != `there is no tool "tol"; did you mean "tool"? (there are: tool)` {
		t.Errorf("an unknown tool: %v", err)
	}
	if err := registry(t).Configure("x", tools.Switches{}); err == nil ||
		err.Error() != `there is no tool "x"; no tools are registered` {
		t.Errorf("without any tool: %v", err)
	}
}

// TestWhichReadsHaveTheirSwitches checks that early and cache are refused for tools that do not simply read.
func TestWhichReadsHaveTheirSwitches(t *testing.T) {
	for name, change := range map[string]func(*tools.Spec){
		"detached":             func(s *tools.Spec) { s.Detached, s.Timeout = true, time.Hour },
		"asks for input":       func(s *tools.Spec) { s.AsksInput = true },
		"pages":                func(s *tools.Spec) { s.Paging = true },
		"reads a given output": func(s *tools.Spec) { s.OutputIDs = []string{"id"} },
	} {
		for key, set := range map[string]func(*tools.Spec){
			"early": func(s *tools.Spec) { s.Early = true }, "cache": func(s *tools.Spec) { s.Cache = time.Second },
		} {
			tool := named("tool")
			tool.spec.Effect = turnkeeper.EffectNone
			change(&tool.spec)
			if _, err := tools.NewRegistry(tool); err != nil {
				t.Fatal(err)
			}
			set(&tool.spec)
			want := `tool "tool": ` + key +
				" is not for tools that are detached, ask for input or read stored outputs"
			if _, err := tools.NewRegistry(tool); err == nil || err.Error() != want {
				t.Errorf("one that %s: %v, want %s", name, err, want)
			}
		}
	}
}

// TestWhichCallsAreSkipped checks for each kind of tool whether a repeated call is answered with the result of the one
// before, and which earlier calls count.
func TestWhichCallsAreSkipped(t *testing.T) {
	const window = time.Hour
	for _, c := range []struct {
		spec    tools.Spec
		guarded bool
		fresh   time.Duration
		checks  bool
	}{
		{tools.Spec{Effect: turnkeeper.EffectNone}, false, 0, false},
		{tools.Spec{Effect: turnkeeper.EffectNone, Freshness: tools.FreshnessOff}, false, 0, false},
		{tools.Spec{Effect: turnkeeper.EffectNone, Freshness: 1}, false, 1, true},
		{tools.Spec{Effect: turnkeeper.EffectNone, Repeat: tools.RepeatGuard}, true, 0, false},
		{tools.Spec{Effect: turnkeeper.EffectOnce}, true, window, true},
		{tools.Spec{Effect: turnkeeper.EffectKeyed, Freshness: time.Minute}, true, time.Minute, true},
		{tools.Spec{Effect: turnkeeper.EffectOnce, Freshness: tools.FreshnessOff, Repeat: tools.RepeatAllow},
			false, 0, true},
		{tools.Spec{Effect: turnkeeper.EffectOnce, Paging: true, Repeat: tools.RepeatGuard, Freshness: 1},
			false, 0, false},
	} {
		fresh, checks := c.spec.ChecksEarlier(window)
		if c.spec.Guarded() != c.guarded || fresh != c.fresh || checks != c.checks {
			t.Errorf("%+v: guarded %t, earlier calls count for %s, %t", c.spec, c.spec.Guarded(), fresh, checks)
		}
	}
}

// TestNamesThatDifferInSeparators checks that a name is found whatever separators and case a model writes, however many
// of them.
func TestNamesThatDifferInSeparators(t *testing.T) {
	r := registry(t, named("a_b-c_d-e_f"), named("abcde"), named("xbcdefgh"))
	for _, separator := range []string{"", "_", "-", ".", " ", "_-. "} {
		for _, name := range []string{"abcdef", "ABCDEF"} {
			wrong := strings.Join(strings.Split(name, ""), separator)
			if got := r.Nearest(wrong); got != "a_b-c_d-e_f" {
				t.Errorf("Nearest(%q) = %q", wrong, got)
			}
		}
	}
	for wrong, want := range map[string]string{
		"abcdx": "abcde", "abcxx": "abcde", "abxxx": "", // two bytes may differ
		"xbcdefghiii": "xbcdefgh", "xbcdefghiiii": "xbcdefgh", "xbcdefghiiiii": "", // a third of them
		"a" + strings.Repeat("_", 200) + "bcde": "abcde", strings.Repeat("x", 129): "",
	} {
		if got := r.Nearest(wrong); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", wrong, got, want)
		}
	}
}
