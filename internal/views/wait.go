package views

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/words"
)

// A Wait is one thing that an open message waits for.
type Wait struct {
	Reason    turnkeeper.WaitReason `json:"reason" doc:"more may be added"`
	Detail    string                `json:"detail" doc:"in words, which may change"`
	Since     *time.Time            `json:"since"`
	Until     *time.Time            `json:"until" doc:"when it ends at the latest; null: not known"`
	TurnID    *turnkeeper.TurnID    `json:"turn_id" doc:"that is open in the lane"`
	MessageID *turnkeeper.MessageID `json:"message_id" doc:"that goes first"`
	WorkerID  turnkeeper.WorkerID   `json:"worker_id" doc:"of that turn"`
	Model     string                `json:"model"`
}

// OfWait shows a thing that an open message waits for.
func OfWait(w turnkeeper.Wait) Wait {
	return Wait{
		Reason: w.Reason, Detail: words.Wait(w, inUTC), Since: OrNull(w.Since), Until: OrNull(w.Until), TurnID: OrNull(w.Turn),
		MessageID: OrNull(w.Message), WorkerID: w.Worker, Model: w.Model,
	}
}

func inUTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }
