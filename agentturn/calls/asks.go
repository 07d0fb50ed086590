package calls

import (
	"encoding/json"
	"slices"

	"turnkeeper/asks"
	"turnkeeper/tools"
)

// Asks are asks of a turn, in the order in which they were opened.
type Asks []*asks.Ask

// Of returns the nth ask of a kind, or nil.
func (a Asks) Of(kind asks.Kind, n int) *asks.Ask {
	i := slices.IndexFunc(a, func(a *asks.Ask) bool { return a.Kind == kind && a.N == n })
	if i < 0 {
		return nil
	}
	return a[i]
}

// Approval returns the ask for the approval of a call, or nil.
func (a Asks) Approval() *asks.Ask { return a.Of(asks.KindApprove, 1) }

// Input returns the newest ask for input of a call's tool, or nil.
func (a Asks) Input() (newest *asks.Ask) {
	for n := 1; ; n++ {
		ask := a.Of(asks.KindInput, n)
		if ask == nil {
			return newest
		}
		newest = ask
	}
}

// That returns copies of the asks that is selects.
func (a Asks) That(is func(*asks.Ask) bool) (picked []asks.Ask) {
	for _, ask := range a {
		if is(ask) {
			picked = append(picked, *ask)
		}
	}
	return picked
}

// IsOpen reports whether an ask has no answer yet.
func IsOpen(a *asks.Ask) bool { return !a.Closed() }

// IsUnseen reports whether an ask is closed and the turn has not recorded that it saw the answer.
func IsUnseen(a *asks.Ask) bool { return a.Closed() && !a.Seen }

// inputAnswer returns the answer in canonical form. It is nil if there is none or if it is invalid. Then fault gives
// the reason.
func inputAnswer(ask *asks.Ask) (answer json.RawMessage, fault string) {
	if ask.State != asks.Answered {
		return nil, ""
	}
	schema, err := tools.CompileSchema(json.RawMessage(ask.Schema))
	if err != nil {
		return nil, err.Error()
	}
	args, fault := tools.CheckArguments(schema, ask.Answer)
	if fault != "" {
		return nil, fault
	}
	return json.RawMessage(args.Canonical), ""
}
