package tests_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"turnkeeper/inference/inferencetest"
)

// What these tests say often.
type (
	recorded  = inferencetest.Recorded
	reply     = inferencetest.Reply
	modelCall = inferencetest.Call
)

var (
	text    = inferencetest.Text
	calls   = inferencetest.Calls
	fault   = inferencetest.Fault
	hang    = inferencetest.Hang
	waitFor = inferencetest.WaitFor
)

// rounds answers by what the request holds: the n-th reply for a request with
// n-1 exchanges after the newest message, the last for all later ones. So a
// request that is made again is answered the same.
func rounds(replies ...reply) func(recorded) reply {
	return func(r recorded) reply {
		return replies[min(roundOf(r), len(replies))-1]
	}
}

// roundOf is the round that a request is made for.
func roundOf(r recorded) int {
	round := 1
	for _, m := range r.Chat().Messages {
		switch m.Role {
		case "user":
			if !isNotice(m) {
				round = 1
			}
		case "assistant":
			round++
		}
	}
	return round
}

// isNotice tells the program's own words at a request's end from a message.
func isNotice(m inferencetest.ChatMessage) bool {
	return strings.HasPrefix(m.Text(), "# System Notice")
}

// newest is the message that a request is about.
func newest(r recorded) string {
	text := ""
	for _, m := range r.Chat().Messages {
		if m.Role == "user" && !isNotice(m) {
			text = m.Text()
		}
	}
	return text
}

// call is a marker call.
func call(tool, label string) inferencetest.Call {
	return inferencetest.Call{Name: tool, Arguments: fmt.Sprintf(`{"label":%q}`, label)}
}

// callOnce asks for a call with an id of its own, whatever the request's number.
func callOnce(tool, label string) reply {
	c := call(tool, label)
	c.ID = "call_" + label
	return inferencetest.Calls(c)
}

// quote writes text as a JSON string.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
