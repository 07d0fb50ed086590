package inferencetest

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"turnkeeper/inference"
)

// A Wire is how one API of model providers writes answers and errors, and how its requests are read back. A Server
// answers each request in the wire of its path.
type Wire struct {
	Name string
	// Skips holds the groups of cases of RunProviderSuite that make no sense on the wire, and why.
	Skips map[string]string

	path       string                                // the end of the path of requests
	whole      func(a Spoken) string                 // an answer that is not streamed
	stream     func(a Spoken) (begun, rest []string) // the events of a streamed one; rest begins with the finish reason
	fault      func(code, message string) string     // the body of an error
	failing    func(code, message string) string     // the event of an error in a stream
	finishes   map[string]string                     // this API's words for those of Spoken.Finish; missing: the same
	violations func(body []byte) []string
	chat       func(body []byte) Chat    // a request, as Chat Completions would have it
	pieces     func(body []byte) []piece // of a request
	echo       func(a Spoken) string     // a request that has nothing but the answer
	marks      bool                      // a cache holds what has a cache mark at its end; else everything
}

// Wires returns all wires.
func Wires() []*Wire { return []*Wire{ChatWire(), ResponsesWire(), MessagesWire()} }

var wires = Wires()

// wireOf returns the wire of a path, or nil.
func wireOf(path string) *Wire {
	for _, w := range wires {
		if strings.HasSuffix(path, w.path) {
			return w
		}
	}
	return nil
}

// finish returns this API's word for one of Spoken.Finish.
func (w *Wire) finish(word string) string {
	if own, ok := w.finishes[word]; ok {
		return own
	}
	return word
}

// A Spoken is an answer of a model, in any wire.
type Spoken struct {
	ID, Model      string // empty: one with the request's number; that of the request
	Thinking, Text string
	Calls          []Call
	Finish         string // stop, tool_calls, length, content_filter or any other word; empty: none
	// Signature is that of the thinking. Empty: in Chat Completions none, else one that no Account knows.
	Signature string
	// In counts all input tokens, Cached those of them that were read from a cache, Written those that were written
	// to it, which only the Messages API reports. No usage is reported if In and Out are 0.
	In, Out, Cached, Written int64
	Letters                  bool // a stream sends texts by letters; otherwise in two halves
}

// Say returns a complete answer, streamed if the request asks for that.
func Say(a Spoken) Reply {
	return func(x *Exchange) {
		a := x.named(a)
		if !x.Chat().Stream {
			Status(http.StatusOK, x.wire.whole(a))(x)
			return
		}
		begun, rest := x.wire.stream(a)
		Frames(append(begun, rest...)...)(x)
	}
}

// Begin returns the stream of an answer up to its finish reason, and ends cleanly there.
func Begin(a Spoken) Reply {
	return func(x *Exchange) {
		begun, _ := x.wire.stream(x.named(a))
		Frames(begun...)(x)
	}
}

// FailStream returns the stream of an answer that breaks off with an error before its finish reason.
func FailStream(a Spoken, code, message string) Reply {
	return func(x *Exchange) {
		begun, _ := x.wire.stream(x.named(a))
		Frames(append(begun, x.wire.failing(code, message))...)(x)
	}
}

// Frames streams events, given as they are sent.
func Frames(events ...string) Reply {
	return func(x *Exchange) {
		x.Start(http.StatusOK, headerOf("text/event-stream; charset=utf-8", nil))
		for _, e := range events {
			x.Send(e)
		}
	}
}

// named returns an answer with an id, a model, and ids and arguments of its calls.
func (x *Exchange) named(a Spoken) Spoken {
	if a.ID == "" {
		a.ID = fmt.Sprintf("answer-%d", x.N)
	}
	if a.Model == "" {
		a.Model = x.Chat().Model
	}
	calls := make([]Call, len(a.Calls))
	for i, c := range a.Calls {
		if c.ID == "" {
			c.ID = fmt.Sprintf("call_%d_%d", x.N, i)
		}
		if c.Arguments == "" {
			c.Arguments = "{}"
		}
		calls[i] = c
	}
	a.Calls = calls
	return a
}

// signature returns the signature of the thinking, for an API whose thinking always has one.
func (a Spoken) signature() string { return cmp.Or(a.Signature, "c2ln") }

// pieces cuts a text of the answer as its stream sends it.
func (a Spoken) pieces(text string) []string {
	if a.Letters {
		return strings.Split(text, "")
	}
	return halves(text)
}

// outcome returns what a Provider must make of the answer.
func (w *Wire) outcome(a Spoken) outcome {
	o := outcome{Text: a.Text, Reasoning: a.Thinking, Finish: w.finish(a.Finish)}
	o.Usage.InputTokens, o.Usage.OutputTokens, o.Usage.CachedTokens = a.In, a.Out, a.Cached
	for _, c := range a.Calls {
		o.Calls = append(o.Calls, inference.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return o
}
