package inferencetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// A Reply answers one request. Returning ends the answer cleanly.
type Reply func(x *Exchange)

// A Call is a tool call of a reply.
type Call struct {
	ID        string // empty: call_N_I, with the request's number N and the call's index I from 0
	Name      string
	Arguments string // as JSON; empty: {}
}

// Text returns a complete answer with a text, streamed if the request asks for that.
func Text(text string) Reply { return Message(text) }

// Calls returns a complete answer with tool calls.
func Calls(calls ...Call) Reply { return Message("", calls...) }

// Message returns a complete answer with a text and tool calls. Its finish reason is stop or
// tool_calls; its usage is a quarter of the bytes.
func Message(text string, calls ...Call) Reply {
	return func(x *Exchange) {
		a := x.named(Spoken{Text: text, Calls: calls, Finish: "stop"})
		said := len(text)
		for _, c := range a.Calls {
			a.Finish = "tool_calls"
			said += len(c.Name) + len(c.Arguments)
		}
		a.In, a.Out = int64(len(x.Body)/4+1), int64(said/4+1)
		Say(a)(x)
	}
}

// JSON sends a status and a value as JSON. A string is sent unchanged.
func JSON(status int, v any) Reply {
	return func(x *Exchange) { Raw(status, "application/json", encode(v))(x) }
}

// Status sends a status, a JSON body, and headers given as name, value, ....
func Status(status int, body string, headers ...string) Reply {
	return Raw(status, "application/json", body, headers...)
}

// Fault sends a status and an error object in the form of the request's wire, and headers given as name, value, ....
func Fault(status int, code, message string, headers ...string) Reply {
	return func(x *Exchange) { Status(status, x.wire.fault(code, message), headers...)(x) }
}

// Raw sends any bytes with any status and content type, and headers given as
// name, value, ....
func Raw(status int, contentType, body string, headers ...string) Reply {
	return func(x *Exchange) {
		x.Start(status, headerOf(contentType, headers))
		x.Send(body)
	}
}

func headerOf(contentType string, headers []string) http.Header {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return h
}

// SSE streams each chunk as the data of an event, then [DONE].
func SSE(chunks ...string) Reply {
	return func(x *Exchange) {
		OpenSSE(chunks...)(x)
		x.Send("data: [DONE]\n\n")
	}
}

// OpenSSE streams each chunk as the data of an event, and ends without [DONE].
func OpenSSE(chunks ...string) Reply {
	return func(x *Exchange) {
		x.Start(http.StatusOK, headerOf("text/event-stream; charset=utf-8", nil))
		for _, chunk := range chunks {
			x.Send("data: " + chunk + "\n\n")
		}
	}
}

// Hang never answers.
func Hang() Reply { return (*Exchange).Hang }

// HangAfter answers like reply and then keeps the answer open. reply must not set
// Content-Length, which no reply of this package does.
func HangAfter(reply Reply) Reply {
	return func(x *Exchange) {
		reply(x)
		x.Hang()
	}
}

// Reset breaks the connection without an answer.
func Reset() Reply { return (*Exchange).Reset }

// ResetAfter answers like reply, and breaks the connection instead of ending the answer.
func ResetAfter(reply Reply) Reply {
	return func(x *Exchange) {
		reply(x)
		x.Reset()
	}
}

// WaitFor answers like reply once event has happened.
func WaitFor(event <-chan struct{}, reply Reply) Reply {
	return func(x *Exchange) {
		if x.Wait(event) {
			reply(x)
		}
	}
}

// By answers with the reply that f returns for the request.
func By(f func(req Recorded) Reply) Reply {
	return func(x *Exchange) { f(x.Recorded)(x) }
}

func encode(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("inferencetest: a reply cannot be written as JSON: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
