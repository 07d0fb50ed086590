package simulation_test

import (
	"context"
	"time"

	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// gated are the arguments of calls that a person must approve, and changed those that a person puts in their place.
const gated, changed = `{"n":5}`, `{"n":50}`

// Approve asks about some calls.
func (t *tool) Approve(ctx context.Context, call tools.Call) (policy.Decision, error) {
	if actorOf(ctx).p.env.profile.asks && string(call.Arguments) == gated {
		return policy.Decision{Verdict: policy.Ask, Reason: "it is five"}, nil
	}
	return policy.Decision{}, nil
}

// answerAsks answers the open asks until ctx ends, as people do: soon, late, or not at all.
func (e *env) answerAsks(ctx context.Context, a *actor) {
	conn := e.store.Connect(nil)
	ignored := map[asks.ID]bool{}
	for {
		wait := a.between(time.Second, 3*time.Minute)
		if e.isQuiet() {
			wait = 5 * time.Second
		}
		if !sleep(ctx, wait) {
			return
		}
		for _, ask := range e.store.OpenAsks() {
			answer := asks.Answer{Decision: asks.Approved, By: "ann", Channel: "simulation"}
			runs := ask.Arguments
			switch draw := a.Float64(); {
			case e.isQuiet():
			case ignored[ask.ID] || draw < 0.15:
				ignored[ask.ID] = true
				continue
			case draw < 0.3:
				answer.Decision, runs = asks.Denied, ""
			case draw < 0.5:
				answer.Edited, runs = changed, changed
			}
			k := callID{ask.Turn, ask.Call}
			e.ledger.approve(k, runs)
			state, err := conn.AnswerAsk(ctx, ask.ID, answer)
			e.note(nil, "answer "+string(answer.Decision), outcomeOf(err), int64(ask.ID), 0)
			if err != nil || state != answer.Decision {
				e.ledger.approve(k, "")
			}
		}
	}
}

// approve records what a person has approved for a call; empty: nothing.
func (l *ledger) approve(k callID, arguments string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.approved[k] = arguments
}

// checkApproved checks that a call that needs an approval runs with what was approved.
func (e *env) checkApproved(k callID, name, planned, arguments string) {
	e.ledger.mu.Lock()
	approved := e.ledger.approved[k]
	e.ledger.mu.Unlock()
	if !e.needsApproval(name, planned) {
		return
	}
	if planned != gated {
		e.visit(labelledCall)
	}
	if approved != arguments {
		e.report("call %s of turn %d runs as %s, but %s: %q", k.key, k.turn, arguments, notApproved, approved)
	}
}

const notApproved = "a person approved other arguments"

// misreads is a planted bug of what a dispatch reads of asks and labels.
type misreads struct {
	expired bool // an ask that has expired counts as approved
	edits   bool // changed arguments are overlooked
	labels  bool // labels of results are forgotten
}

func (m misreads) apply(r *turnlog.Record) {
	if m.labels {
		r.Labels.Calls = nil
	}
	for i := range r.Asks {
		if a := &r.Asks[i]; m.expired && a.State == asks.Expired {
			a.State = asks.Approved
		}
		if m.edits {
			r.Asks[i].Edited, r.Asks[i].EditedHash = "", ""
		}
	}
}

// peopleAnswer makes turns ask often, and workers die.
func peopleAnswer(p *profile) { p.asks = true }
