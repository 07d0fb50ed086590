package granting

import (
	"time"

	"turnkeeper"
)

// A Lease is the exclusive right to run a turn of a lane.
type Lease struct {
	Lane      turnkeeper.Lane
	Token     int64 // of its newest grant: only grows; 0: nothing runs there, and nothing has failed
	GrantID   turnkeeper.GrantID
	TurnID    turnkeeper.TurnID
	WorkerID  turnkeeper.WorkerID
	GrantedAt time.Time
	Until     time.Time
	Failures  int       // failed turns in a row
	NotBefore time.Time // end of the backoff; zero: none
}

// Held reports whether the lease is held.
func (l Lease) Held() bool { return l.GrantID != "" }
