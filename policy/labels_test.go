package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/policy"
)

func TestTheDefaultRule(t *testing.T) {
	untrusted := []policy.Mark{{Label: policy.Untrusted, Source: "the result of http_get in turn 1"}}
	private := []policy.Mark{{Label: policy.Private, Source: "a note"}}
	mail := policy.Flow{Sinks: []policy.Sink{policy.Sends}, Destination: []string{"to"},
		Destinations: []string{"*@example.com"}}
	pay := policy.Flow{Sinks: []policy.Sink{policy.Changes}}
	for _, c := range []struct {
		flow   policy.Flow
		marks  []policy.Mark
		args   string
		reason string // empty: allowed
	}{
		{pay, nil, `{}`, ""},
		{pay, private, `{}`, ""},
		{pay, untrusted, `{}`,
			"tool changes something, and the turn has untrusted content from the result of http_get in turn 1"},
		{mail, untrusted, `{"to":"x@y.z"}`, ""},
		{mail, private, `{"to":"ann@example.com"}`, ""},
		{mail, private, `{"to":["ann@example.com","bob@example.com"]}`, ""},
		{mail, private, `{"to":"x@y.z"}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":["ann@example.com","x@y.z"]}`,
			"tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":[]}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{}`, "tool sends content out, and the turn has private content from a note"},
		{mail, private, `{"to":{"a":1}}`, "tool sends content out, and the turn has private content from a note"},
		{policy.Flow{}, policy.Join(untrusted, private), `{}`, ""},
		{policy.Flow{Sinks: mail.Sinks, Destination: []string{"to"}}, private, `{"to":"ann@example.com"}`,
			"tool sends content out, and the turn has private content from a note"},
		{policy.Flow{Sinks: mail.Sinks, Destinations: mail.Destinations}, private, `{"":"ann@example.com"}`,
			"tool sends content out, and the turn has private content from a note"},
		{pay, []policy.Mark{{Label: policy.Untrusted}}, `{}`,
			"tool changes something, and the turn has untrusted content from an unknown source"},
	} {
		got := c.flow.Decide(policy.Call{Tool: "tool", Arguments: json.RawMessage(c.args), Labels: c.marks})
		if got.Reason != c.reason || (got.Verdict == policy.Ask) != (c.reason != "") {
			t.Errorf("%+v, %+v, %s: %+v", c.flow, c.marks, c.args, got)
		}
	}
}

// What one says about a tool replaces what the other says, field by field. An empty list says something too.
func TestOneFlowOrAnother(t *testing.T) {
	general := policy.Flow{
		Labels: []policy.Label{policy.Private}, Sinks: []policy.Sink{policy.Sends}, Destination: []string{"to"},
		Destinations: []string{"*@example.com"},
	}
	own := policy.Flow{Labels: []policy.Label{}, Sinks: []policy.Sink{}, Destination: []string{"url"},
		Destinations: []string{}}
	if diff := cmp.Diff(general, policy.Flow{}.Or(general)); diff != "" {
		t.Errorf("nothing, or the general flow (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, own.Or(general)); diff != "" {
		t.Errorf("its own flow, or the general one (-want +got):\n%s", diff)
	}
}
