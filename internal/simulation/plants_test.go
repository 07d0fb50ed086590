package simulation_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/tools"
)

// A plant is a fault that the simulation must find.
type plant struct {
	name      string
	finds     string       // part of what it must find
	seed      uint64       // one that found it when it was last looked for; 0: 1
	bugs      []memory.Bug // of the store
	startLate bool         // a start is written with the result, after the effect
	noStarts  bool         // starts are not written at all
	hopeful   bool         // a turn in doubt counts as a success
	impatient bool         // a failure of the model's provider closes the message
	fromWork  bool         // lease and time are counted from the start of the work
	unordered bool         // effects are taken for reads, which nothing waits for
	// tilt, if not nil, makes worlds in which the fault has room to show.
	tilt func(*profile)
}

// Every invariant has a plant that breaks it, and so have the ledger's.
var plants = []plant{
	{name: "no fence", seed: 13, finds: memory.NoOldWrite, bugs: []memory.Bug{memory.BugNoFence}, tilt: longStops},
	{name: "fence without a lock", seed: 13, finds: memory.NoOldWrite, bugs: []memory.Bug{memory.BugFenceApart}, tilt: longStops},
	{name: "reply before the end", seed: 2, finds: memory.OneReply, bugs: []memory.Bug{memory.BugReplyFirst}},
	{name: "end before the reply", seed: 2, finds: memory.ClosedAnswered, bugs: []memory.Bug{memory.BugReplyLast}},
	{name: "grant in two steps", seed: 2, finds: memory.NothingStuck, bugs: []memory.Bug{memory.BugGrantApart}},
	{name: "ticks overlap", finds: memory.NoOverlap, bugs: []memory.Bug{memory.BugTicksOverlap}},
	{name: "ticks overlap in a lane", finds: memory.NoBadMove, bugs: []memory.Bug{memory.BugTicksOverlap}},
	{name: "journal by attempt", seed: 2, finds: memory.OnceStartedOnce, bugs: []memory.Bug{memory.BugJournalByAttempt}},
	{name: "open start run again", seed: 2, finds: "of effect once, ran 2 times", bugs: []memory.Bug{memory.BugStartTwice}},
	{name: "late result over the verdict", seed: 21, finds: memory.VerdictStays, bugs: []memory.Bug{memory.BugLateOverwrites}},
	{name: "lost answer done again", seed: 11, finds: memory.OnceStartedOnce, bugs: []memory.Bug{memory.BugLostAnswerRedone}},
	{name: "calls left open", finds: memory.NoOpenCall, bugs: []memory.Bug{memory.BugCallsLeftOpen}},
	{name: "token starts again", finds: memory.TokenGrows, bugs: []memory.Bug{memory.BugTokenRestarts}},
	{name: "verdict forgotten", finds: memory.NoOpenCall, bugs: []memory.Bug{memory.BugVerdictForgotten}},
	{name: "numbers of events lost", seed: 2, finds: memory.NoGap, bugs: []memory.Bug{memory.BugNumbersLost}},
	{name: "a wait past what has arrived", seed: 2, finds: memory.WaitsForResult, bugs: []memory.Bug{memory.BugWaitsInVain}},
	{name: "a claim given twice", seed: 49, finds: "of effect once, ran 2 times", bugs: []memory.Bug{memory.BugClaimTwice}},
	{name: "two messages to a sub-agent", finds: memory.OneMessage, bugs: []memory.Bug{memory.BugSpawnTwice}},
	{name: "a reply that is not told", finds: memory.RepliesTold, bugs: []memory.Bug{memory.BugReplyUntold}},
	{name: "a write that was not answered found by counting", seed: 8, finds: notPlanned, bugs: []memory.Bug{memory.BugReadBackByCount, memory.BugGrantUnbound}, tilt: forgetful},
	{name: "a write found by counting, and its effect twice", seed: 12, finds: "of effect once, ran 2 times", bugs: []memory.Bug{memory.BugReadBackByCount, memory.BugGrantUnbound}, tilt: forgetful},
	{name: "a grant that is not bound", finds: oneWorker, bugs: []memory.Bug{memory.BugGrantUnbound}, tilt: forgetful},
	{name: "start after the effect", finds: "with 0 starts on record", startLate: true},
	{name: "no starts", finds: memory.StartedBefore, noStarts: true},
	{name: "doubt taken for success", seed: 2, finds: memory.NoFalseSuccess, hopeful: true},
	{name: "a failure of the provider closes the message", seed: 3, finds: failedByService, impatient: true},
	{name: "an effect that is not waited for", finds: outOfOrder, unordered: true},
	{name: "time counted from the work", finds: "after the time of its turn was over", fromWork: true, tilt: slowPickup},
}

// longStops has several processes that are often stopped, for long enough to be
// given up.
func longStops(p *profile) {
	p.processes, p.freezes, p.takeover, p.bellsLost = 3, 0.05, 15*time.Second, 0
}

// forgetful has a server that crashes again and again, forgets that jobs were taken,
// and loses requests, and processes that live: two of them come to have one job.
func forgetful(p *profile) {
	p.processes, p.takeover, p.nights, p.disasters = 3, 60*time.Second, 0, 1
	p.kills, p.freezes, p.panics, p.modelFails, p.bellsLost, p.beatsLost = 0, 0, 0, 0, 0, 0
	p.requestsLost, p.jobPoll, p.crashes = 0.3, time.Second, 1000
}

// slowPickup has jobs wait for their worker, by clocks that can be relied on.
func slowPickup(p *profile) {
	p.clockSteps, p.drift, p.jobPoll, p.bellsLost = false, 0, 3*time.Minute, 0.8
}

// lateStarts is a journal that keeps a start back until there is a result.
type lateStarts struct {
	agentturn.Journal
	owed []turnkeeper.Entry
}

func (j *lateStarts) Append(ctx context.Context, e turnkeeper.Entry) error {
	if len(e.Starts) > 0 && e.Outcome == nil {
		j.owed = append(j.owed, e)
		return nil
	}
	for len(j.owed) > 0 {
		if err := j.Journal.Append(ctx, j.owed[0]); err != nil {
			return err
		}
		j.owed = j.owed[1:]
	}
	return j.Journal.Append(ctx, e)
}

// noStarts is a journal that writes no start, and results as if none were needed.
type noStarts struct{ agentturn.Journal }

func (j noStarts) Append(ctx context.Context, e turnkeeper.Entry) error {
	e.Starts, e.Results = nil, slices.Clone(e.Results)
	for i := range e.Results {
		e.Results[i].Nonce = ""
	}
	return j.Journal.Append(ctx, e)
}

// hopeful is a journal that takes doubt for success.
type hopeful struct{ agentturn.Journal }

func (j hopeful) Append(ctx context.Context, e turnkeeper.Entry) error {
	if o := e.Outcome; o != nil && o.StopReason == turnkeeper.StopWorkerLost {
		sure := *o
		sure.State, sure.StopReason = turnkeeper.TurnSucceeded, turnkeeper.StopNone
		e.Outcome = &sure
	}
	return j.Journal.Append(ctx, e)
}

// impatient is a journal that closes the message of a turn that failed because of the model's provider.
type impatient struct{ agentturn.Journal }

func (j impatient) Append(ctx context.Context, e turnkeeper.Entry) error {
	if o := e.Outcome; o != nil && o.Retry && inference.Class(o.ErrorClass).OfService() {
		final := *o
		final.Retry, final.Backoff, final.WaitsFor, final.Reply = false, 0, nil, "The model could not be reached."
		e.Outcome = &final
	}
	return j.Journal.Append(ctx, e)
}

// faulty is the journal as the plant has it.
func (p plant) faulty(journal agentturn.Journal) agentturn.Journal {
	switch {
	case p.startLate:
		return &lateStarts{Journal: journal}
	case p.noStarts:
		return noStarts{journal}
	case p.hopeful:
		return hopeful{journal}
	case p.impatient:
		return impatient{journal}
	default:
		return journal
	}
}

// tools are those of the processes as the plant has them.
func (p plant) tools() *tools.Registry {
	if !p.unordered {
		return toolbox
	}
	return toolsWith(map[string]turnkeeper.Effect{
		"look": turnkeeper.EffectNone, "put": turnkeeper.EffectNone, "fire": turnkeeper.EffectOnce, "ask": turnkeeper.EffectOnce,
		"book": turnkeeper.EffectOnce, "send": turnkeeper.EffectKeyed, "shoot": turnkeeper.EffectOnce,
	})
}

// in says that what the plant must find was found.
func (p plant) in(found []string) bool {
	return slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, p.finds) })
}
