package granting

import (
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// MaxDetachedLosses is the number of lost workers after which a repeatable
// call fails.
const MaxDetachedLosses = 3

// CallFailure is why a detached call has no result.
type CallFailure string

// The reasons.
const (
	CallLost       CallFailure = "lost"        // its worker is silent, or gave it up
	CallOverdue    CallFailure = "overdue"     // it ran longer than its limit
	CallJobMissing CallFailure = "job_missing" // no run began, and its job is missing
	CallUnclaimed  CallFailure = "unclaimed"   // no worker claimed it within MaxDetachedWait
)

// A LostCall is a detached call that gets no result unless the scheduler acts.
type LostCall struct {
	Ref      turnlog.CallRef
	Failure  CallFailure
	Name     string
	Effect   turnkeeper.Effect
	OutputID turnkeeper.OutputID
	Losses   int // earlier ones
	Limit    time.Duration
	WorkerID turnkeeper.WorkerID // its worker; empty: none ran it
	Alive    bool                // its worker's process is alive but late: this does not count as a loss
	JobID    turnkeeper.JobID
}
