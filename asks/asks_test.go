package asks_test

import (
	"slices"
	"strings"
	"testing"

	"turnkeeper/asks"
)

var states = []asks.State{asks.Open, asks.Approved, asks.Denied, asks.Answered, asks.Expired, asks.Withdrawn}

// TestWhatAPersonMayDecide lists the states that a person's answer can give an ask of each kind.
func TestWhatAPersonMayDecide(t *testing.T) {
	for kind, want := range map[asks.Kind][]asks.State{
		asks.KindApprove:  {asks.Approved, asks.Denied},
		asks.KindQuestion: {asks.Denied, asks.Answered},
		asks.KindInput:    {asks.Denied, asks.Answered},
		asks.KindSettle:   {asks.Answered},
		asks.KindBudget:   {asks.Approved, asks.Denied},
		asks.KindReply:    {asks.Approved, asks.Denied},
	} {
		var may []asks.State
		for _, state := range states {
			err := kind.Check(state)
			if (err == nil) != kind.Decides(state) {
				t.Errorf("%s, %s: decides %t, error %v", kind, state, kind.Decides(state), err)
			}
			if err == nil {
				may = append(may, state)
			} else if !strings.Contains(err.Error(), "can be "+string(kind.Takes())) ||
				strings.Contains(err.Error(), "or denied") != (kind != asks.KindSettle) {
				t.Errorf("%s, %s: %v", kind, state, err)
			}
		}
		if !slices.Equal(may, want) {
			t.Errorf("%s: %v, want %v", kind, may, want)
		}
	}
}

// TestWhatAllowsACall lists what allows a call to start: an approval, and the word of a person that its last start did
// not happen.
func TestWhatAllowsACall(t *testing.T) {
	for _, kind := range []asks.Kind{asks.KindApprove, asks.KindQuestion, asks.KindInput, asks.KindSettle,
		asks.KindBudget, asks.KindReply} {
		for _, state := range states {
			for _, answer := range []string{"", asks.Happened, asks.DidNotHappen, asks.Unknown} {
				want := kind == asks.KindApprove && state == asks.Approved || kind == asks.KindSettle &&
					answer == asks.DidNotHappen
				if got := (asks.Ask{Question: asks.Question{Kind: kind}, State: state,
					Answer: answer}).Allows(); got != want {
					t.Errorf("%s, %s with answer %q allows: %t", kind, state, answer, got)
				}
			}
		}
	}
}
