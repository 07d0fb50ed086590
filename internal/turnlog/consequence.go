package turnlog

import (
	"time"

	"turnkeeper"
)

// A Consequence is what the end of a dispatch does to the message, the lane and the grant log, in addition to the
// turn's Outcome. Every store writes what ConsequenceOf and LostGrant.Consequence of package granting decide.
type Consequence struct {
	Message     turnkeeper.MessageState // MessageWaiting: it waits for another turn
	Log         string                  // outcome in the grant log: see turnkeeper.Dispatch
	LaneBackoff time.Duration           // pause of the lane, after a failed turn
	Lost        bool                    // counts as a lost worker
}

// ConsequenceOf returns the consequence of a dispatch whose worker has written the outcome.
func ConsequenceOf(o Outcome) Consequence {
	e := Consequence{Message: turnkeeper.MessageState(o.State), Log: "finished"} // a message ends as its turn does
	switch o.State {
	case turnkeeper.TurnQueued:
		e.Message, e.Log = turnkeeper.MessageRunning, "handed_back"
		if o.Backoff > 0 {
			e.Log = "deferred"
		}
	case turnkeeper.TurnWaiting:
		e.Message, e.Log = turnkeeper.MessageRunning, "waiting"
	case turnkeeper.TurnFailed:
		if o.Retry {
			e.Message, e.LaneBackoff = turnkeeper.MessageWaiting, o.Backoff
		}
	default:
	}
	return e
}
