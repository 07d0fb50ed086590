package scheduler_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/scheduler"
)

// A gate is a store whose calls are counted. During one of them the scheduler is stopped, and the call returns when its
// context ends.
type gate struct {
	*testEnv
	calls []string // the methods, in order
	hold  int      // the number of the call that waits, from 1; 0: none
	stop  context.CancelCauseFunc
	ended time.Duration // how long after the stop that call's context ended; negative: it did not
}

var errStopped = errors.New("the scheduler is stopped")

// pass counts a call, and waits in the one to wait in.
func (g *gate) pass(ctx context.Context, method string) error {
	g.calls = append(g.calls, method)
	if len(g.calls) != g.hold {
		return nil
	}
	g.stop(errStopped)
	began := time.Now()
	select {
	case <-ctx.Done():
		g.ended = time.Since(began)
	case <-time.After(time.Hour):
		g.ended = -1
	}
	return errors.Join(errStopped, ctx.Err())
}

func (g *gate) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	if err := g.pass(ctx, "InTick"); err != nil {
		return err
	}
	return g.testEnv.InTick(ctx, func(t scheduler.Tick) error { return f(&gatedTick{t.(*tick), g}) })
}

func (g *gate) Handed(ctx context.Context, w turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) ([]granting.Handed, error) {
	return gated(ctx, g, "Handed", func() ([]granting.Handed, error) { return g.testEnv.Handed(ctx, w, grants) })
}

func (g *gate) NextDue(ctx context.Context, then time.Time) (time.Duration, error) {
	return gated(ctx, g, "NextDue", func() (time.Duration, error) { return g.testEnv.NextDue(ctx, then) })
}

func (g *gate) TickFailed(ctx context.Context, failed error) error {
	return errors.Join(g.pass(ctx, "TickFailed"), g.testEnv.TickFailed(ctx, failed))
}

func gated[T any](ctx context.Context, g *gate, method string, do func() (T, error)) (T, error) {
	if err := g.pass(ctx, method); err != nil {
		var none T
		return none, err
	}
	return do()
}

// A gatedTick is a tick of a gate.
type gatedTick struct {
	*tick
	gate *gate
}

func (t *gatedTick) Snapshot(ctx context.Context, everything bool) (granting.Snapshot, bool, error) {
	if err := t.gate.pass(ctx, "Snapshot"); err != nil {
		return granting.Snapshot{}, false, err
	}
	return t.tick.Snapshot(ctx, everything)
}

// Try ends the tick if its context ends, as a store does.
func (t *gatedTick) Try(ctx context.Context, subjects []granting.Subject, part func() error) (failed, err error) {
	if err := t.gate.pass(ctx, "Try"); err != nil {
		return nil, err
	}
	failed, err = t.tick.Try(ctx, subjects, part)
	if errors.Is(failed, errStopped) {
		return nil, failed
	}
	return failed, err
}

func (t *gatedTick) Note(ctx context.Context, now time.Time, timeline string) error {
	return errors.Join(t.gate.pass(ctx, "Note"), t.tick.Note(ctx, now, timeline))
}

func (t *gatedTick) CountSilence(ctx context.Context, since time.Time) error {
	return errors.Join(t.gate.pass(ctx, "CountSilence"), t.tick.CountSilence(ctx, since))
}

func (t *gatedTick) Hold(ctx context.Context, until time.Time, reason string) error {
	return errors.Join(t.gate.pass(ctx, "Hold"), t.tick.Hold(ctx, until, reason))
}

func (t *gatedTick) ForgetAside(ctx context.Context) error {
	return errors.Join(t.gate.pass(ctx, "ForgetAside"), t.tick.ForgetAside(ctx))
}

func (t *gatedTick) Lost(ctx context.Context, limit int) ([]granting.LostGrant, error) {
	return gated(ctx, t.gate, "Lost", func() ([]granting.LostGrant, error) { return t.tick.Lost(ctx, limit) })
}

func (t *gatedTick) Requeue(ctx context.Context, lost granting.LostGrant) error {
	return errors.Join(t.gate.pass(ctx, "Requeue"), t.tick.Requeue(ctx, lost))
}

func (t *gatedTick) CloseLost(ctx context.Context, lost granting.LostGrant) error {
	return errors.Join(t.gate.pass(ctx, "CloseLost"), t.tick.CloseLost(ctx, lost))
}

func (t *gatedTick) LostCalls(ctx context.Context, limit int) ([]granting.LostCall, error) {
	return gated(ctx, t.gate, "LostCalls", func() ([]granting.LostCall, error) { return t.tick.LostCalls(ctx, limit) })
}

func (t *gatedTick) RunAgain(ctx context.Context, call granting.LostCall) error {
	return errors.Join(t.gate.pass(ctx, "RunAgain"), t.tick.RunAgain(ctx, call))
}

func (t *gatedTick) EndCall(ctx context.Context, call granting.LostCall) error {
	return errors.Join(t.gate.pass(ctx, "EndCall"), t.tick.EndCall(ctx, call))
}

func (t *gatedTick) SettleSpawned(ctx context.Context, timely bool, limit int) (int, error) {
	return gated(ctx, t.gate, "SettleSpawned", func() (int, error) { return t.tick.SettleSpawned(ctx, timely, limit) })
}

func (t *gatedTick) ExpireAsks(ctx context.Context, limit int) (int, error) {
	return gated(ctx, t.gate, "ExpireAsks", func() (int, error) { return t.tick.ExpireAsks(ctx, limit) })
}

func (t *gatedTick) MoveLevels(ctx context.Context) (int, error) {
	return gated(ctx, t.gate, "MoveLevels", func() (int, error) { return t.tick.MoveLevels(ctx) })
}

func (t *gatedTick) MoveHeld(ctx context.Context) (int, error) {
	return gated(ctx, t.gate, "MoveHeld", func() (int, error) { return t.tick.MoveHeld(ctx) })
}

func (t *gatedTick) MoveLanes(ctx context.Context) error {
	return errors.Join(t.gate.pass(ctx, "MoveLanes"), t.tick.MoveLanes(ctx))
}

func (t *gatedTick) DueSchedules(ctx context.Context, limit int) ([]granting.DueSchedule, error) {
	return gated(ctx, t.gate, "DueSchedules", func() ([]granting.DueSchedule, error) {
		return t.tick.DueSchedules(ctx, limit)
	})
}

func (t *gatedTick) Fire(ctx context.Context, d granting.SlotDecision) error {
	return errors.Join(t.gate.pass(ctx, "Fire"), t.tick.Fire(ctx, d))
}

func (t *gatedTick) ReadyTurns(ctx context.Context, limit int, held []string,
	full ...string) ([]granting.Candidate, error) {
	return gated(ctx, t.gate, "ReadyTurns", func() ([]granting.Candidate, error) {
		return t.tick.ReadyTurns(ctx, limit, held, full...)
	})
}

func (t *gatedTick) ReadyMessages(ctx context.Context, limit int, held []string,
	full ...string) ([]granting.Candidate, error) {
	return gated(ctx, t.gate, "ReadyMessages", func() ([]granting.Candidate, error) {
		return t.tick.ReadyMessages(ctx, limit, held, full...)
	})
}

func (t *gatedTick) Chains(ctx context.Context, models []string) ([]modelhealth.Chain, error) {
	return gated(ctx, t.gate, "Chains", func() ([]modelhealth.Chain, error) { return t.tick.Chains(ctx, models) })
}

func (t *gatedTick) Dispatch(ctx context.Context, ready []granting.Candidate) error {
	return errors.Join(t.gate.pass(ctx, "Dispatch"), t.tick.Dispatch(ctx, ready))
}

// busyGate returns a gate with all kinds of work in each tick. The answer to the first commit is lost, so that the
// second tick tries each part apart.
func busyGate(hold int, stop context.CancelCauseFunc) *gate {
	w := newEnv()
	w.lose = errors.New("the answer to the commit is lost")
	w.looking = func(_ time.Duration, s *state) {
		s.sit.Restarted, s.sit.Spawns, s.sit.Asks, s.sit.Lanes, s.sit.Levels, s.sit.Held, s.sit.Aside = true, true,
			true, true, true, true, true
		s.sit.Waiting, s.sit.LastTickAt = 1, w.now().Add(-time.Hour)
		s.sit.HoldUntil = w.now().Add(-time.Second)
		s.lost = []granting.LostGrant{{TurnID: 1, Lane: "a", Lapsed: true}, {TurnID: 2, Lane: "b", WorkerID: "gone",
			Lapsed: true, Losses: 9}}
		s.calls = []granting.LostCall{{Name: "again", Failure: granting.CallJobMissing},
			{Name: "over", Failure: granting.CallOverdue}}
		s.schedules = []granting.DueSchedule{{Name: "s", Cron: "* * * * *", NextDue: w.now()}}
		s.sit.Down = []modelhealth.Health{{Model: "m"}}
		s.messages = inLanes(3)
	}
	return &gate{testEnv: w, hold: hold, stop: stop}
}

// runStopped runs a scheduler, and stops it during a call. It returns when the scheduler has ended, or after a minute.
func runStopped(t *testing.T, hold int) (g *gate) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		g = busyGate(hold, cancel)
		defer time.AfterFunc(time.Minute, func() { cancel(nil) }).Stop()
		scheduler.New(scheduler.Config{Store: g, Local: &local{slots: 9}}).Run(ctx)
	})
	return g
}

// outlive are the calls that may go on after the scheduler is stopped, and how long.
var outlive = map[string]time.Duration{"Handed": 2 * time.Second} // a turn that is committed shall start

// TestEachCallEndsWithTheScheduler stops the scheduler during each of its calls of the store: the call sees it at once,
// and no other call follows but those that may.
func TestEachCallEndsWithTheScheduler(t *testing.T) {
	called := map[string]bool{}
	all := runStopped(t, 0).calls
	all = all[:slices.Index(all, "NextDue")+1] // of a tick that fails and of one that does not
	for i, method := range all {
		called[method] = true
		g := runStopped(t, i+1)
		if g.ended != outlive[method] {
			t.Errorf("call %d, of %s, saw the end of its context %s after the stop, want %s", i+1, method, g.ended,
				outlive[method])
		}
		for _, later := range g.calls[i+1:] {
			if _, may := outlive[later]; !may {
				t.Errorf("%s is called after the scheduler was stopped in call %d, of %s", later, i+1, method)
			}
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[scheduler.Store](), reflect.TypeFor[scheduler.Tick]()} {
		for method := range of.Methods() {
			if takes := method.Type.NumIn() > 0 && method.Type.In(0) == reflect.TypeFor[context.Context](); takes &&
				!called[method.Name] {
				t.Errorf("the scheduler is not stopped in %s: called are %v", method.Name,
					slices.Sorted(maps.Keys(called)))
			}
		}
	}
}
