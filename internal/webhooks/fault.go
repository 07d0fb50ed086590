package webhooks

import (
	"context"

	"turnkeeper/internal/fault"
)

// Fault points of a delivery.
const (
	pointClaimed  = "webhook.claimed"  // before sending
	pointAnswered = "webhook.answered" // after the answer, before it is recorded
	pointNoted    = "webhook.noted"
)

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string { return []string{pointClaimed, pointAnswered, pointNoted} }

func (d *Deliverer) at(ctx context.Context, label string) {
	fault.At(ctx, d.Fault, label)
}
