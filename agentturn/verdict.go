package agentturn

import (
	"time"

	"turnkeeper"
)

// Fault says what made a turn fail.
type Fault int

// The faults.
const (
	FaultService Fault = iota // no model could be used, and one may be later
	FaultMessage              // every model that could be asked refused the request for what it is
	FaultAnswer               // the answers could not be used
	FaultTime                 // the turn's time was over
	FaultBound                // another bound was reached
	FaultInside               // the worker could not build a request, or panicked
)

// A Failure is all that decides what becomes of a turn that cannot go on, and of
// its message.
type Failure struct {
	Fault   Fault
	Ran     bool // a tool has run, or may have
	Effects bool // one with an effect

	Counted     int // earlier attempts at the message that count
	MaxAttempts int

	Waited      time.Duration // since the message was accepted, and due
	GiveUpAfter time.Duration // how long it may wait for a service
	Pause       time.Duration // until the service may be asked again
}

// A Verdict is what becomes of a turn that cannot go on.
type Verdict struct {
	Degraded bool          // it ends with a reply; else it has failed
	Retry    bool          // failed: the message stays for another turn; else it is closed with a reply
	Counted  bool          // failed: the attempt counts against the message
	Backoff  time.Duration // Retry: until that turn
}

// maxPause is the longest pause of a lane.
const maxPause = 120 * time.Second

// Verdict decides what becomes of the turn. No effect happens twice: once one may
// have happened, the turn is answered with what there is.
func (f Failure) Verdict() Verdict {
	switch {
	case f.Effects, f.Ran && (f.Fault == FaultTime || f.Fault == FaultBound):
		return Verdict{Degraded: true}
	case f.Fault == FaultService:
		left := f.GiveUpAfter - f.Waited
		if left <= 0 {
			return Verdict{}
		}
		return Verdict{Retry: true, Backoff: min(max(f.Pause, 0), left, maxPause)}
	case f.Fault == FaultMessage, f.Fault == FaultBound:
		return Verdict{Counted: true}
	}
	n := f.Counted + 1
	if n >= f.MaxAttempts {
		return Verdict{Counted: true}
	}
	return Verdict{Counted: true, Retry: true, Backoff: turnkeeper.Backoff(n)}
}

// An Ending is what the end of a dispatch does to the message and to the lane.
type Ending struct {
	Message turnkeeper.MessageState // MessageWaiting: it stays for another turn
	Log     string                  // in the grant log: finished, handed_back, deferred or waiting
	Pause   time.Duration           // of the lane of a turn that failed
}

// EndingOf is what an outcome means, for every store.
func EndingOf(o turnkeeper.Outcome) Ending {
	e := Ending{Message: turnkeeper.MessageAnswered, Log: "finished"}
	switch o.State {
	case turnkeeper.TurnQueued:
		e.Log = "handed_back"
		if o.Backoff > 0 {
			e.Log = "deferred"
		}
	case turnkeeper.TurnWaiting:
		e.Log = "waiting"
	case turnkeeper.TurnFailed:
		e.Message = turnkeeper.MessageFailed
		if o.Retry {
			e.Message, e.Pause = turnkeeper.MessageWaiting, o.Backoff
		}
	case turnkeeper.TurnCancelled:
		e.Message = turnkeeper.MessageCancelled
	default:
	}
	return e
}
