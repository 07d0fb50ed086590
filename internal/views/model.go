package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A Model is how a model stands that agents ask.
type Model struct {
	Model     string             `json:"model"`
	State     string             `json:"state" schema:"ref=ModelState"` // up, down, probing (it is down, and a turn tries it), unknown (not asked yet), unused
	DownSince *time.Time         `json:"down_since"`
	Until     *time.Time         `json:"next_try_at"` // null: it is up
	Failures  int                `json:"failures" doc:"in a row"`
	Class     string             `json:"error_class" doc:"of the newest failure"`
	Error     string             `json:"error"`
	ProbeTurn *turnkeeper.TurnID `json:"probe_turn_id"`
	Agents    []string           `json:"agents" doc:"that ask it"`
}

// OfModel shows a model.
func OfModel(h turnkeeper.ModelHealth) Model {
	return Model{
		Model: h.Model, State: h.State(), DownSince: OrNull(h.DownSince), Until: OrNull(h.Until), Failures: h.Failures,
		Class: h.ErrorClass, Error: h.Error, ProbeTurn: OrNull(h.ProbeTurn), Agents: append([]string{}, h.Agents...),
	}
}

// BulkRetried is what came of a retry of all that failed.
type BulkRetried struct {
	Retried []RetriedMessage `json:"retried"`
}

// A RetriedMessage is one of them.
type RetriedMessage struct {
	MessageID turnkeeper.MessageID `json:"message_id" doc:"that is handled next"`
	RetryOf   turnkeeper.MessageID `json:"retry_of"`
	Agent     string               `json:"agent"`
	Class     string               `json:"error_class"`
}

// OfBulkRetried shows it.
func OfBulkRetried(all []operate.BulkRetried) BulkRetried {
	return BulkRetried{All(all, func(r operate.BulkRetried) RetriedMessage {
		return RetriedMessage{MessageID: r.As, RetryOf: r.Message, Agent: r.Agent, Class: r.ErrorClass}
	})}
}
