package memory

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/commit"
)

// A Bug is a fault of the store that a test can plant, to see whether its
// checks find it.
type Bug uint32

// The bugs. Each breaks one rule of the design.
const (
	BugNoFence          Bug = 1 << iota // a write is not checked for its grant
	BugFenceApart                       // the fence is checked, and the write done later, without a lock between
	BugReplyFirst                       // the reply is one commit, the turn's end the next
	BugReplyLast                        // the turn's end is one commit, the reply the next
	BugGrantApart                       // the lease is one commit, turn and job the next
	BugTicksOverlap                     // the scheduler's lock does not lock, and a grant takes the lane from whoever has it
	BugJournalByAttempt                 // each dispatch has a journal of its own calls' starts
	BugStartTwice                       // an open start of a call of effect once may be started again
	BugLateOverwrites                   // a late result takes the place of a verdict
	BugLostAnswerRedone                 // an answer that did not come is taken for a write that was not done
	BugCallsLeftOpen                    // a message that loses its workers is closed over its open calls
	BugTokenRestarts                    // the lease's row is deleted when it is released
	BugVerdictForgotten                 // a verdict is not written down
	BugWaitsInVain                      // a turn goes waiting without a look at what has arrived
	BugClaimTwice                       // a claim is given to whoever asks
	BugSpawnTwice                       // a start that gives work to an agent writes two messages
	BugReplyUntold                      // a sub-agent's reply is not put into its parent's letter box
	BugNumbersLost                      // the numbers of events that were not written are not used again
	BugReadBackByCount                  // a write whose answer was lost is taken for done when there is one entry more
	BugGrantUnbound                     // whoever has the job of a grant works, and writes
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
		row.LastWrite = own
	}
	if bugs.has(BugLostAnswerRedone) { // the writer goes on from what there is, whatever that is
		j.lastSeq = int64(len(j.s.state.turn(g.TurnID).events))
		j.writer.Entries, j.writer.LastWrite = row.Entries, ""
		row = commit.Row{Token: g.Token, GrantID: g.GrantID, WorkerID: g.WorkerID, State: turnkeeper.TurnRunning, Entries: row.Entries}
	}
	return row
}

// dispatchApart implements BugGrantApart.
func (t *tick) dispatchApart(ctx context.Context, ready []turnkeeper.Ready) error {
	leases := make([]*leaseRow, len(ready))
	t.later(func(*[]Bell) {
		for i, r := range ready {
			leases[i] = t.s.lease(r)
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
			t.s.grantTurn(r, leases[i], rings)
		}
	})
	return nil
}
