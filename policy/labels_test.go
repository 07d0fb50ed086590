package policy_test

import (
	"encoding/json"
	"testing"

	"turnkeeper/policy"
)

func TestDestinations(t *testing.T) {
	for _, c := range []struct {
		pattern, to string
		want        bool
	}{
		{"*@example.com", "ann@example.com", true},
		{"*@example.com", "Ann.B+x@EXAMPLE.com", true},
		{"*@example.com", "ann@evil.com,bob@example.com", false},
		{"*@example.com", "ann@evil.com\nbob@example.com", false},
		{"*@example.com", "<ann@evil.com>bob@example.com", false},
		{"*@example.com", "ann@example.com.evil.com", false},
		{"*@example.com", "ann@example.comx", false},
		{"ann@example.com", "ann@example.com", true},
		{"ann@example.com", "bob@example.com", false},
		{"https://*.example.com/hook", "https://a.example.com/hook", true},
		{"https://*.example.com/hook", "https://evil.com/a.example.com/hook", false},
		{"https://api.example.com/**", "https://api.example.com/a/b?c=d", true},
		{"https://api.example.com/**", "https://api.example.com.evil.com/a", false},
		{"https://api.example.com/**", "https://api.example.com@evil.com/a", false},
		{"https://*.example.com/**", "https://evil.com/x.example.com/a", false},
		{"*@example.com", "", false},
	} {
		if got := policy.MatchDestination(c.pattern, c.to); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.to, got, c.want)
		}
	}
	for pattern, valid := range map[string]bool{
		"*@example.com": true, "https://a/**": true, "": false, "*": false, "**": false, "a b": false, "https://**.com": false, "a**": false,
	} {
		if fault := policy.CheckDestination(pattern); (fault == "") != valid {
			t.Errorf("%q: %q", pattern, fault)
		}
	}
}

func TestTheDefaultRule(t *testing.T) {
	untrusted := []policy.Mark{{Label: policy.Untrusted, Source: "the result of http_get in turn 1"}}
	private := []policy.Mark{{Label: policy.Private, Source: "a note"}}
	mail := policy.Flow{Sinks: []policy.Sink{policy.Sends}, Destination: "to", Destinations: []string{"*@example.com"}}
	pay := policy.Flow{Sinks: []policy.Sink{policy.Changes}}
	for _, c := range []struct {
		flow   policy.Flow
		marks  []policy.Mark
		args   string
		reason string // empty: allowed
	}{
		{pay, nil, `{}`, ""},
		{pay, private, `{}`, ""},
		{pay, untrusted, `{}`, "tool changes something, and the turn has untrusted content from the result of http_get in turn 1"},
		{mail, untrusted, `{"to":"x@y.z"}`, ""},
		{mail, private, `{"to":"ann@example.com"}`, ""},
		{mail, private, `{"to":["ann@example.com","bob@example.com"]}`, ""},
		{mail, private, `{"to":"x@y.z"}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":["ann@example.com","x@y.z"]}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":[]}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":{"a":1}}`, "tool sends content out, and the turn has private content from a note"},
		{policy.Flow{}, policy.Join(untrusted, private), `{}`, ""},
	} {
		got := c.flow.Decide(policy.Call{Tool: "tool", Arguments: json.RawMessage(c.args), Labels: c.marks})
		if got.Reason != c.reason || (got.Verdict == policy.Ask) != (c.reason != "") {
			t.Errorf("%+v, %+v, %s: %+v", c.flow, c.marks, c.args, got)
		}
	}
}
