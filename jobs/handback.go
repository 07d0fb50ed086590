package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/journal"
)

// handBack hands a turn back that this worker cannot run properly, for a newer program
// while both are in use. The turn is unchanged, and no loss is counted. The scheduler
// offers it to every other live worker and, once all have handed it back, to any worker
// again after a pause.
func (w *Worker) handBack(ctx context.Context, record *turnlog.Record, writer *journal.Writer, reason error) error {
	err := leave(ctx, writer, "handed_back", turnlog.Outcome{ErrorClass: journal.ClassNewer, Error: reason.Error(),
		Backoff: handBackPause})
	if err != nil {
		return err
	}
	w.Log.Warn("handing the turn back for a newer worker",
		append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Error(reason))...)
	return nil
}

const handBackPause = time.Minute

// leave ends a dispatch in which nothing was done, and queues its turn.
func leave(ctx context.Context, writer writer, log string, outcome turnlog.Outcome) error {
	outcome.State = turnkeeper.TurnQueued
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return writer.Append(ctx, turnlog.Entry{Outcome: &outcome}, turnlog.Consequence{Log: log})
}

// classLate is the error class of a turn that had no worker for most of its time.
const classLate = "late_worker"

// late reports whether half of the turn's time had passed before a worker took the grant.
// That happens if the slot belonged to a dead worker and the others were busy. Only the
// first time counts: a turn that is late again runs with the time left.
func late(record *turnlog.Record, bounds turnkeeper.Bounds) bool {
	turn := record.Turn
	return turn.ErrorClass != classLate && record.End != turnlog.EndCancel && record.Elapsed > bounds.MaxDuration/2
}

// putOff queues a late turn, so that its next grant has the full time.
func (w *Worker) putOff(ctx context.Context, record *turnlog.Record, writer *journal.Writer) error {
	waited := record.Elapsed.Round(time.Second)
	err := leave(ctx, writer, "deferred", turnlog.Outcome{
		ErrorClass: classLate, Error: fmt.Sprintf("no worker had the turn for %s after its grant; it is granted anew",
			waited),
	})
	if err == nil {
		w.Log.Warn("no worker took the turn for half of its time; queueing it for a new grant",
			append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Duration("waited", waited))...)
	}
	return err
}

// An unfitError says why this worker cannot run a turn properly, while another one may.
type unfitError struct{ why error }

func (e *unfitError) Error() string { return e.why.Error() }
func (e *unfitError) Unwrap() error { return e.why }

// waitForTools is the time for which workers that lack some of the agent's tools hand a turn back.
// After that, the turn runs without the tools, because they were probably removed for good.
const waitForTools = 5 * time.Minute

// equipped fails if this worker lacks tools that the agent lists, as during a rollout of
// a new tool. Without this check the model would be told that they do not exist. A tool that the
// agent's newest definition does not list was taken away, and is not waited for. Nor is any tool if a person
// has decided about a call of the turn, and no other live worker may have it: others wait behind the turn.
func (w *Worker) equipped(ctx context.Context, a agentturn.Assignment) error {
	lacking := w.Runner.Lacks(a.Definition)
	if a.Newest != nil {
		listed := w.Runner.Lacks(a.Newest)
		lacking = slices.DeleteFunc(lacking, func(name string) bool { return !slices.Contains(listed, name) })
	}
	if len(lacking) == 0 {
		return nil
	}
	turn := a.Record.Turn
	if a.Record.Decided() {
		others, err := w.grants.OthersMayTake(ctx, turn.ID, w.WorkerID)
		if err == nil && !others {
			return nil
		}
	}
	since, _ := w.grants.HandedOnSince(ctx, turn.ID)                 // zero where it cannot be read
	if !since.IsZero() && turn.GrantedAt.Sub(since) > waitForTools { // both by the database's clock
		return nil
	}
	return &unfitError{fmt.Errorf("the agent has tools that this worker lacks: %s", strings.Join(lacking, ", "))}
}
