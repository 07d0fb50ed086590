package webhooks

import (
	"context"

	"turnkeeper/internal/fault"
)

// Points of a delivery.
const (
	pointClaimed  = "webhook.claimed"  // nothing is sent yet
	pointAnswered = "webhook.answered" // the endpoint has it, and the database does not know
	pointNoted    = "webhook.noted"
)

// FaultPoints are all labels that a fault.Hook may be called with.
func FaultPoints() []string { return []string{pointClaimed, pointAnswered, pointNoted} }

func (d *Deliverer) at(ctx context.Context, label string) {
	fault.At(ctx, d.Fault, label)
}
