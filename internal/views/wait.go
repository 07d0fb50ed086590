package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

// A Wait is one reason why an open message waits.
type Wait struct {
	Reason    waiting.Reason        `json:"reason" doc:"values may be added"`
	Detail    string                `json:"detail" doc:"a sentence for people, whose text may change"`
	Since     *time.Time            `json:"since"`
	Until     *time.Time            `json:"until" doc:"latest end of the wait; null: unknown"`
	TurnID    *turnkeeper.TurnID    `json:"turn_id" doc:"its own turn, or the one in its way"`
	MessageID *turnkeeper.MessageID `json:"message_id" doc:"the message that goes first"`
	WorkerID  turnkeeper.WorkerID   `json:"worker_id" doc:"the worker of turn_id"`
	Model     string                `json:"model"`
}

// OfWait returns the view of a reason to wait.
func OfWait(w waiting.Wait) Wait {
	return Wait{
		Reason: w.Reason, Detail: w.Long(inUTC), Since: OrNull(w.Since), Until: OrNull(w.Until), TurnID: OrNull(w.Turn),
		MessageID: OrNull(w.Message), WorkerID: w.Worker, Model: w.Model,
	}
}

func inUTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// A Tally counts the turns that wait for one reason. A turn with several reasons counts for each.
type Tally struct {
	Reason waiting.Reason `json:"reason" doc:"values may be added"`
	Turns  int            `json:"turns"`
	Since  *time.Time     `json:"since" doc:"when the longest of these waits began; null: unknown"`
	Until  *time.Time     `json:"until" doc:"latest end of the wait that ends first; null: none ends by time"`
}

// OfTally returns the view of a tally.
func OfTally(t waiting.Tally) Tally {
	return Tally{Reason: t.Reason, Turns: t.Turns, Since: OrNull(t.Since), Until: OrNull(t.Until)}
}
