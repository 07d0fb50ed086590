package responses

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/openai/openai-go/v3/responses"

	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/responsesbody"
)

// An item collects the pieces of an item of the output.
type item struct {
	id, kind string
	at       int // its index in the output; -1: unknown
	whole    *responsesbody.Item
	begun    *responsesbody.Item // as it was when it began; nil: unknown

	parts   []*part // of a message
	spoke   bool    // a part of the text came
	refusal loose.Growing

	thinks  string      // the form of reasoning that is taken; empty: none yet
	thought loose.Count // index of its newest part

	ordinal      int // among the calls that came in pieces, in the order of arrival
	name, callID string
	arguments    loose.Growing
	given        bool   // it has arguments, which may be an empty text
	closed       bool   // its arguments are whole
	mixed        bool   // its arguments differ from what was passed on
	meaning      string // its whole arguments without white space, once they were compared
	sent         int    // bytes of arguments that were sent as deltas
	announced    bool   // the name was sent as a delta
}

// A part is one of a message's content.
type part struct {
	index loose.Count
	loose.Growing
}

func (a *answer) part(of *item, index loose.Count) *part {
	for _, p := range of.parts {
		if p.index == index {
			return p
		}
	}
	p := &part{index: index}
	of.parts = append(of.parts, p)
	a.parts++
	return p
}

// itemFor returns the item that an event belongs to: the newest with its id and its index, else the newest with its id,
// else with its index, else, if it has neither, the newest. Some servers send one index, or new ids, for all events.
func (a *answer) itemFor(e event, kind string) *item {
	id, at := string(e.ItemID), -1
	if e.OutputIndex != nil {
		at = int(*e.OutputIndex)
	}
	var best *item
	rank := 0
	for _, i := range slices.Backward(a.items) {
		named, placed := id != "" && id == i.id, at >= 0 && at == i.at
		r := 0
		switch {
		case i.kind != kind || e.Type == typeItemAdded && i.begun != nil || i.whole != nil && !named:
		case named && placed:
			r = 4
		case named:
			r = 3
		case placed:
			r = 2
		case id == "" && at < 0:
			r = 1
		}
		if r > rank {
			best, rank = i, r
		}
	}
	if best == nil {
		best = &item{id: id, kind: kind, at: at, arguments: loose.Growing{Alone: loose.Escaped}}
		if kind == responsesbody.TypeCall {
			best.ordinal = a.calls
			a.calls++
		}
		a.items = append(a.items, best)
	}
	return best
}

// begin takes the item of the event with which an item begins.
func (a *answer) begin(to *item, begun responsesbody.Item) {
	to.begun = &begun
	if to.kind == responsesbody.TypeCall {
		call := readCall(begun)
		to.name, to.callID = cmp.Or(to.name, call.name), cmp.Or(to.callID, call.id)
		a.announce(to)
	}
}

// complete takes the item of the event with which an item ends.
func (a *answer) complete(to *item, whole responsesbody.Item) {
	again := to.whole != nil
	to.whole = &whole
	switch to.kind {
	case responsesbody.TypeMessage:
		if again {
			return // the last event has the truth
		}
		said, _, _ := whole.Said()
		if rest, ok := strings.CutPrefix(said, to.said()); ok {
			a.say(to, -1, loose.Fragment(rest))
		}
	case responsesbody.TypeReasoning:
		if form, parts := thoughts(whole); to.thinks == "" {
			for n, text := range parts {
				a.think(to, form, loose.Count(n), loose.Fragment(text))
			}
		}
	case responsesbody.TypeCall:
		call := readCall(whole)
		if differ(to.name, call.name) || differ(to.callID, call.id) {
			a.doubted(doubtStreamed)
		}
		to.name, to.callID = cmp.Or(call.name, to.name), cmp.Or(call.id, to.callID)
		a.argued(to, call.arguments)
		a.tellDone(to)
	}
}

// said returns the text of a message's parts.
func (i *item) said() string {
	var all strings.Builder
	for _, p := range i.parts {
		all.WriteString(p.String())
	}
	return all.String()
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

// A finalCall is a call of the whole answer.
type finalCall struct {
	id, name, status string
	arguments        json.RawMessage // nil or null: none
	text             string          // the arguments
	streamed         *item           // nil: it did not come in pieces
}

func readCall(i responsesbody.Item) finalCall {
	var c sdk.ResponseFunctionToolCall
	if c.UnmarshalJSON(i.Raw) != nil {
		return finalCall{}
	}
	return finalCall{id: cmp.Or(c.CallID, c.ID), name: c.Name, status: string(c.Status),
		arguments: json.RawMessage(c.JSON.Arguments.Raw())}
}

// thoughts returns the reasoning of an item, and its form.
func thoughts(i responsesbody.Item) (form string, parts []string) {
	var r sdk.ResponseReasoningItem
	if r.UnmarshalJSON(i.Raw) != nil {
		return "", nil
	}
	for _, s := range r.Summary {
		parts = append(parts, s.Text)
	}
	if len(parts) > 0 {
		return typeSummary, parts
	}
	for _, c := range r.Content {
		parts = append(parts, c.Text)
	}
	return typeThought, parts
}
