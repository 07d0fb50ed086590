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
	"turnkeeper/storage"
)

// handBack leaves a turn that this worker cannot run as it should be to one that
// can: a newer program, while both are in use. The turn is as it was and no loss
// is counted. The scheduler offers it to every other worker that lives or comes,
// and, where all have left it, to anybody again after a pause.
func (w *Worker) handBack(ctx context.Context, record turnkeeper.Record, writer *storage.TurnWriter, reason error) error {
	outcome := turnkeeper.Outcome{
		State: turnkeeper.TurnQueued, ErrorClass: storage.ClassNewer, Error: reason.Error(), Backoff: handBackPause,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := writer.Append(ctx, turnkeeper.Entry{Outcome: &outcome}, storage.Ending{Log: "handed_back"}); err != nil {
		return err
	}
	w.Log.Warn("the turn is left to a newer worker",
		append(agentturn.TurnFields(record.Turn, record.Message.TraceParent), zap.Error(reason))...)
	return nil
}

const handBackPause = time.Minute

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
	since, err := w.Store.HandedOnSince(ctx, record.Turn.ID)
	if err == nil && !since.IsZero() && record.Turn.GrantedAt.Sub(since) > waitForTools { // both by the database's clock
		return nil
	}
	return fmt.Errorf("the agent has tools that this worker lacks: %s", strings.Join(lacking, ", "))
}
