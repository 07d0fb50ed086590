package scheduler_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/scheduler"
)

// A testEnv is a scheduler.Store in memory, in one synctest bubble. Its database's clock is
// the bubble's clock, changed by drift and steps.
type testEnv struct {
	state
	skew            time.Duration
	step, stepAfter time.Duration // after stepAfter, the clock is set by step
	drift           float64       // seconds per second
	locked          bool          // another scheduler holds the lock
	fail            error         // returned by every tick
	failFor         time.Duration // how long fail lasts; 0: for ever
	stall           time.Duration // time from reading the database's clock to the answer
	nextDue         func(then time.Time) (time.Duration, error)
	tickFailures    []error         // noted by TickFailed
	looks           []time.Duration // times of the ticks, since the beginning
	lose            error           // returned by the next tick after its commit
	handed          []granting.Handed
	readBack        func() error                        // nil: Handed answers at once
	partial         int                                 // ticks that did not look for everything
	full            []time.Duration                     // times of those that did
	looking         func(since time.Duration, s *state) // called by each look; nil: nothing
	began           time.Time
}

// A state is what a tick changes, and a failed tick does not.
type state struct {
	forgetting error // returned by ForgetAside
	failing    error // returned by ExpireAsks
	sit        granting.Snapshot
	lost       []granting.LostGrant
	calls      []granting.LostCall
	schedules  []granting.DueSchedule
	chains     []modelhealth.Chain
	turns      []granting.Candidate
	messages   []granting.Candidate
	wakes      []granting.Candidate // turns that continue when a call or a sub-agent has ended
	spawns     int                  // sub-agents settled in a tick; 0: 1
	expired    int                  // asks that have expired

	granted     [][]granting.Candidate
	requeued    []turnkeeper.TurnID
	closed      []turnkeeper.TurnID
	slots       []granting.SlotDecision
	slotsAt     []time.Duration       // when they were made, since the beginning
	upcoming    granting.SlotDecision // the newest decision
	ranAgain    []string              // calls, by name
	endedCalls  []string
	spawned     []bool // calls of SettleSpawned: the argument timely
	holds       []string
	silenceFrom []time.Time // calls of CountSilence
	notes       int
	aside       []granting.Subject
}

func newEnv() *testEnv {
	w := &testEnv{began: time.Now()}
	w.sit = granting.Snapshot{Timeline: "00000001", FreeSlots: 1000}
	return w
}

func (w *testEnv) now() time.Time {
	lived := time.Since(w.began)
	drifted := time.Duration(w.drift * float64(lived))
	if w.stepAfter > 0 && lived >= w.stepAfter {
		drifted += w.step
	}
	return time.Now().Add(w.skew + drifted)
}

func (w *testEnv) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	w.looks = append(w.looks, time.Since(w.began))
	if w.fail != nil && (w.failFor == 0 || time.Since(w.began) < w.failFor) {
		return w.fail
	}
	draft := &tick{world: w, state: w.state}
	draft.granted, draft.requeued = slices.Clone(w.granted), slices.Clone(w.requeued)
	draft.closed, draft.slots = slices.Clone(w.closed), slices.Clone(w.slots)
	if err := f(draft); err != nil {
		return err
	}
	w.state = draft.state
	w.handed = append(w.handed, draft.over...)
	lost := w.lose
	w.lose = nil
	return lost
}

func (w *testEnv) Handed(_ context.Context, _ turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) ([]granting.Handed, error) {
	if w.readBack != nil {
		if err := w.readBack(); err != nil {
			return nil, err
		}
	}
	var all []granting.Handed
	for _, h := range w.handed {
		if slices.Contains(grants, h.GrantID) {
			all = append(all, h)
		}
	}
	return all, nil
}

func (w *testEnv) NextDue(_ context.Context, then time.Time) (time.Duration, error) {
	if w.nextDue == nil {
		return time.Hour, nil
	}
	return w.nextDue(then)
}

// TickFailed notes that ticks fail.
func (w *testEnv) TickFailed(_ context.Context, failed error) error {
	w.tickFailures = append(w.tickFailures, failed)
	return nil
}

type tick struct {
	world *testEnv
	state
	over []granting.Handed
}

func (t *tick) Handed() []granting.Handed { return t.over }

func (t *tick) Snapshot(_ context.Context, everything bool) (granting.Snapshot, bool, error) {
	if t.world.looking != nil {
		t.world.looking(t.world.now().Sub(t.world.began), &t.state)
	}
	sit := t.sit
	sit.Now = t.world.now()
	sit.Calls = len(t.calls) > 0
	sit.Lost, sit.DueSchedules, sit.Queued = len(t.lost) > 0, len(t.schedules) > 0, len(t.turns) > 0
	if !everything {
		t.world.partial++
		sit.Lost, sit.DueSchedules, sit.Calls, sit.Lanes, sit.NewestGrant, sit.QueryTime = false, false, false, false,
			time.Time{}, 0
	} else {
		t.world.full = append(t.world.full, time.Since(t.world.began))
	}
	time.Sleep(t.world.stall)
	return sit, !t.world.locked, nil
}

// Try undoes a part that fails.
func (t *tick) Try(_ context.Context, subjects []granting.Subject, part func() error) (failed, err error) {
	if len(subjects) == 0 || slices.ContainsFunc(subjects, func(s granting.Subject) bool {
		return s.Kind == "" || s.ID == ""
	}) {
		panic("a part without its subjects")
	}
	before, over := t.state, t.over
	before.granted, before.requeued, before.closed, before.slots = slices.Clone(t.granted), slices.Clone(t.requeued),
		slices.Clone(t.closed), slices.Clone(t.slots)
	if failed = part(); failed != nil {
		t.state, t.over = before, over
		if len(subjects) == 1 {
			t.aside = append(slices.Clone(t.aside), subjects[0])
		}
	}
	return failed, nil
}

func (t *tick) ForgetAside(context.Context) error { return t.forgetting }

func (t *tick) SettleSpawned(_ context.Context, timely bool, _ int) (int, error) {
	t.spawned = append(slices.Clone(t.spawned), timely)
	if !t.sit.Spawns {
		return 0, nil
	}
	t.sit.Spawns = false
	t.wake()
	return max(1, t.spawns), nil
}

func (t *tick) wake() {
	t.turns, t.wakes = append(slices.Clone(t.turns), t.wakes...), nil
}

func (t *tick) Note(_ context.Context, now time.Time, timeline string) error {
	t.sit.LastTickAt, t.sit.SeenTimeline = now, timeline
	t.notes++
	return nil
}

func (t *tick) CountSilence(_ context.Context, since time.Time) error {
	t.silenceFrom = append(slices.Clone(t.silenceFrom), since)
	t.sit.Restarted = false
	return nil
}

func (t *tick) ExpireAsks(_ context.Context, limit int) (int, error) {
	return min(limit, t.expired), t.failing
}

func (t *tick) MoveLevels(context.Context) (int, error) { return 0, nil }
func (t *tick) MoveHeld(context.Context) (int, error)   { return 0, nil }

func (t *tick) MoveLanes(context.Context) error { return nil }

func (t *tick) Hold(_ context.Context, until time.Time, reason string) error {
	t.sit.HoldUntil, t.sit.HoldReason = until, reason
	t.holds = append(slices.Clone(t.holds), reason)
	return nil
}

func (t *tick) Lost(_ context.Context, limit int) ([]granting.LostGrant, error) {
	return slices.Clone(t.lost[:min(limit, len(t.lost))]), nil
}

func (t *tick) LostCalls(_ context.Context, limit int) ([]granting.LostCall, error) {
	return slices.Clone(t.calls[:min(limit, len(t.calls))]), nil
}

func (t *tick) RunAgain(_ context.Context, c granting.LostCall) error {
	t.ranAgain = append(slices.Clone(t.ranAgain), c.Name)
	t.calls = slices.DeleteFunc(slices.Clone(t.calls), func(l granting.LostCall) bool { return l == c })
	return nil
}

func (t *tick) EndCall(_ context.Context, c granting.LostCall) error {
	t.endedCalls = append(slices.Clone(t.endedCalls), c.Name)
	t.wake()
	t.calls = slices.DeleteFunc(slices.Clone(t.calls), func(l granting.LostCall) bool { return l == c })
	return nil
}

func (t *tick) free(id turnkeeper.TurnID) {
	t.lost = slices.DeleteFunc(slices.Clone(t.lost), func(l granting.LostGrant) bool { return l.TurnID == id })
}

func (t *tick) Requeue(_ context.Context, lost granting.LostGrant) error {
	t.requeued = append(t.requeued, lost.TurnID)
	t.free(lost.TurnID)
	t.turns = append(slices.Clone(t.turns), granting.Candidate{TurnID: lost.TurnID, MessageID: lost.MessageID,
		Lane: lost.Lane})
	return nil
}

func (t *tick) CloseLost(_ context.Context, lost granting.LostGrant) error {
	t.closed = append(t.closed, lost.TurnID)
	t.free(lost.TurnID)
	return nil
}

func (t *tick) DueSchedules(_ context.Context, limit int) ([]granting.DueSchedule, error) {
	return slices.Clone(t.schedules[:min(limit, len(t.schedules))]), nil
}

func (t *tick) Fire(_ context.Context, d granting.SlotDecision) error {
	t.slots = append(t.slots, d)
	t.schedules = slices.DeleteFunc(slices.Clone(t.schedules), func(s granting.DueSchedule) bool {
		return s.Name == d.Schedule.Name
	})
	if !d.Slot.IsZero() {
		t.slotsAt = append(slices.Clone(t.slotsAt), time.Since(t.world.began))
	}
	t.upcoming = d
	return nil
}

func (t *tick) Chains(_ context.Context, _ []string) ([]modelhealth.Chain, error) {
	return slices.Clone(t.chains), nil
}

func (t *tick) ReadyTurns(_ context.Context, limit int, held []string, full ...string) ([]granting.Candidate, error) {
	return without(held, full, t.turns, limit), nil
}

func (t *tick) ReadyMessages(_ context.Context, limit int, held []string,
	full ...string) ([]granting.Candidate, error) {
	return without(held, full, t.messages, limit), nil
}

// without returns the first candidates, except those of held agents that are not overdue, and those of full agents.
func without(held, full []string, all []granting.Candidate, limit int) []granting.Candidate {
	left := slices.DeleteFunc(slices.Clone(all), func(c granting.Candidate) bool {
		return !c.Overdue && slices.Contains(held, c.Agent) || slices.Contains(full, c.Agent)
	})
	return left[:min(limit, len(left))]
}

func (t *tick) Dispatch(_ context.Context, ready []granting.Candidate) error {
	t.granted = append(t.granted, slices.Clone(ready))
	for _, r := range ready {
		if r.Slot != "" {
			t.over = append(t.over, granting.Handed{TurnID: r.TurnID, GrantID: r.Slot})
		}
		same := func(other granting.Candidate) bool { return other.MessageID == r.MessageID }
		t.turns = slices.DeleteFunc(slices.Clone(t.turns), same)
		t.messages = slices.DeleteFunc(slices.Clone(t.messages), same)
	}
	t.sit.FreeSlots -= len(ready)
	return nil
}

// inBubble runs a test with fake time.
func inBubble(t *testing.T, f func(t *testing.T, w *testEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newEnv()) })
}

// runFor runs a scheduler for some time.
func (w *testEnv) runFor(t *testing.T, d time.Duration, c scheduler.Config) {
	t.Helper()
	c.Store = w
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	scheduler.New(c).Run(ctx)
}

// tick runs one tick.
func (w *testEnv) tick(t *testing.T, s *scheduler.Scheduler) scheduler.Report {
	t.Helper()
	report, err := s.Tick(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (w *testEnv) scheduler() *scheduler.Scheduler {
	return scheduler.New(scheduler.Config{Store: w, Log: zap.NewNop()})
}

// inLanes returns n waiting messages, each in its own lane.
func inLanes(n int) []granting.Candidate {
	var ready []granting.Candidate
	for i := range n {
		ready = append(ready, granting.Candidate{
			New: true, MessageID: turnkeeper.MessageID(i + 1), Lane: turnkeeper.Lane(rune('a' + i)),
			TurnID: turnkeeper.TurnID(i + 1),
		})
	}
	return ready
}
