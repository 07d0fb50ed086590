// Package modelhealth holds what all workers know of the health of a model, and the rules by which a
// failure or an answer changes it. It does no I/O.
package modelhealth

import (
	"slices"
	"time"

	"turnkeeper"
)

// ModelHealth is what all workers know of a model. The zero value, with a name, is
// a model that is up.
type Health struct {
	Model      string             // "provider/model", as agents name it
	DownSince  time.Time          // zero: it is up
	Until      time.Time          // a model that is down is not asked before
	Failures   int                // in a row; 0: it is up
	ErrorClass string             // of the newest failure
	Error      string             // for operators
	Probe      turnkeeper.GrantID // the grant whose turn tries it now; empty: none does
	ProbeTurn  turnkeeper.TurnID  // the turn of that grant
	Due        bool               // it is down and may be tried now
	Agents     []string           // that ask it; only for operators
	Asked      bool               // it was down before, or one of the newest 1,000 rounds is its answer; only for operators
}

// Down says that the model cannot be asked at present.
func (h Health) Down() bool { return !h.DownSince.IsZero() }

// Used says that an agent asks the model. Only for operators.
func (h Health) Used() bool { return len(h.Agents) > 0 }

// State is how the model stands for operators, in a word: up; down; probing, where a turn tries it;
// unknown, where nothing tells that it was ever asked; or unused, where no agent asks it any more.
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

// A ModelFailure is a model that a turn could not use, by a fault of the service.
type Failure struct {
	Model      string
	Seen       int // failures in a row that were known before
	ErrorClass string
	Error      string        // for operators
	RetryAfter time.Duration // that the provider asked for; 0: none
}

// Pause is how long the model is left alone after the failure.
func (f Failure) Pause() time.Duration { return max(Backoff(f.Seen+1), f.RetryAfter) }

// Fail is the health after a failure. Requests that fail side by side count once:
// a failure of a request that was made before the newest one was known adds
// nothing but the pause that the provider asked for.
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

// maxBackoff bounds the pause after failures.
const maxBackoff = 120 * time.Second

// Backoff is the pause after the n-th failure in a row: 2^n seconds, at most 120.
func Backoff(n int) time.Duration {
	if n < 1 {
		return 0
	}
	if n > 6 { // 2^7 is past the bound
		return maxBackoff
	}
	return time.Duration(1<<n) * time.Second
}

// An AgentChain is the models that an agent's turns ask, in order.
type Chain struct {
	Agent  string
	Models []string
}

// Down says that no model of the chain is up. An agent whose models are not known
// is not down.
func (c Chain) Down(down []Health) bool {
	return len(c.Models) > 0 && !slices.ContainsFunc(c.Models, func(model string) bool {
		return !slices.ContainsFunc(down, func(h Health) bool { return h.Model == model && h.Down() })
	})
}
