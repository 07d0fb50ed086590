package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"turnkeeper/inference"
)

// A piece is what one chunk says of one tool call.
type piece struct {
	index    index
	id, name string
	args     string
	object   map[string]json.RawMessage
	function map[string]json.RawMessage
}

func readPiece(data json.RawMessage) (piece, bool) {
	var p piece
	if json.Unmarshal(data, &p.object) != nil {
		return p, false
	}
	_ = json.Unmarshal(p.object["function"], &p.function) // absent or not an object: no name, no arguments
	_ = p.index.UnmarshalJSON(p.object["index"])
	p.id = scalar(p.object["id"])
	p.name = scalar(p.function["name"])
	p.args = argumentText(p.function["arguments"])
	for _, name := range []string{"index", "id", "type", "function"} {
		delete(p.object, name)
	}
	for _, name := range []string{"name", "arguments"} {
		delete(p.function, name)
	}
	return p, true
}

// argumentText is arguments as text: a string as it is, an object as its JSON.
func argumentText(data json.RawMessage) string {
	if isNull(data) {
		return ""
	}
	if data[0] == '"' {
		return scalar(data)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, data) != nil {
		return string(data)
	}
	return compact.String()
}

// addCall takes in a piece of a call. In a whole message every entry is a call
// of its own; in a stream it may continue one.
func (a *answer) addCall(data json.RawMessage, whole bool) {
	p, ok := readPiece(data)
	if !ok {
		return
	}
	var call *callParts
	if !whole {
		call = a.continued(p)
	}
	if call == nil {
		if p.id == "" && p.name == "" && p.args == "" && len(p.object) == 0 {
			return
		}
		call = &callParts{index: p.index}
		a.calls = append(a.calls, call)
	}
	call.id = first(call.id, p.id)
	call.addName(p.name)
	call.arguments.WriteString(p.args)
	merge(&call.object, p.object)
	merge(&call.function, p.function)
	a.passOn(call)
}

// addName takes the first name; the same one again is a repetition, any other
// the rest of a name that came in pieces.
func (c *callParts) addName(name string) {
	if name != c.name {
		c.name += name
	}
}

// whole says that the arguments are a JSON object.
func (c *callParts) whole() bool {
	s := c.arguments.String()
	return strings.HasSuffix(s, "}") && isObject([]byte(s))
}

// continued finds the call that a piece belongs to; nil: a new one. Pieces
// of parallel calls are told apart by index where that differs, else by id,
// else by a name that comes after arguments that are whole.
func (a *answer) continued(p piece) *callParts {
	call := a.addressed(p)
	switch {
	case call == nil:
		return nil
	case p.id != "" && call.id != "" && p.id != call.id:
		return nil
	case p.name == "":
		return call
	case call.whole():
		if p.name == call.name && p.args == "" {
			return call // a last piece that only repeats the name
		}
		return nil
	case call.name == "" || call.name == p.name:
		return call
	}
	// Another name while the arguments are not whole: either the name comes
	// in pieces, or a call without arguments is followed by the next one.
	if call.arguments.Len() == 0 && !a.declared[p.name] && a.declared[call.name+p.name] {
		return call
	}
	return nil
}

// addressed finds the newest call with the piece's index; without one, the
// newest with its id; without either, the newest.
func (a *answer) addressed(p piece) *callParts {
	for i := len(a.calls) - 1; i >= 0; i-- {
		call := a.calls[i]
		switch {
		case p.index.ok && call.index.ok:
			if p.index.n == call.index.n {
				return call
			}
		case p.id != "":
			if call.id == p.id {
				return call
			}
		default:
			return call
		}
	}
	return nil
}

// passOn sends what is new of a call as deltas. They wait for its arguments,
// because until then its name may not be whole, and for its name.
func (a *answer) passOn(call *callParts) {
	if call.name == "" || call.arguments.Len() == 0 {
		return
	}
	for i, c := range a.calls {
		a.announce(i, c)
		if c == call {
			break
		}
	}
}

// announceAll sends what is left, once the answer is whole.
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
