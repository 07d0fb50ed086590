package views

import (
	"encoding/json"
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
)

// An Ask is a question to a person.
type Ask struct {
	ID           asks.ID              `json:"id"`
	State        asks.State           `json:"state"`
	Kind         asks.Kind            `json:"kind"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	Agent        string               `json:"agent"`
	User         string               `json:"user"` // whose conversation it is; empty: no user's
	Conversation string               `json:"conversation"`
	Call         *string              `json:"call"` // null: it is not about a call
	Tool         *string              `json:"tool"`
	Arguments    json.RawMessage      `json:"arguments"`
	Hash         string               `json:"hash"`
	Rule         *string              `json:"rule"`
	Reason       *string              `json:"reason"`
	Schema       json.RawMessage      `json:"schema"` // of the answer or, of kind approve, of edited arguments
	Audience     []string             `json:"audience"`
	Hold         bool                 `json:"hold"`
	OpenedAt     time.Time            `json:"opened_at"`
	ExpiresAt    time.Time            `json:"expires_at"`
	ClosedAt     *time.Time           `json:"closed_at"`
	AnsweredBy   *string              `json:"answered_by"`
	Channel      *string              `json:"channel"`
	Comment      *string              `json:"comment"`
	Answer       json.RawMessage      `json:"answer"`
	Edited       json.RawMessage      `json:"edited_arguments"`
	Path         []AskStep            `json:"path"` // from the root of the tree of agents
	CallState    *string              `json:"call_state" doc:"what has become of the call that a person allowed; null in lists, and if the ask allows no call"`
	NotRun       *string              `json:"not_run" doc:"why the call that a person allowed did not start; null: it started, or may still start"`
}

// An AskStep is a turn on the path to the one that asks.
type AskStep struct {
	TurnID turnkeeper.TurnID `json:"turn_id"`
	Agent  string            `json:"agent"`
	Call   *string           `json:"call"` // that gave the work to the next one
}

// OfAsk converts an ask.
func OfAsk(a operate.Ask) Ask {
	v := Ask{
		ID: a.ID, State: a.State, Kind: a.Kind, TurnID: a.Turn, MessageID: a.Message, Agent: a.Agent, User: a.User,
		Conversation: a.Conversation,
		Tool:         OrNull(a.Tool), Arguments: rawJSON(a.Arguments), Hash: a.Hash, Rule: OrNull(a.Rule),
		Reason: OrNull(a.Reason), Schema: rawJSON(a.Schema),
		Audience: a.Audience, Hold: a.Hold, OpenedAt: a.OpenedAt, ExpiresAt: a.ExpiresAt, ClosedAt: OrNull(a.ClosedAt),
		AnsweredBy: OrNull(a.AnsweredBy), Channel: OrNull(a.Channel), Comment: OrNull(a.Comment),
		Answer: rawJSON(a.Answer), Edited: rawJSON(a.Edited),
		Path: []AskStep{}, CallState: OrNull(string(a.CallState)), NotRun: OrNull(a.NotRun),
	}
	if a.Call.Ordinal > 0 {
		v.Call = new(a.Call.String())
	}
	for _, step := range a.Path {
		s := AskStep{TurnID: step.Turn, Agent: step.Agent}
		if step.Call.Ordinal > 0 {
			s.Call = new(step.Call.String())
		}
		v.Path = append(v.Path, s)
	}
	return v
}

// An OpenedAsk is an ask as a webhook gets it.
type OpenedAsk struct {
	ID           asks.ID              `json:"id"`
	Kind         asks.Kind            `json:"kind"`
	Agent        string               `json:"agent"`
	User         string               `json:"user"` // whose conversation it is; empty: no user's
	Conversation string               `json:"conversation"`
	MessageID    turnkeeper.MessageID `json:"message_id"`
	TurnID       turnkeeper.TurnID    `json:"turn_id"`
	Call         *string              `json:"call"`
	Tool         *string              `json:"tool"`
	Arguments    json.RawMessage      `json:"arguments"`
	Hash         string               `json:"hash"`
	Rule         *string              `json:"rule"`
	Reason       *string              `json:"reason"`
	Schema       json.RawMessage      `json:"schema"`
	Audience     []string             `json:"audience"`
	OpenedAt     time.Time            `json:"opened_at"`
	ExpiresAt    time.Time            `json:"expires_at"`
	Path         string               `json:"path"` // of the ask on the page
}

// OfOpenedAsk converts an ask for a webhook. It depends on nothing that an answer changes.
func OfOpenedAsk(o outbox.OpenedAsk) OpenedAsk {
	a := OfAsk(operate.Ask{Ask: o.Ask, Agent: o.Agent, User: o.User, Conversation: o.Conversation, Message: o.Message})
	return OpenedAsk{
		ID: a.ID, Kind: a.Kind, Agent: a.Agent, User: a.User, Conversation: a.Conversation, MessageID: a.MessageID,
		TurnID: a.TurnID, Call: a.Call, Tool: a.Tool,
		Arguments: a.Arguments, Hash: a.Hash, Rule: a.Rule, Reason: a.Reason, Schema: a.Schema, Audience: a.Audience,
		OpenedAt:  a.OpenedAt,
		ExpiresAt: a.ExpiresAt, Path: AskPath(a.ID),
	}
}

// AskPath returns the path of an ask on the page.
func AskPath(id asks.ID) string { return fmt.Sprintf("/asks/%d", id) }

func rawJSON(text string) json.RawMessage {
	if text == "" || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
