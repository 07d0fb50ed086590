package tools

import "encoding/json"

// MaxInputs is the maximum number of times that one call may ask for input.
const MaxInputs = 3

// An InputRequest is the error of a tool that cannot go on without input of a person. Only a tool
// whose Spec has AsksInput may return it. The turn asks a person and waits, for days if need be,
// without holding anything; then it runs the call again, with the answer in Call.Input. That is
// the same start of the call: an effect that the tool had before it asked must not happen again.
type InputRequest struct {
	Question string          // one sentence
	Schema   json.RawMessage // JSON Schema of the answer, of type object
	State    string          // what the tool needs to go on: JSON, or other valid UTF-8; no person sees it
}

func (r *InputRequest) Error() string {
	return "it asked for input, and nobody can be asked here: " + r.Question
}

// An Input is what became of an InputRequest of a call.
type Input struct {
	N      int             // 1: the call's first request
	State  string          // of the request
	Answer json.RawMessage // canonical, and valid by the request's schema; nil: none was given
	Denied bool            // a person declined to answer; else no valid answer came in time
}
