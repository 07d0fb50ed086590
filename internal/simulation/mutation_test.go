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
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// A mutation is a planted bug that the simulation must find.
type mutation struct {
	name           string
	want           string       // part of the text of the broken invariant
	seed           uint64       // seed to try first; 0: 1
	bugs           []memory.Bug // bugs of the store
	lateStart      bool         // writes a start with the result, after the effect
	noStarts       bool         // writes no starts
	losesNotices   bool         // writes requests without their notices
	reportsSuccess bool         // reports a lost turn as succeeded
	failsEarly     bool         // closes a message when the model's provider fails
	lateClock      bool         // counts lease and time from the start of the work, not from the grant
	forgetsRuns    bool         // a process runs a job whose grant it already runs
	wrongEffects   bool         // declares effects as reads, so nothing waits for them
	misreads       misreads     // what a dispatch misreads of asks and labels
	losesLabels    string       // what is written without its labels
	// adjust, if not nil, changes the profile to make the bug likely to show.
	adjust func(*profile)
}

// mutations has a mutation for every invariant of the store and of the ledger.
var mutations = []mutation{
	{name: "no fence", seed: 2, want: memory.NoOldWrite, bugs: []memory.Bug{memory.BugNoFence}, adjust: longStops},
	{name: "fence without a lock", seed: 11, want: memory.NoOldWrite, bugs: []memory.Bug{memory.BugFenceApart},
		adjust: longStops},
	{name: "reply before the end", seed: 2, want: memory.OneReply, bugs: []memory.Bug{memory.BugReplyFirst}},
	{name: "end before the reply", seed: 2, want: memory.ClosedAnswered, bugs: []memory.Bug{memory.BugReplyLast}},
	{name: "grant in two steps", seed: 2, want: memory.NothingStuck, bugs: []memory.Bug{memory.BugGrantApart}},
	{name: "ticks overlap", want: memory.NoOverlap, bugs: []memory.Bug{memory.BugTicksOverlap}},
	{name: "ticks overlap in a lane", want: memory.NoBadMove, bugs: []memory.Bug{memory.BugTicksOverlap}},
	{name: "journal by attempt", want: memory.OnceStartedOnce, bugs: []memory.Bug{memory.BugJournalByAttempt}},
	{name: "open start repeated", seed: 2, want: "of effect once, ran 2 times",
		bugs: []memory.Bug{memory.BugStartTwice}},
	{name: "late result over the verdict", seed: 21, want: memory.VerdictStays,
		bugs: []memory.Bug{memory.BugLateOverwrites}},
	{name: "write repeated after a lost answer", seed: 36, want: memory.OnceStartedOnce,
		bugs: []memory.Bug{memory.BugLostAnswerRedone}},
	{name: "calls left open", want: memory.NoOpenCall, bugs: []memory.Bug{memory.BugCallsLeftOpen}},
	{name: "token restarts", want: memory.TokenGrows, bugs: []memory.Bug{memory.BugTokenRestarts}},
	{name: "verdict forgotten", seed: 2, want: memory.NoOpenCall, bugs: []memory.Bug{memory.BugVerdictForgotten}},
	{name: "event numbers lost", seed: 2, want: memory.NoGap, bugs: []memory.Bug{memory.BugNumbersLost}},
	{name: "waiting for a completed call", seed: 14, want: memory.WaitsForResult,
		bugs: []memory.Bug{memory.BugWaitsInVain}},
	{name: "call claimed twice", seed: 93, want: "of effect once, ran 2 times",
		bugs: []memory.Bug{memory.BugClaimTwice}},
	{name: "two messages for one spawn", want: memory.OneMessage, bugs: []memory.Bug{memory.BugSpawnTwice}},
	{name: "sub-agent's reply not delivered", want: memory.RepliesDelivered,
		bugs: []memory.Bug{memory.BugReplyUndelivered}},
	{name: "unanswered write found by counting", seed: 9, want: notPlanned,
		bugs: []memory.Bug{memory.BugReadBackByCount, memory.BugGrantUnbound}, adjust: lostFetches},
	{name: "effect repeated after a write found by counting", seed: 10, want: "of effect once, ran 2 times",
		bugs: []memory.Bug{memory.BugReadBackByCount, memory.BugGrantUnbound}, adjust: lostFetches},
	{name: "grant not bound", seed: 16, want: oneWorker, bugs: []memory.Bug{memory.BugGrantUnbound},
		adjust: lostFetches},
	{name: "handed over and queued, not bound", seed: 336, want: oneWorker, bugs: []memory.Bug{memory.BugHandedQueued,
		memory.BugGrantUnbound}, adjust: handsOver},
	{name: "handed over and fetched by the same process", want: twiceInAProcess,
		bugs: []memory.Bug{memory.BugHandedQueued}, forgetsRuns: true, adjust: handsOver},
	{name: "overtaken while it waits again", seed: 3, want: memory.InOrder, bugs: []memory.Bug{memory.BugOvertaken}},
	{name: "forgotten while it waits again", want: notGranted, bugs: []memory.Bug{memory.BugForgotten}},
	{name: "approval used twice", seed: 23, want: "is used by two starts",
		bugs: []memory.Bug{memory.BugJournalByAttempt, memory.BugAskUsedTwice}, adjust: peopleAnswer},
	{name: "approval used for other arguments", want: memory.Approved, bugs: []memory.Bug{memory.BugApprovesOther},
		misreads: misreads{edits: true}, adjust: peopleAnswer},
	{name: "other arguments than approved run", seed: 2, want: notApproved, bugs: []memory.Bug{memory.BugApprovesOther},
		misreads: misreads{edits: true}, adjust: peopleAnswer},
	{name: "expired and run anyway", want: memory.Approved, bugs: []memory.Bug{memory.BugExpiredRuns},
		misreads: misreads{expired: true}, adjust: peopleAnswer},
	{name: "answered and never woken", want: memory.WaitsForResult, bugs: []memory.Bug{memory.BugNeverWoken},
		adjust: peopleAnswer},
	{name: "labels lost on restart", seed: 20, want: notApproved, misreads: misreads{labels: true},
		adjust: contentIsLabelled},
	{name: "results written without labels", seed: 2, want: unlabelled, losesLabels: "results",
		adjust: contentIsLabelled},
	{name: "results written without labels, and a call not asked about", seed: 2, want: notApproved,
		losesLabels: "results", adjust: contentIsLabelled},
	{name: "tasks written without labels", seed: 2, want: notApproved, losesLabels: "tasks", adjust: contentIsLabelled},
	{name: "turns written without labels", want: unlabelled, losesLabels: "turns", adjust: contentIsLabelled},
	{name: "start after the effect", want: "with 0 starts on record", lateStart: true},
	{name: "no starts", want: memory.StartedBefore, noStarts: true},
	{name: "notices not on record", want: refusedRecord, losesNotices: true},
	{name: "lost turn reported as succeeded", seed: 2, want: memory.NoFalseSuccess, reportsSuccess: true},
	{name: "failure of the provider closes the message", seed: 3, want: failedByService, failsEarly: true},
	{name: "effect not waited for", seed: 2, want: outOfOrder, wrongEffects: true},
	{name: "time counted from the start of the work", seed: 2, want: "after the time of its turn was over", lateClock: true,
		adjust: slowPickup},
}

// longStops makes several processes stop often, and long enough to count as lost.
func longStops(p *profile) {
	p.processes, p.freezes, p.takeover, p.doorbellsLost = 3, 0.05, 15*time.Second, 0
}

// lostFetches makes a server that crashes often, loses fetches of jobs and loses requests, while
// the processes stay alive: two of them can then have the same job.
func lostFetches(p *profile) {
	p.processes, p.takeover, p.powerCuts, p.faults = 3, 60*time.Second, 0, 1
	p.kills, p.freezes, p.panics, p.modelFails, p.doorbellsLost, p.beatsLost = 0, 0, 0, 0, 0, 0
	p.requestsLost, p.jobPoll, p.crashes, p.handOver = 0.3, time.Second, 1000, false
}

// handsOver makes several processes hand turns over often, and fetch jobs often.
func handsOver(p *profile) {
	p.processes, p.jobPoll, p.doorbellsLost, p.handOver = 3, time.Second, 0, true
}

// slowPickup lets jobs wait for their worker. Clocks are exact.
func slowPickup(p *profile) {
	p.clockSteps, p.drift, p.jobPoll, p.doorbellsLost, p.handOver = false, 0, 3*time.Minute, 0.8, false
}

// lateStarts is a journal that delays a start until its result.
type lateStarts struct {
	agentturn.Journal
	delayed []turnlog.Entry
}

func (j *lateStarts) Append(ctx context.Context, e turnlog.Entry) error {
	if len(e.Starts) > 0 && e.Outcome == nil {
		j.delayed = append(j.delayed, e)
		return nil
	}
	for len(j.delayed) > 0 {
		if err := j.Journal.Append(ctx, j.delayed[0]); err != nil {
			return err
		}
		j.delayed = j.delayed[1:]
	}
	return j.Journal.Append(ctx, e)
}

// noStarts is a journal that writes no starts, and results without a nonce.
type noStarts struct{ agentturn.Journal }

func (j noStarts) Append(ctx context.Context, e turnlog.Entry) error {
	e.Starts, e.Results = nil, slices.Clone(e.Results)
	for i := range e.Results {
		e.Results[i].Nonce = ""
	}
	return j.Journal.Append(ctx, e)
}

// losesNotices is a journal that does not keep what the program told the model.
type losesNotices struct{ agentturn.Journal }

func (j losesNotices) Append(ctx context.Context, e turnlog.Entry) error {
	if e.Round != nil && e.Round.Recipe != nil {
		round, recipe := *e.Round, *e.Round.Recipe
		recipe.Notice = ""
		round.Recipe, e.Round = &recipe, &round
	}
	return j.Journal.Append(ctx, e)
}

// reportsSuccess is a journal that reports a lost turn as succeeded.
type reportsSuccess struct{ agentturn.Journal }

func (j reportsSuccess) Append(ctx context.Context, e turnlog.Entry) error {
	if o := e.Outcome; o != nil && o.StopReason == turnkeeper.StopWorkerLost {
		sure := *o
		sure.State, sure.StopReason = turnkeeper.TurnSucceeded, turnkeeper.StopNone
		e.Outcome = &sure
	}
	return j.Journal.Append(ctx, e)
}

// failsEarly is a journal that closes the message of a turn whose model provider failed.
type failsEarly struct{ agentturn.Journal }

func (j failsEarly) Append(ctx context.Context, e turnlog.Entry) error {
	if o := e.Outcome; o != nil && o.Retry && inference.Class(o.ErrorClass).OfService() {
		final := *o
		final.Retry, final.Backoff, final.WaitsFor, final.Reply = false, 0, nil, "The model could not be reached."
		e.Outcome = &final
	}
	return j.Journal.Append(ctx, e)
}

// wrap returns the journal with the mutation.
func (m mutation) wrap(journal agentturn.Journal) agentturn.Journal {
	switch {
	case m.lateStart:
		return &lateStarts{Journal: journal}
	case m.noStarts:
		return noStarts{journal}
	case m.losesNotices:
		return losesNotices{journal}
	case m.reportsSuccess:
		return reportsSuccess{journal}
	case m.failsEarly:
		return failsEarly{journal}
	case m.losesLabels != "":
		return losesLabels{journal, m.losesLabels}
	default:
		return journal
	}
}

// tools returns the tools of every process.
func (m mutation) tools() *tools.Registry {
	if !m.wrongEffects {
		return toolbox
	}
	return toolsWith(map[string]turnkeeper.Effect{
		"look": turnkeeper.EffectNone, "put": turnkeeper.EffectNone, "fire": turnkeeper.EffectOnce,
		"ask":  turnkeeper.EffectOnce,
		"book": turnkeeper.EffectOnce, "send": turnkeeper.EffectKeyed, "shoot": turnkeeper.EffectOnce,
	})
}

// in reports whether the mutation was found.
func (m mutation) in(found []string) bool {
	return slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, m.want) })
}
