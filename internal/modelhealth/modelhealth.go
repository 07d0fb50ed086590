// Package modelhealth holds what all workers know of the health of a model, and the rules by which a
// failure or an answer changes it. It does no I/O.
package modelhealth

import (
	"slices"
	"time"

	"turnkeeper"
)

// Health is what all workers know about a model. With a name and zero values otherwise, the model
// is up.
type Health struct {
	Model      string             // "provider/model", as agents name it
	DownSince  time.Time          // zero: it is up
	Until      time.Time          // when a model that is down may be tried again
	Failures   int                // in a row; 0: it is up
	ErrorClass string             // of the newest failure
	Error      string             // for operators
	Probe      turnkeeper.GrantID // the grant whose turn probes it now; empty: none
	ProbeTurn  turnkeeper.TurnID  // the turn of that grant
	Due        bool               // it is down, and a turn may probe it now
	// Failed are the lanes of the message that failed last, of messages whose requests may have caused its failures,
	// and of open messages that it has failed.
	Failed   []turnkeeper.Lane
	Agents   []string // agents that use it, at any survival level; only in views for operators
	NeededBy []string // those of Agents whose turns ask it at their present level; only in views for operators
	Asked    bool     // it has answered one of the newest 1,000 rounds, or was down before; only in views for operators
}

// Down reports whether the model is down.
func (h Health) Down() bool { return !h.DownSince.IsZero() }

// Used reports whether an agent uses the model. Only for operators.
func (h Health) Used() bool { return len(h.Agents) > 0 }

// State returns the state for operators: up; down; probing, if a turn tries it; unknown, if no request
// is recorded; or unused, if no agent uses it.
func (h Health) State() string {
	switch {
	case !h.Used():
		return "unused"
	case !h.Down() && !h.Asked:
		return "unknown"
	case !h.Down():
		return "up"
	case h.Probe != "":
		return "probing"
	default:
		return "down"
	}
}

// A Failure is a fault of the service that kept a turn from using a model.
type Failure struct {
	Model      string
	Seen       int // failures in a row before this one
	ErrorClass string
	Error      string        // for operators
	RetryAfter time.Duration // requested by the provider; 0: none
	// Requests is the number of the turn's requests that failed, if they may have caused that: the message is a
	// Suspect. 0: they have not.
	Requests int
}

// A Suspect is a model that has failed a message in a way that the message's requests can cause. A pair is such a
// failure after which, within the message's pause, the model answered another request: of another message, or a
// worker's probe.
type Suspect struct {
	Model    string
	Failures int           // turns that failed by it, in a row
	Requests int           // that failed in them
	Open     bool          // the newest failure has no pair yet
	Pairs    int           // number of pairs
	Span     time.Duration // from the first failure with a pair to the newest with one
}

// The least number of pairs, their least span, and the least number of failed requests in a row, from which on a
// failure is the message's own. A service that fails half of all requests at random fails as many in a row for one
// message in 2^20, about a million, and must do that over ten minutes.
const (
	leastPairs    = 3
	leastSpan     = 10 * time.Minute
	leastRequests = 20
)

// Paired reports whether the model has answered another request after a failure of the message. Further failures of the
// message then say nothing about the model.
func (s Suspect) Paired() bool { return s.Pairs > 0 }

// Guilty reports whether another failure, of the given number of requests, is the message's own.
func (s Suspect) Guilty(requests int) bool {
	return s.Pairs >= leastPairs && s.Span >= leastSpan && s.Requests+requests >= leastRequests
}

// PairWindow returns how long after a message's n-th failure in a row an answer to another request makes a pair with
// it: its pause, and two minutes for the request that begins when that is over.
func PairWindow(n int) time.Duration { return Backoff(n) + 2*time.Minute }

// Pause returns how long no turn tries the model after the failure.
func (f Failure) Pause() time.Duration { return max(Backoff(f.Seen+1), f.RetryAfter) }

// Fail returns the health after a failure. Concurrent failures count once: a failure of a request
// from before the newest failure was recorded can only lengthen the pause.
func (h Health) Fail(f Failure, now time.Time) Health {
	if !h.Down() {
		h.DownSince = now
	}
	if h.Failures > f.Seen {
		if asked := now.Add(f.RetryAfter); asked.After(h.Until) {
			h.Until = asked
		}
	} else {
		h.Failures++
		h.Until = now.Add(max(Backoff(h.Failures), f.RetryAfter))
	}
	h.ErrorClass, h.Error, h.Probe, h.ProbeTurn = f.ErrorClass, f.Error, "", 0
	return h
}

// maxBackoff is the maximum pause after failures.
const maxBackoff = 120 * time.Second

// Backoff returns the pause after the n-th failure in a row: 2^n seconds, at most 120; 0 if n < 1.
func Backoff(n int) time.Duration {
	if n < 1 {
		return 0
	}
	if n > 6 { // 2^7 is past the bound
		return maxBackoff
	}
	return time.Duration(1<<n) * time.Second
}

// A Chain is the list of models that an agent's turns try, in order.
type Chain struct {
	Agent  string
	Models []string
}

// Down reports whether all models of the chain are down. A chain without models is not down.
func (c Chain) Down(down []Health) bool {
	return len(c.Models) > 0 && !slices.ContainsFunc(c.Models, func(model string) bool {
		return !slices.ContainsFunc(down, func(h Health) bool { return h.Model == model && h.Down() })
	})
}
