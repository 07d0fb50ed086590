package completions

import (
	"encoding/json"
	"slices"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// An index is the index of a call, if the provider sends one.
type index struct {
	n  int
	ok bool
}

// A piece is the part of a tool call in one chunk.
type piece struct {
	index     index
	id, name  string
	args      loose.Fragment
	object    map[string]json.RawMessage
	function  map[string]json.RawMessage
	given     bool // it has arguments, which may be an empty text
	elsewhere bool // another call, with a different index, has the same id
}

// setArguments sets the arguments, which may be absent.
func (p *piece) setArguments(data json.RawMessage) {
	p.args, p.given = loose.Arguments(data), !loose.IsNull(data)
}

// addCall adds a piece of a call. In a whole message every entry is a new call; in a stream
// it may continue one.
func (a *answer) addCall(p piece, whole bool) {
	if p.id == "" && p.name == "" && p.args == "" && len(p.object)+len(p.function) == 0 {
		return
	}
	var call *callParts
	if !whole {
		call = a.continued(&p)
	}
	if call == nil {
		call = &callParts{index: p.index, arguments: loose.Growing{Alone: loose.Escaped}, streamed: !whole}
		a.begin(call, whole)
	}
	call.takeID(p.id)
	call.addName(p.name)
	call.scan.add(call.arguments.Add(p.args))
	call.given = call.given || p.given
	merge(&call.object, p.object)
	merge(&call.function, p.function)
	a.passOn()
}

// begin inserts a new call. In a stream, this is before the calls with a greater index that
// are not announced yet.
func (a *answer) begin(call *callParts, whole bool) {
	at := len(a.calls)
	for at > 0 && !whole && call.before(a.calls[at-1]) {
		at--
	}
	a.calls = slices.Insert(a.calls, at, call)
	a.arrived = append(a.arrived, call)
}

func (c *callParts) before(other *callParts) bool {
	return c.index.ok && other.index.ok && c.index.n < other.index.n && !other.announced
}

// addName adds a name. The same name again is a repetition; any other is the rest of a name
// that came in pieces.
func (c *callParts) addName(name string) {
	if name != c.name {
		c.name += name
	}
}

// passOn sends the new parts of calls as deltas, up to the first call that must wait. A call
// must wait until it has arguments, because its name may be incomplete, and while a smaller
// index is missing, because a call with that index may still come.
func (a *answer) passOn() {
	latest := -1 // last call that has arguments or is announced
	for i, c := range a.calls {
		if c.announced || c.arguments.Len() > 0 {
			latest = i
		}
	}
	next := 0 // index
	for i, c := range a.calls[:latest+1] {
		if !c.announced && (c.name == "" || c.index.ok && c.index.n > next) {
			return
		}
		next = max(next, c.index.n+1)
		a.announce(i, c)
		if i > 0 {
			a.tellDone(i-1, a.calls[i-1])
		}
	}
}

// tellDone passes on that a call has come whole: its arguments have ended, and the next call has begun. The protocol
// does not say it.
func (a *answer) tellDone(ordinal int, call *callParts) {
	if !call.ended && call.scan.closed {
		call.ended = true
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: ordinal, Done: true})
	}
}

// announceAll sends the remaining parts of all calls, once the answer is complete.
func (a *answer) announceAll() {
	for i, c := range a.calls {
		a.announce(i, c)
	}
}

func (a *answer) announce(ordinal int, call *callParts) {
	if !call.announced {
		call.announced = true
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: ordinal, Name: call.name})
	}
	if rest := call.arguments.String()[call.sent:]; rest != "" {
		call.sent += len(rest)
		a.onDelta(inference.Delta{Kind: inference.DeltaTool, Index: ordinal, Text: rest})
	}
}
