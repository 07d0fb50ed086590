package turnkeeper

import (
	"math"
	"strings"
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

// An EpochReason says why an epoch began.
type EpochReason string

// The reasons. Empty: it is the first epoch of its chain.
const (
	EpochRoom       EpochReason = "room"       // results were dropped, or turns left out
	EpochSummary    EpochReason = "summary"    // the same, and a new summary takes the place of turns
	EpochDefinition EpochReason = "definition" // of the agent: its prompt or tools, or a setting that requests show
	EpochModel      EpochReason = "model"      // another model, or another way to speak to it
	EpochRefused    EpochReason = "refused"    // the provider refused the record of the conversation
	EpochHistory    EpochReason = "history"    // a schedule's rule, or an earlier turn that ended later
	EpochPurged     EpochReason = "purged"     // what the last epoch showed is deleted
)

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

// Why says in plain words why the epoch began. Empty: it is the first of its chain.
func (e Epoch) Why() string {
	switch e.Reason {
	case EpochRoom:
		return "the conversation no longer fitted the context window"
	case EpochSummary:
		return "a summary took the place of earlier turns"
	case EpochDefinition:
		return "the agent's prompt, tools or settings had changed"
	case EpochModel:
		return "it went to another model, or spoke to it in another way"
	case EpochRefused:
		return "the provider had refused the record of the conversation"
	case EpochHistory:
		if e.Chain != "" {
			return "each run of the schedule " + e.Chain + " sees only its own history"
		}
		return "an earlier turn had ended late"
	case EpochPurged:
		return "what the requests before it showed is deleted"
	}
	return ""
}

// RecordNote says how the record of the conversation is written after the provider had refused it. Empty: as usual.
func (e Epoch) RecordNote() string {
	var notes []string
	if e.Reason == EpochRefused {
		notes = append(notes, "reasoning of earlier answers was left out, because the provider had refused the record")
	}
	if e.Reasoned {
		notes = append(notes, "answers without reasoning have a text in its place, because the provider demands some")
	}
	if e.BareTurn > 0 {
		notes = append(notes,
			"earlier tool calls are written as text, because the provider had refused the record of the conversation")
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
