package scheduler

import (
	"context"

	"go.uber.org/zap"

	"turnkeeper"
)

// callBatch bounds what one transaction does about lost calls.
const callBatch = 100

// lostCalls does something about detached calls that would have no result.
func (s *Scheduler) lostCalls(ctx context.Context, t Tick, sit turnkeeper.Situation, report *Report) error {
	if !sit.Calls {
		return nil
	}
	lost, err := t.LostCalls(ctx, callBatch)
	if err != nil {
		return err
	}
	for _, call := range lost {
		s.at(ctx, PointLostCall)
		again := RunAgain(call)
		s.Log.Warn("a detached call was lost", zap.Int64("turn_id", int64(call.Ref.TurnID)), zap.Stringer("call", call.Ref.Key),
			zap.String("tool", call.Name), zap.String("trouble", string(call.Trouble)), zap.String("worker", string(call.WorkerID)),
			zap.Int("attempt", call.Ref.Attempt), zap.Bool("runs_again", again))
		if again {
			err = t.RunAgain(ctx, call)
		} else {
			err = t.EndCall(ctx, call)
		}
		if err != nil {
			return err
		}
		report.Calls++
	}
	report.More = report.More || len(lost) == callBatch
	return nil
}

// RunAgain decides about a lost call. One that was never begun is; one that was,
// only where its effect allows that, and not for ever: a tool may be what kills
// its workers.
func RunAgain(call turnkeeper.LostCall) bool {
	switch call.Trouble {
	case turnkeeper.CallUnrung:
		return true
	case turnkeeper.CallLost:
		return call.Effect.Repeatable() && call.Losses+1 < turnkeeper.MaxDetachedLosses
	default:
		return false
	}
}
