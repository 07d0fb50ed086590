// Package presence tells from the heartbeat of a worker process whether it is alive. It does no I/O.
package presence

import (
	"slices"
	"time"

	"turnkeeper"
)

// A Heartbeat is the newest sign of life of a worker process, from the database.
type Heartbeat struct {
	WorkerID      turnkeeper.WorkerID
	Host          string
	PID           int
	Version       string
	Roles         []string      // its roles in the settings
	Slots         int           // maximum number of turns at once; 0: it drains, or is no worker of turns
	TakeoverAfter time.Duration // silence after which others take over its turns; 0: only when the lease ends
	StartedAt     time.Time
	BeatAt        time.Time
	StoppedAt     time.Time // when it reported its stop; zero: it did not
	Silent        time.Duration
	// what the database refused when the heartbeat was sent, the longest first; at most MaxRefused
	Refused []Refusal
}

// MaxRefused is the maximum number of refusals in a heartbeat, whose row must stay small: a full disk has no room for
// it to grow.
const MaxRefused = 16

// A Refusal is an operation that a worker repeats because the database refuses it.
type Refusal struct {
	Turn     turnkeeper.TurnID // whose journal it writes to; 0: of no turn
	For      time.Duration     // since the first failed attempt
	Attempts int               // refused ones
	SQLState string
	Message  string // of the newest refusal, with secrets masked
}

// Longest returns the longest of what the database refuses a process, and workers that have not stopped, as of their
// heartbeats. It returns nil if it refuses nothing.
func Longest(own []Refusal, workers []Heartbeat) (longest *Refusal) {
	all := slices.Clone(own)
	for _, w := range workers {
		if w.State() != Stopped {
			all = append(all, w.Refused...)
		}
	}
	for i, r := range all {
		if longest == nil || r.For > longest.For {
			longest = &all[i]
		}
	}
	return longest
}

// Roles of processes.
const (
	RoleWorker    = "worker"    // takes turns
	RoleScheduler = "scheduler" // dispatches turns
)

// SilentAfter is how long a worker may send no heartbeat before all views call it silent: longer
// than any pause between two heartbeats.
const SilentAfter = 15 * time.Second

// State is the state of a worker process.
type State string

// The states of a worker process.
const (
	Alive    State = "alive"   // it takes turns
	Serving  State = "serving" // it is alive, and takes no turns as it lacks RoleWorker
	Draining State = "draining"
	Silent   State = "silent"
	Stopped  State = "stopped"
)

// State returns the state of the process. It is silent after SilentAfter, whatever its TakeoverAfter: that is
// when other workers take over its turns, and until when the scheduler counts its slots.
func (h Heartbeat) State() State {
	switch {
	case !h.StoppedAt.IsZero():
		return Stopped
	case h.Silent > SilentAfter:
		return Silent
	case h.Slots == 0 && len(h.Roles) > 0 && !slices.Contains(h.Roles, RoleWorker):
		return Serving
	case h.Slots == 0:
		return Draining
	default:
		return Alive
	}
}
