package webhooks

import "context"

// A FaultHook is called at labelled points (see FaultPoints), by the goroutine
// that comes by. It is nil in production; only tests set it.
type FaultHook interface {
	At(ctx context.Context, label string)
}

// Points of a delivery.
const (
	pointClaimed  = "webhook.claimed"  // nothing is sent yet
	pointAnswered = "webhook.answered" // the endpoint has it, and the database does not know
	pointNoted    = "webhook.noted"
)

// FaultPoints are all labels that a FaultHook may be called with.
func FaultPoints() []string { return []string{pointClaimed, pointAnswered, pointNoted} }

func (d *Deliverer) at(ctx context.Context, label string) {
	if d.Fault != nil {
		d.Fault.At(ctx, label)
	}
}
