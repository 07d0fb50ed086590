package turnkeeper

import (
	"math"
)

// A Recipe describes how the request of an answered round was built from the journal, so it can be
// rebuilt. It is the recipe of the attempt that was answered. A request extends the newest one of its
// epoch, so the recipe says only what is new: its size does not depend on the request's.
type Recipe struct {
	Version  int     `json:"v"`
	Provider string  `json:"provider"` // as configured
	Model    string  `json:"model"`    // as requested
	Epoch    EpochID `json:"epoch"`    // to which the request belongs
	Start    *Epoch  `json:"start,omitempty"`
	// Form is the hash of the RequestPart that says how the provider encoded the request, if that differs from its
	// epoch's.
	Form string `json:"form,omitempty"`
	// After is the earlier turn that the request shows last, in a turn's first request; 0: none.
	After TurnID `json:"after,omitempty"`
	Final bool   `json:"final,omitempty"` // announced as the last round: no tool may be called

	Notice string `json:"notice,omitempty"` // its last message, the System Notice; empty: none
	// Running are the outputs of the turn's background calls that ran when the request was made.
	Running []OutputID `json:"running,omitempty"`
	// Status and Imitations identify what the newest notices of the epoch said of background calls and of results that
	// imitate the program. Empty: nothing.
	Status     string `json:"status,omitempty"`
	Imitations string `json:"imitations,omitempty"`

	// Cut reports that the provider must have silently cut the request, because
	// it reported too few input tokens.
	Cut bool `json:"cut,omitempty"`

	SHA256 string `json:"sha256"` // hex, of the request as sent
	Bytes  int    `json:"bytes"`  // size of the request as sent

	Window Window `json:"window"`
}

// An EpochID names an epoch by its first request on record. The zero value names none.
type EpochID struct {
	Turn  TurnID `json:"turn"`
	Round int    `json:"round"`
}

// Started reports whether the round of this turn is the first one of the epoch.
func (id EpochID) Started(turn TurnID, round int) bool { return id == EpochID{turn, round} }

// An EpochReason says why an epoch began. agentturn/prompt has the reasons.
type EpochReason string

// An Epoch says how the requests of an epoch begin. It stands in the recipe of the first one.
type Epoch struct {
	Reason EpochReason `json:"reason,omitempty"`
	Chain  string      `json:"chain,omitempty"` // the schedule whose runs see only their own history; empty: none

	// System, Tools and Form are hashes of the RequestParts with the system prompt, the tool definitions (empty: none),
	// and the provider's way to encode the request. The note about turns that are not shown follows the system prompt.
	System string `json:"system"`
	Tools  string `json:"tools,omitempty"`
	Form   string `json:"form"`
	// Definition is the hash of what the agent's definition says of the three above.
	Definition string `json:"definition"`

	Past     []TurnID `json:"past,omitempty"`      // the earlier turns included, oldest first
	LeanPast TurnID   `json:"lean_past,omitempty"` // turns up to this one are included without results; 0: none
	Omitted  int      `json:"omitted,omitempty"`   // number of earlier turns that the request mentions as omitted
	Summary  TurnID   `json:"summary,omitempty"`   // the last turn of their summary; 0: none
	Dropped  string   `json:"dropped,omitempty"`   // numbers of the turn's calls whose results were dropped: "1-3,7"

	// Room is the size in tokens to which the request was reduced after the
	// provider had refused it as too long; 0: it was not.
	Room int `json:"room,omitempty"`

	// How the record of the conversation is written after the provider had refused it. The zero values: as usual.
	Reasoned  bool   `json:"reasoned,omitempty"`   // answers without reasoning have a text in its place
	BareTurn  TurnID `json:"bare_turn,omitempty"`  // calls of turns before it are written as text; 0: of none
	BareRound int    `json:"bare_round,omitempty"` // and of its rounds up to this one
}

// FirstPast returns the oldest earlier turn included, or 0.
func (e Epoch) FirstPast() TurnID {
	if len(e.Past) == 0 {
		return 0
	}
	return e.Past[0]
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
