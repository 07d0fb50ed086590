package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/storage/operate"
)

// A Model is the health of a model that agents use.
type Model struct {
	Model string `json:"model"`
	// up, down, probing (down, and a turn tries it), unknown (not asked yet), unused
	State     string             `json:"state" schema:"ref=ModelState"`
	DownSince *time.Time         `json:"down_since"`
	Until     *time.Time         `json:"next_try_at"` // null: the model is up
	Failures  int                `json:"failures" doc:"consecutive failures"`
	Class     string             `json:"error_class" doc:"class of the newest failure"`
	Error     string             `json:"error"`
	ProbeTurn *turnkeeper.TurnID `json:"probe_turn_id"`
	Agents    []string           `json:"agents" doc:"agents that use the model, at any survival level"`
	NeededBy  []string           `json:"needed_by" doc:"those of the agents whose turns ask the model now, at their survival level"`
}

// OfModel returns the view of a model.
func OfModel(h modelhealth.Health) Model {
	return Model{
		Model: h.Model, State: h.State(), DownSince: OrNull(h.DownSince), Until: OrNull(h.Until), Failures: h.Failures,
		Class: h.ErrorClass, Error: h.Error, ProbeTurn: OrNull(h.ProbeTurn), Agents: append([]string{}, h.Agents...),
		NeededBy: append([]string{}, h.NeededBy...),
	}
}

// BulkRetried is the result of retrying all failed messages.
type BulkRetried struct {
	Retried []RetriedMessage `json:"retried"`
}

// A RetriedMessage is one message of a BulkRetried.
type RetriedMessage struct {
	MessageID turnkeeper.MessageID `json:"message_id" doc:"the new message"`
	RetryOf   turnkeeper.MessageID `json:"retry_of"`
	Agent     string               `json:"agent"`
	Class     string               `json:"error_class"`
}

// ErrorClasses returns the error classes of failed turns: those of model errors, and those that package agentturn sets.
func ErrorClasses() (words []string) {
	for _, class := range []inference.Class{
		inference.ClassRateLimited, inference.ClassOverloaded, inference.ClassTransport, inference.ClassBadOutput,
		inference.ClassContextOverflow,
		inference.ClassAuth, inference.ClassQuota, inference.ClassNotFound, inference.ClassInvalid,
		inference.ClassRefused,
	} {
		words = append(words, string(class))
	}
	return append(words, string(turnkeeper.StopMaxDuration), string(turnkeeper.StopBudget), "internal")
}

// OfBulkRetried returns the view of a bulk retry.
func OfBulkRetried(all []operate.BulkRetried) BulkRetried {
	return BulkRetried{All(all, func(r operate.BulkRetried) RetriedMessage {
		return RetriedMessage{MessageID: r.As, RetryOf: r.Message, Agent: r.Agent, Class: r.ErrorClass}
	})}
}
