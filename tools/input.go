package tools

import "encoding/json"

// MaxInputs is the maximum number of times that one call may ask for input.
const MaxInputs = 3

// An InputRequest is the error of a tool that cannot continue without input from a person. Only a
// tool whose Spec has AsksInput may return it. The turn asks a person and waits, if necessary for
// days, without holding anything. Then it runs the call again, with the answer in Call.Input. That is
// the same start of the call: an effect that the tool had before it asked must not happen again.
type InputRequest struct {
	Question string          // one sentence
	Schema   json.RawMessage // JSON Schema of the answer, of type object
	State    string          // what the tool needs to continue: JSON, or other valid UTF-8; not shown to people
}

func (r *InputRequest) Error() string {
	return "it asked for input, and nobody can be asked here: " + r.Question
}

// An Input is the outcome of an InputRequest.
type Input struct {
	N      int             // 1: the call's first request
	State  string          // the State of the request
	Answer json.RawMessage // canonical, and valid by the request's schema; nil: none
	Denied bool            // Answer is nil because a person declined, not because no valid answer came in time
}
