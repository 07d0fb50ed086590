package agentturn

import (
	"time"

	"turnkeeper/internal/modelhealth"
)

// A Fault is the reason why a turn failed.
type Fault int

// The faults.
const (
	FaultService Fault = iota // no model could be asked; one may be available later
	FaultMessage              // every model that was asked refused the request itself
	FaultAnswer               // no answer was usable
	FaultTime                 // max_duration was reached
	FaultBound                // another bound was reached
	FaultInside               // the worker could not build a request, or panicked
)

// A Failure holds the facts that decide the end of a failed turn and of its message.
type Failure struct {
	Fault   Fault
	Ran     bool // a tool has run, or may have
	Effects bool // a tool with an effect has run, or may have

	Counted     int // earlier attempts that count against the message
	MaxAttempts int
	Attempts    int // all attempts, this one included

	// the turn waits for a service with its journal: a person has answered an ask of it, or it is to finish
	Keep        bool
	Waited      time.Duration // for services, since the first failure
	GiveUpAfter time.Duration // maximum wait for a service
	Pause       time.Duration // until the service may be asked again
}

// A Verdict says how a failed turn ends.
type Verdict struct {
	Degraded bool          // the turn ends with a reply; else it has failed
	Wait     bool          // the turn waits for the service and keeps its journal
	Retry    bool          // if failed: the message waits for another turn; else it is closed with a reply
	Counted  bool          // if failed: the attempt counts against the message
	Backoff  time.Duration // if Wait or Retry: the pause before the turn goes on, or before that turn
}

// lastAttempt is the highest number of an attempt for which the table of messages has room.
const lastAttempt = 1_000_000

// maxPause is the longest pause of a lane.
const maxPause = 120 * time.Second

// Verdict decides how the turn ends. Once an effect may have happened, the turn is not
// retried, so that no effect happens twice.
func (f Failure) Verdict() Verdict {
	switch {
	case f.Effects, f.Ran && (f.Fault == FaultTime || f.Fault == FaultBound):
		return Verdict{Degraded: true}
	case f.Attempts >= lastAttempt:
		return Verdict{Counted: f.Fault != FaultService}
	case f.Fault == FaultService:
		left := f.GiveUpAfter - f.Waited
		if left <= 0 {
			return Verdict{}
		}
		return Verdict{Wait: f.Keep, Retry: !f.Keep, Backoff: min(max(f.Pause, 0), left, maxPause)}
	case f.Fault == FaultMessage, f.Fault == FaultBound:
		return Verdict{Counted: true}
	}
	n := f.Counted + 1
	if n >= f.MaxAttempts {
		return Verdict{Counted: true}
	}
	return Verdict{Counted: true, Retry: true, Backoff: modelhealth.Backoff(n)}
}
