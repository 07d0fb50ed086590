package journal

import (
	"turnkeeper/internal/turnlog"
)

// Points at which a fault.Hook is called: after a transaction has been sent with its commit, and before the
// answer is read.
const (
	PointDraftSent    = "output.draft.sent" // a part of a result that is still coming
	PointArriveSent   = "detached.arrive.sent"
	pointTransactSent = "call.transact.sent"
)

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string {
	points := []string{PointDraftSent, pointTransactSent, PointArriveSent}
	for _, write := range []string{"recover.verdict", "plan", "call.start", "call.results", "finish", "stream"} {
		points = append(points, write+".sent")
	}
	return points
}

// pointSent returns the point of a write to the journal, by the most important part of
// its last entry.
func pointSent(e turnlog.Entry) string {
	switch {
	case e.Outcome != nil:
		return "finish.sent"
	case e.Round != nil:
		return "plan.sent"
	case len(e.Starts) > 0:
		return "call.start.sent"
	case len(e.Results) > 0:
		return "call.results.sent"
	case len(e.Verdicts) > 0:
		return "recover.verdict.sent"
	default:
		return "stream.sent"
	}
}
