package simulation_test

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/memory"
)

// A plant is a fault that the simulation must find.
type plant struct {
	name      string
	bugs      []memory.Bug // of the store
	startLate bool         // a start is written with the result, after the effect
	fromWork  bool         // lease and time are counted from the start of the work
	// tilt, if not nil, makes worlds in which the fault has room to show.
	tilt func(*profile)
}

var plants = []plant{
	{name: "no fence", bugs: []memory.Bug{memory.BugNoFence}},
	{name: "fence without a lock", bugs: []memory.Bug{memory.BugFenceApart}},
	{name: "reply before the end", bugs: []memory.Bug{memory.BugReplyFirst}},
	{name: "end before the reply", bugs: []memory.Bug{memory.BugReplyLast}},
	{name: "grant in two steps", bugs: []memory.Bug{memory.BugGrantApart}},
	{name: "ticks overlap", bugs: []memory.Bug{memory.BugTicksOverlap}},
	{name: "journal by attempt", bugs: []memory.Bug{memory.BugJournalByAttempt}},
	{name: "open start run again", bugs: []memory.Bug{memory.BugStartTwice}},
	{name: "late result over the verdict", bugs: []memory.Bug{memory.BugLateOverwrites}},
	{name: "lost answer done again", bugs: []memory.Bug{memory.BugLostAnswerRedone}},
	{name: "calls left open", bugs: []memory.Bug{memory.BugCallsLeftOpen}},
	{name: "token starts again", bugs: []memory.Bug{memory.BugTokenRestarts}},
	{name: "verdict forgotten", bugs: []memory.Bug{memory.BugVerdictForgotten}},
	{name: "start after the effect", startLate: true},
	{name: "time counted from the work", fromWork: true, tilt: slowPickup},
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
