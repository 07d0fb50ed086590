package journal

import (
	"errors"
	"fmt"
	"slices"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// journalVersion is the version of rounds and calls that this program writes, and the newest that it reads. It is
// incremented when an older program would misread a journal. A release first reads a new version and the next release
// writes it, so that two neighbouring releases can read each other's journals.
const journalVersion = 1

// ErrNewerJournal is returned if a newer program wrote the turn's journal in a way that
// this one would misread. The turn must be left to a newer worker.
var ErrNewerJournal = errors.New("the turn's journal was written by a newer program")

// ClassNewer is the error class of a turn that waits for a newer worker.
const ClassNewer = "needs_newer_worker"

// Readable fails with ErrNewerJournal if this program cannot interpret the journal.
func Readable(answers []dbsqlc.TurnkeeperRound, calls []dbsqlc.TurnkeeperCall) error {
	for _, a := range answers {
		if a.Version > journalVersion {
			return fmt.Errorf("%w: round %d has version %d, and this program reads versions up to %d",
				ErrNewerJournal, a.Round, a.Version, journalVersion)
		}
	}
	for _, c := range calls {
		if !knownCall(c.State, c.Effect) {
			return fmt.Errorf("%w: tool call %d of round %d has effect %q and state %q", ErrNewerJournal, c.Ordinal,
				c.Round, c.Effect, c.State)
		}
	}
	return nil
}

func knownCall(state, effect string) bool {
	return slices.Contains(knownStates, turnkeeper.CallState(state)) && slices.Contains(knownEffects,
		turnkeeper.Effect(effect))
}

var (
	knownStates = []turnkeeper.CallState{
		turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
		turnkeeper.CallFailed,
		turnkeeper.CallSkipped, turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled,
	}
	knownEffects = []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce}
)
