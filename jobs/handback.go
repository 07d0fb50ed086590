package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/storage"
)

// handBack leaves a turn that this worker cannot run as it should be to one that
// can: a newer program, while both are in use. The turn is as it was, no loss is
// counted, and it is granted again after a pause, or when a worker starts.
func (w *Worker) handBack(ctx context.Context, record turnkeeper.Record, writer *storage.TurnWriter, reason error) error {
	pause := handBackPause(handBacks(record.Turn))
	outcome := turnkeeper.Outcome{
		State: turnkeeper.TurnQueued, ErrorClass: storage.ClassNewer, Error: reason.Error(), Backoff: pause,
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := writer.Append(ctx, turnkeeper.Entry{Outcome: &outcome}, storage.Ending{Log: "handed_back"}); err != nil {
		return err
	}
	w.Log.Warn("the turn is left to a newer worker", zap.Int64("turn", int64(record.Turn.ID)), zap.Duration("backoff", pause), zap.Error(reason))
	return nil
}

// handBacks is how often a turn went back without a loss, this dispatch included.
func handBacks(turn turnkeeper.Turn) int { return max(1, turn.Dispatches-turn.Losses) }

// longestPause bounds how long a turn waits for the next worker that may be
// newer. In a mixed fleet each grant finds one by chance, so the first pauses are
// short.
const longestPause = time.Minute

func handBackPause(n int) time.Duration {
	if n > 6 { // 2^5 s is the last below the bound
		return longestPause
	}
	return min(longestPause, time.Second<<(n-1))
}

// patientHandBacks is how often a turn is left to a worker with all of its
// agent's tools: four minutes. Then none is to be expected, as after a tool was
// given up, and the turn runs without.
const patientHandBacks = 9

// equipped says which tools the agent lists and this worker lacks, as while a
// newer program brings them. Without them the model would be told that they do
// not exist.
func (w *Worker) equipped(record turnkeeper.Record, definition *agentdef.Definition) error {
	lacking := w.Runner.Lacks(definition)
	if len(lacking) == 0 || handBacks(record.Turn) > patientHandBacks {
		return nil
	}
	return fmt.Errorf("the agent has tools that this worker lacks: %s", strings.Join(lacking, ", "))
}
