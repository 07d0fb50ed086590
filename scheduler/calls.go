package scheduler

import (
	"context"

	"go.uber.org/zap"

	"turnkeeper/internal/granting"
)

// callBatch limits how many lost calls one transaction handles.
const callBatch = 100

// lostCalls runs lost detached calls again, or ends them.
func (s *Scheduler) lostCalls(ctx context.Context, t Tick, _ granting.Snapshot, report *Report) error {
	lost, err := t.LostCalls(ctx, callBatch)
	if err != nil {
		return err
	}
	for _, call := range lost {
		s.at(ctx, PointLostCall)
		again := RunAgain(call)
		s.Log.Warn("a detached call was lost", zap.Int64("turn_id", int64(call.Ref.TurnID)),
			zap.Stringer("call", call.Ref.Key),
			zap.String("tool", call.Name), zap.String("failure", string(call.Failure)),
			zap.String("worker", string(call.WorkerID)),
			zap.Int("attempt", call.Ref.Attempt), zap.Bool("runs_again", again))
		end := t.EndCall
		if again {
			end = t.RunAgain
		}
		done, err := s.each(ctx, t, call.AsideOf(), func() error { return end(ctx, call) })
		if err != nil {
			return err
		}
		if done {
			report.Calls++
		}
	}
	report.More = report.More || len(lost) == callBatch
	return nil
}

// RunAgain reports whether a lost call runs again. A call that has not started does. A
// started call does if its effect is repeatable, but only a limited number of times,
// because the tool may be what kills its workers.
func RunAgain(call granting.LostCall) bool {
	switch call.Failure {
	case granting.CallJobMissing:
		return true
	case granting.CallLost:
		return call.Effect.Repeatable() && (call.Alive || call.Losses+1 < granting.MaxDetachedLosses)
	default:
		return false
	}
}
