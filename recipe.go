package turnkeeper

import (
	"math"
)

// A Recipe says how the request of an answered round was made of what the
// journal holds, so that it can be made again. It is small, whatever the size
// of the request. Of several attempts it is the answered one's.
type Recipe struct {
	Version  int    `json:"v"`
	Provider string `json:"provider"` // as configured
	Model    string `json:"model"`    // as it was asked for
	Frame    string `json:"frame"`    // hash of the RequestPart that holds what else the request is written with
	Tools    string `json:"tools,omitempty"`
	Final    bool   `json:"final,omitempty"` // announced as the last round: no tool could be called

	FirstPast TurnID `json:"first_past,omitempty"` // the oldest earlier turn that was told; 0: none was
	LeanPast  TurnID `json:"lean_past,omitempty"`  // up to this one they were told without their results; 0: none
	Omitted   int    `json:"omitted,omitempty"`    // earlier turns that the request says are not shown
	Summary   TurnID `json:"summary,omitempty"`    // the last turn of the Summary that stands for them; 0: none
	Dropped   string `json:"dropped,omitempty"`    // calls of this turn whose result was a line, by number: "1-3,7"
	Notice    string `json:"notice,omitempty"`     // its last message; empty: none

	// Compacted is the room, in tokens, to which the request was cut down when
	// the provider had refused it as too long; 0: it was not.
	Compacted int `json:"compacted,omitempty"`
	// Cut says that the provider reported so few input tokens that it must have
	// left out a part of the request without a word.
	Cut bool `json:"cut,omitempty"`

	SHA256 string `json:"sha256"` // hex, of what was sent
	Bytes  int    `json:"bytes"`  // its size

	Window Window `json:"window"`
}

// A Window is a request held against the context window of its model, in
// tokens. The parts are estimates before correction.
type Window struct {
	Size    int `json:"size"`   // of the model's window
	Answer  int `json:"answer"` // reserved for the answer
	Safety  int `json:"safety"` // left free, since counts are estimates
	System  int `json:"system"` // the system prompt
	Tools   int `json:"tools"`  // definitions of the tools offered
	History int `json:"history"`
	Turn    int `json:"turn"` // the message and the rounds so far
	Notice  int `json:"notice"`

	// Factor is what the estimates were multiplied with, by what the model's
	// provider had reported before.
	Factor float64 `json:"factor"`
	// Reported is the provider's own count of the request; 0: it gave none.
	Reported int64 `json:"reported,omitempty"`
}

// Estimate is the sum of the parts, before correction.
func (w Window) Estimate() int { return w.System + w.Tools + w.History + w.Turn + w.Notice }

// Corrected is the estimate, corrected by Factor.
func (w Window) Corrected() int { return int(math.Ceil(float64(w.Estimate()) * w.Factor)) }

// Room is what the window leaves to a request.
func (w Window) Room() int { return w.Size - w.Answer - w.Safety }
