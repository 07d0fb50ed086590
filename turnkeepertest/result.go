package turnkeepertest

import (
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// A Result is what a run left behind.
type Result struct {
	Replies  []turnkeeper.Reply  // the outbox, in order
	Turns    []Turn              // in order
	Requests []inference.Request // what the models were sent, in order, repeats included
	Effects  []Effect            // what tools wrote in any Ledger, by call
	Points   []Point             // passed, in order: where CrashAt and PauseAt can strike
	Writes   []Point             // done, in order: where LoseAnswer can strike

	Problems []string // what is wrong; Run has reported each
	Trace    string   // what happened, a line each, by the run's clock
}

// A Turn is one with its journal.
type Turn struct {
	turnkeeper.Turn
	Rounds []turnkeeper.Round
	Events []turnkeeper.Event
}

// Reply is the text of the last reply; empty where there is none.
func (r *Result) Reply() string {
	if len(r.Replies) == 0 {
		return ""
	}
	return r.Replies[len(r.Replies)-1].Body
}

// Calls are all calls of a tool as the journal has them, in order. The Shown of
// each is what the model saw as its result.
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

// Happened is how often an effect has happened.
func (r *Result) Happened(what string) (n int) {
	for _, e := range r.Effects {
		if e.What == what {
			n++
		}
	}
	return n
}

// result checks the run and tells of it.
func (w *world) result() *Result {
	w.check()
	r := &Result{Replies: w.store.Replies(), Requests: w.model.script.Requests()}
	for id := turnkeeper.TurnID(1); ; id++ {
		turn, rounds, events, ok := w.store.Turn(id)
		if !ok {
			break
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
