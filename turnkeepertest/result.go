package turnkeepertest

import (
	"context"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/inference"
)

// A Result is the outcome of a run.
type Result struct {
	Replies  []turnkeeper.Reply  // the outbox, in order
	Turns    []Turn              // in order
	Requests []inference.Request // sent to the models, in order, repeats included
	Asks     []asks.Ask          // questions to people, in order
	Effects  []Effect            // recorded by tools in any Ledger, by call
	Points   []Point             // passed, in order: where CrashAt and PauseAt can inject a fault
	Writes   []Point             // executed, in order: whose answers LoseAnswer can lose

	Problems []string // failed checks; Run has reported each
	Trace    string   // a log of the run, one event per line, with the run's clock
}

// A Turn is a turn with its journal.
type Turn struct {
	turnkeeper.Turn
	Rounds []turnkeeper.Round
	Events []turnkeeper.Event
}

// Reply returns the text of the last reply, or "" without a reply.
func (r *Result) Reply() string {
	if len(r.Replies) == 0 {
		return ""
	}
	return r.Replies[len(r.Replies)-1].Body
}

// Calls returns all calls of a tool in the journal, in order. The Shown of each is the
// result that the model saw.
func (r *Result) Calls(tool string) []turnkeeper.ToolCall {
	var calls []turnkeeper.ToolCall
	for _, turn := range r.Turns {
		for _, round := range turn.Rounds {
			for _, call := range round.Calls {
				if call.Name == tool {
					calls = append(calls, call)
				}
			}
		}
	}
	return calls
}

// Happened returns how often the effect what has happened.
func (r *Result) Happened(what string) (n int) {
	for _, e := range r.Effects {
		if e.What == what {
			n++
		}
	}
	return n
}

// result checks the run and returns its Result.
func (w *world) result() *Result {
	w.check()
	r := &Result{Replies: w.store.Replies(), Requests: w.model.script.Requests()}
	for id := turnkeeper.TurnID(1); ; id++ {
		turn, rounds, events, ok := w.store.Turn(id)
		if !ok {
			break
		}
		if of, err := w.conn.Asks(context.Background(), id); err == nil {
			r.Asks = append(r.Asks, of...)
		}
		r.Turns = append(r.Turns, Turn{turn, rounds, events})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, call := range w.callOrder {
		r.Effects = append(r.Effects, w.runs[call].effects...)
	}
	r.Points, r.Writes = slices.Clone(w.points), slices.Clone(w.writes)
	r.Problems, r.Trace = slices.Clone(w.problems), strings.Join(w.trace, "\n")+"\n"
	return r
}
