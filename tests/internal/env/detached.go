package env

import (
	"fmt"
	"regexp"

	"turnkeeper/inference/inferencetest"
)

// DetachedTools is the front matter's line that gives an agent the detached marker tools.
const DetachedTools = "tools: [mark_far_none, mark_far_keyed, mark_far_once, mark_once]"

var outputID = regexp.MustCompile(`get_tool_output\("([a-z0-9]{12})", mode\)`)

// GetOutput replies with a call that reads the output of the first handle in the request.
func GetOutput(r inferencetest.Recorded) inferencetest.Reply {
	for _, m := range r.Chat().Messages {
		if found := outputID.FindStringSubmatch(m.Text()); found != nil {
			return inferencetest.Calls(inferencetest.Call{ID: "call_get", Name: "get_tool_output",
				Arguments: fmt.Sprintf(`{"id":%q,"mode":"raw"}`, found[1])})
		}
	}
	return inferencetest.Text("There is no handle.")
}

// LastResult returns the newest tool result in the request.
func LastResult(r inferencetest.Recorded) string {
	result := ""
	for _, m := range r.Chat().Messages {
		if m.Role == "tool" {
			result = m.Text()
		}
	}
	return result
}

// DetachedTurn returns a model that calls a detached tool, reads its result after the notice that it
// is ready, and replies with the result.
func DetachedTurn(tool, label string) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		switch RoundOf(r) {
		case 1:
			return MarkerReply(tool, label)
		case 2:
			return GetOutput(r)
		default:
			return inferencetest.Text("It says: " + LastResult(r))
		}
	}
}

// AwaitWaiting waits until n turns are in the state waiting.
func (e *Env) AwaitWaiting(n int) {
	e.T.Helper()
	e.Await(fmt.Sprint(n, " turns wait"), "select count(*) = $1 from turns where state = 'waiting'", n)
}
