package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/storage/journal"
)

// handBack leaves a turn that this worker cannot run as it should be to one that
// can: a newer program, while both are in use. The turn is as it was and no loss
// is counted. The scheduler offers it to every other worker that lives or comes,
// and, where all have left it, to anybody again after a pause.
func (w *Worker) handBack(ctx context.Context, record turnkeeper.Record, writer *journal.Writer, reason error) error {
	err := leave(ctx, writer, "handed_back", turnkeeper.Outcome{ErrorClass: journal.ClassNewer, Error: reason.Error(), Backoff: handBackPause})
	if err != nil {
		return err
	}
	w.Log.Warn("the turn is left to a newer worker",
		append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Error(reason))...)
	return nil
}

const handBackPause = time.Minute

// leave ends a dispatch in which nothing was done; its turn is queued again.
func leave(ctx context.Context, writer *journal.Writer, log string, outcome turnkeeper.Outcome) error {
	outcome.State = turnkeeper.TurnQueued
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return writer.Append(ctx, turnkeeper.Entry{Outcome: &outcome}, journal.Ending{Log: log})
}

// classLate is the error class of a turn that had no worker for most of its time.
const classLate = "late_worker"

// late says of a grant that no worker had before that half of its turn's time is over,
// as where it was granted into the room of one that was dead already: the others may be
// busy for as long as their turns take. Once is enough: a turn that comes late again runs
// with what is left.
func late(record turnkeeper.Record, bounds turnkeeper.Bounds) bool {
	turn := record.Turn
	return turn.ErrorClass != classLate && !record.Cancelled && record.Elapsed > bounds.MaxDuration/2
}

// putOff queues a late turn, to be granted anew with the whole of its time.
func (w *Worker) putOff(ctx context.Context, record turnkeeper.Record, writer *journal.Writer) error {
	waited := record.Elapsed.Round(time.Second)
	err := leave(ctx, writer, "deferred", turnkeeper.Outcome{
		ErrorClass: classLate, Error: fmt.Sprintf("no worker had the turn for %s after its grant; it is granted anew", waited),
	})
	if err == nil {
		w.Log.Warn("no worker had the turn for most of its time; it is granted anew",
			append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Duration("waited", waited))...)
	}
	return err
}

// waitForTools is how long a turn is handed on for want of a worker with all of its
// agent's tools. Then none is to be expected, as after a tool was given up for good,
// and the turn runs without.
const waitForTools = 5 * time.Minute

// equipped says which tools the agent lists and this worker lacks, as while a
// newer program brings them. Without them the model would be told that they do
// not exist.
func (w *Worker) equipped(ctx context.Context, record turnkeeper.Record, definition *agentdef.Definition) error {
	lacking := w.Runner.Lacks(definition)
	if len(lacking) == 0 {
		return nil
	}
	since, _ := w.grants.HandedOnSince(ctx, record.Turn.ID)                 // zero where it cannot be read
	if !since.IsZero() && record.Turn.GrantedAt.Sub(since) > waitForTools { // both by the database's clock
		return nil
	}
	return fmt.Errorf("the agent has tools that this worker lacks: %s", strings.Join(lacking, ", "))
}
