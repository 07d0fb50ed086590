package env

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"turnkeeper/inference/inferencetest"
)

// AwaitRequests waits until the model server got n requests.
func (e *Env) AwaitRequests(n int) {
	e.T.Helper()
	if err := e.Model.Await(e.T.Context(), n); err != nil {
		e.T.Fatal(err)
	}
}

// WantRequests fails the test unless the model server got exactly n requests, and returns them.
func (e *Env) WantRequests(n int) []inferencetest.Recorded {
	e.T.Helper()
	all := e.Model.Requests()
	if len(all) != n {
		e.T.Errorf("the model got %d requests, want %d", len(all), n)
	}
	return all
}

// Rounds returns a model that gives the n-th reply to a request of round n, and the last reply to
// all later rounds. It depends only on the request, so a repeated request gets the same reply.
func Rounds(replies ...inferencetest.Reply) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		return replies[min(RoundOf(r), len(replies))-1]
	}
}

// RoundOf returns the round of a request.
func RoundOf(r inferencetest.Recorded) int {
	round := 1
	for _, m := range r.Chat().Messages {
		switch m.Role {
		case "user":
			if isMessage(m) {
				round = 1
			}
		case "assistant":
			round++
		}
	}
	return round
}

// IsNotice reports whether a message is the system notice at the end of a request.
func IsNotice(m inferencetest.ChatMessage) bool {
	return strings.HasPrefix(m.Text(), "# System Notice")
}

// isMessage reports whether a user's message is one, and not a notice or results that are written as text.
func isMessage(m inferencetest.ChatMessage) bool {
	return !IsNotice(m) && !strings.HasPrefix(m.Text(), "# Tool results")
}

// NewestMessage returns the body of the message that a request handles.
func NewestMessage(r inferencetest.Recorded) string {
	text := ""
	for _, m := range r.Chat().Messages {
		if m.Role == "user" && isMessage(m) {
			text = m.Text()
		}
	}
	return text
}

// Echo returns a model that replies with the prefix and the body of the message.
func Echo(prefix string) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Text(prefix + NewestMessage(r))
	}
}

// MarkerCall returns a call of a marker tool.
func MarkerCall(tool, label string) inferencetest.Call {
	return inferencetest.Call{Name: tool, Arguments: fmt.Sprintf(`{"label":%q}`, label)}
}

// MarkerReply returns a reply with one marker call, whose ID is "call_" and the label.
func MarkerReply(tool, label string) inferencetest.Reply {
	c := MarkerCall(tool, label)
	c.ID = "call_" + label
	return inferencetest.Calls(c)
}

// Quote returns text as a JSON string.
func Quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// HangHalfway streams the first half of a text and then nothing.
func HangHalfway(long string) inferencetest.Reply { return inferencetest.HangAfter(CutHalfway(long)) }

// CutHalfway streams the first half of a text and then ends the stream.
func CutHalfway(long string) inferencetest.Reply {
	var chunks []string
	for rest := long[:len(long)/2]; rest != ""; {
		n := min(1500, len(rest))
		chunks = append(chunks, Chunk(rest[:n], ""))
		rest = rest[n:]
	}
	return inferencetest.OpenSSE(chunks...)
}

// Chunk returns a piece of a streamed answer. finish is its finish_reason; empty: more pieces follow.
func Chunk(text, finish string) string {
	reason := "null"
	if finish != "" {
		reason = Quote(finish)
	}
	return fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted",`+
		`"choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":%s}]}`, Quote(text), reason)
}

// HangOnce hangs on the first request, and answers later ones with the reply.
func HangOnce(reply inferencetest.Reply) inferencetest.Reply {
	var requested atomic.Bool
	return func(x *inferencetest.Exchange) {
		if requested.CompareAndSwap(false, true) {
			x.Hang()
			return
		}
		reply(x)
	}
}

// Drip streams the text again and again until the client disconnects.
func Drip(text string) inferencetest.Reply {
	chunk := fmt.Sprintf(
		`{"id":"x","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}`, text)
	return func(x *inferencetest.Exchange) {
		inferencetest.OpenSSE(chunk)(x)
		for x.Wait(After(100 * time.Millisecond)) {
			x.Send("data: " + chunk + "\n\n")
		}
	}
}

// After returns a channel that is closed once d has passed.
func After(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}
