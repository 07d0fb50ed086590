package turnkeeper

import (
	"math"
	"strings"
)

// A Recipe describes how the request of an answered round was built from the
// journal, so it can be rebuilt. Its size does not depend on the request's. It is
// the recipe of the attempt that was answered.
type Recipe struct {
	Version  int    `json:"v"`
	Provider string `json:"provider"` // as configured
	Model    string `json:"model"`    // as requested
	Frame    string `json:"frame"`    // hash of the RequestPart with the rest of the request
	Tools    string `json:"tools,omitempty"`
	Final    bool   `json:"final,omitempty"` // announced as the last round, without tools

	FirstPast TurnID `json:"first_past,omitempty"` // the oldest earlier turn included; 0: none
	LeanPast  TurnID `json:"lean_past,omitempty"`  // turns up to this one are included without results; 0: none
	Omitted   int    `json:"omitted,omitempty"`    // number of earlier turns that the request mentions as omitted
	Summary   TurnID `json:"summary,omitempty"`    // the last turn of their summary; 0: none
	Dropped   string `json:"dropped,omitempty"`    // numbers of this turn's calls whose results were dropped: "1-3,7"
	Notice    string `json:"notice,omitempty"`     // its last message, the System Notice; empty: none

	// Compacted is the size in tokens to which the request was reduced after the
	// provider had refused it as too long; 0: it was not.
	Compacted int `json:"compacted,omitempty"`
	// Cut reports that the provider must have silently cut the request, because
	// it reported too few input tokens.
	Cut bool `json:"cut,omitempty"`

	// How the record of the conversation was written after the provider had refused it. The zero values: as usual.
	Reasoned bool `json:"reasoned,omitempty"` // answers without reasoning have a text in its place
	// what is left out of answers up to BareRound of BareTurn: "reasoning" or "calls"
	Bare      string `json:"bare,omitempty"`
	BareTurn  TurnID `json:"bare_turn,omitempty"`  // turns before it are bare
	BareRound int    `json:"bare_round,omitempty"` // and its rounds up to this one

	SHA256 string `json:"sha256"` // hex, of the request as sent
	Bytes  int    `json:"bytes"`  // size of the request as sent

	Window Window `json:"window"`
}

// RecordNote says how the record of the conversation was written after the provider had refused it. Empty: as usual.
func (r Recipe) RecordNote() string {
	var notes []string
	if r.Reasoned {
		notes = append(notes,
			"earlier answers without reasoning had a text in its place, because the provider demands some")
	}
	switch r.Bare {
	case "reasoning":
		notes = append(notes, "reasoning of earlier answers was left out, because the provider had refused it")
	case "calls":
		notes = append(notes,
			"earlier tool calls were written as text, because the provider had refused the record of the conversation")
	}
	return strings.Join(notes, "; ")
}

// A Window compares a request with the context window of its model, in tokens.
// The parts are estimates before correction.
type Window struct {
	Size    int `json:"size"`   // the model's context window
	Answer  int `json:"answer"` // reserved for the answer
	Safety  int `json:"safety"` // kept free, because counts are estimates
	System  int `json:"system"` // the system prompt
	Tools   int `json:"tools"`  // definitions of the offered tools
	History int `json:"history"`
	Turn    int `json:"turn"` // the message and the rounds so far
	Notice  int `json:"notice"`

	// Factor corrects the estimates. It comes from earlier reports of the model's
	// provider.
	Factor float64 `json:"factor"`
	// Reported is the provider's count of the request's tokens; 0: none.
	Reported int64 `json:"reported,omitempty"`
}

// Estimate returns the sum of the parts, before correction.
func (w Window) Estimate() int { return w.System + w.Tools + w.History + w.Turn + w.Notice }

// Corrected returns the estimate times Factor, rounded up.
func (w Window) Corrected() int { return int(math.Ceil(float64(w.Estimate()) * w.Factor)) }

// Room returns the maximum size of a request.
func (w Window) Room() int { return w.Size - w.Answer - w.Safety }
