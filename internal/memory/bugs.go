package memory

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/commit"
	"turnkeeper/internal/granting"
)

// A Bug is a fault that a test adds to the store, to verify that the checks find it.
type Bug uint32

// The bugs. Each breaks one rule of the design.
const (
	BugNoFence           Bug = 1 << iota // a write does not check the grant
	BugFenceApart                        // the fence is checked and the write done later, without a lock in between
	BugReplyFirst                        // the reply is committed before the turn's end
	BugReplyLast                         // the reply is committed after the turn's end
	BugGrantApart                        // the lease is committed before turn and job
	BugTicksOverlap                      // the scheduler's lock does not lock, and a grant takes a held lane
	BugJournalByAttempt                  // each dispatch sees only its own starts of calls
	BugStartTwice                        // an open start of a call of effect once may be started again
	BugLateOverwrites                    // a late result replaces a verdict
	BugLostAnswerRedone                  // a write without an answer counts as not done
	BugCallsLeftOpen                     // a turn that lost its workers is closed with open calls
	BugTokenRestarts                     // the tokens of a lane begin again when its row was deleted
	BugVerdictForgotten                  // a verdict is not stored
	BugWaitsInVain                       // a turn starts to wait although a result has arrived
	BugClaimTwice                        // every claim succeeds
	BugSpawnTwice                        // the start of a sub-agent writes two messages
	BugReplyUndelivered                  // a sub-agent's reply is not delivered to its parent's call
	BugNumbersLost                       // the numbers of events that were not written are not reused
	BugReadBackByCount                   // a write without an answer counts as done if the journal has one entry more
	BugGrantUnbound                      // every worker that fetched the job of a grant may write
	BugAskUsedTwice                      // an approval may be used by several starts
	BugApprovesOther                     // an approval is used for other arguments
	BugExpiredRuns                       // a call starts although its ask has expired
	BugNeverWoken                        // an answer does not queue its turn
	BugSummaryUnlabelled                 // a summary loses the labels of its turns
	BugOvertaken                         // a message that waits again is overtaken in its lane
	BugHandedQueued                      // the job of a turn that is handed over is available in the queue too
	BugForgotten                         // a message that waits again is never granted
	BugFailedProbes                      // a message that a model has failed probes it
)

func (b Bug) has(one Bug) bool { return b&one != 0 }

// Plant makes the store faulty. Only tests can.
func (s *Store) Plant(_ testing.TB, bugs ...Bug) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, bug := range bugs {
		s.bugs |= bug
	}
}

// has reports whether a bug is planted, for code that does not hold the lock.
func (s *Store) has(bug Bug) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bugs.has(bug)
}

// misread changes the turn's row as the planted bugs make it read back. own is the ID of the write.
func (j *Journal) misread(row commit.Row, write commit.Write, own string) commit.Row {
	bugs, g := j.s.bugs, j.grant
	if bugs.has(BugGrantUnbound) {
		row.WorkerID = g.WorkerID
	}
	if bugs.has(BugReadBackByCount) && row.Entries == j.writer.Entries+write.Entries {
		row.WriteID = own
	}
	if bugs.has(BugLostAnswerRedone) { // the writer continues from the current state
		j.lastSeq = int64(len(j.s.state.turn(g.TurnID).events))
		j.writer.Entries = row.Entries
		row = commit.Row{Token: g.Token, GrantID: g.GrantID, WorkerID: g.WorkerID, State: turnkeeper.TurnRunning,
			Entries: row.Entries}
	}
	return row
}

// dispatchApart implements BugGrantApart.
func (t *tick) dispatchApart(ctx context.Context, ready []granting.Candidate) error {
	leases := make([]*leaseRow, len(ready))
	t.later(func(*[]Bell) {
		for i, r := range ready {
			leases[i] = t.s.lease(r, t.s.now())
		}
	})
	if err := t.conn.ask(ctx, "tick.lease", t.commit); err != nil {
		return err
	}
	t.s.mu.Lock()
	t.ops, t.tx = nil, t.conn.begin()
	t.s.mu.Unlock()
	t.later(func(rings *[]Bell) {
		for i, r := range ready {
			t.grantTurn(r, leases[i], rings)
		}
	})
	return nil
}
