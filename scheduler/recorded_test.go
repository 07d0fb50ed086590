package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/scheduler"
)

// notes are what a scheduler does, in order: the calls of its store, its worker and its observer, its points and its
// log.
type notes struct {
	strings.Builder
	fails map[string]error // by call, as it is noted
}

func (n *notes) add(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	err := n.fails[call]
	if n.WriteString("    " + call); err != nil {
		fmt.Fprintf(&n.Builder, ": %v", err)
	}
	n.WriteByte('\n')
	return err
}

// Write takes a line of the log.
func (n *notes) Write(line []byte) (int, error) {
	_ = n.add("logs %s", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (n *notes) Sync() error { return nil }

// At takes a point.
func (n *notes) At(_ context.Context, label string) { _ = n.add("at %s", label) }

func (n *notes) Ticked(busy bool, took time.Duration, err error) {
	_ = n.add("observed: a tick, busy %t, took %s, error %v", busy, took, err)
}

func (n *notes) WorkerLost(agent string, closed bool, rounds int) {
	_ = n.add("observed: a worker of %s was lost, closed %t, %d rounds", agent, closed, rounds)
}

// A notedStore is a testEnv whose calls are noted.
type notedStore struct {
	*testEnv
	*notes
}

func (s *notedStore) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	_ = s.add("begins")
	err := s.testEnv.InTick(ctx, func(t scheduler.Tick) error { return f(&notedTick{t.(*tick), s.notes}) })
	return errors.Join(s.add("ends with error %v", err), err)
}

func (s *notedStore) Handed(ctx context.Context, w turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) ([]granting.Handed, error) {
	return either(s.add("Handed %s %v", w, grants), func() ([]granting.Handed, error) {
		return s.testEnv.Handed(ctx, w, grants)
	})
}

func (s *notedStore) TickFailed(ctx context.Context, failed error) error {
	return errors.Join(s.add("TickFailed %v", failed), s.testEnv.TickFailed(ctx, failed))
}

// either returns an error, or else what a call returns.
func either[T any](err error, call func() (T, error)) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return call()
}

// A notedTick is a tick whose calls are noted.
type notedTick struct {
	*tick
	*notes
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2 Jan 15:04:05.999")
}

func (t *notedTick) Snapshot(ctx context.Context, everything bool) (granting.Snapshot, bool, error) {
	if err := t.add("Snapshot %t", everything); err != nil {
		return granting.Snapshot{}, false, err
	}
	return t.tick.Snapshot(ctx, everything)
}

func (t *notedTick) Note(ctx context.Context, now time.Time, timeline string) error {
	return errors.Join(t.add("Note %s %s", clock(now), timeline), t.tick.Note(ctx, now, timeline))
}

func (t *notedTick) CountSilence(ctx context.Context, since time.Time) error {
	return errors.Join(t.add("CountSilence %s", clock(since)), t.tick.CountSilence(ctx, since))
}

func (t *notedTick) Hold(ctx context.Context, until time.Time, reason string) error {
	return errors.Join(t.add("Hold %s %q", clock(until), reason), t.tick.Hold(ctx, until, reason))
}

func (t *notedTick) Try(ctx context.Context, subjects []granting.Subject, part func() error) (failed, err error) {
	if err := t.add("Try %v", subjects); err != nil {
		return nil, err
	}
	failed, err = t.tick.Try(ctx, subjects, part)
	_ = t.add("tried %v, failed %v", subjects, failed)
	return failed, err
}

func (t *notedTick) ForgetAside(ctx context.Context) error {
	return errors.Join(t.add("ForgetAside"), t.tick.ForgetAside(ctx))
}

func (t *notedTick) SettleSpawned(ctx context.Context, timely bool, limit int) (int, error) {
	return either(t.add("SettleSpawned %t %d", timely, limit), func() (int, error) {
		return t.tick.SettleSpawned(ctx, timely, limit)
	})
}

func (t *notedTick) ExpireAsks(ctx context.Context, limit int) (int, error) {
	return either(t.add("ExpireAsks %d", limit), func() (int, error) { return t.tick.ExpireAsks(ctx, limit) })
}

func (t *notedTick) MoveLevels(context.Context) (int, error) { return 1, t.add("MoveLevels") }
func (t *notedTick) MoveHeld(context.Context) (int, error)   { return 1, t.add("MoveHeld") }
func (t *notedTick) MoveLanes(context.Context) error         { return t.add("MoveLanes") }

func (t *notedTick) Lost(ctx context.Context, limit int) ([]granting.LostGrant, error) {
	return either(t.add("Lost %d", limit), func() ([]granting.LostGrant, error) { return t.tick.Lost(ctx, limit) })
}

func (t *notedTick) Requeue(ctx context.Context, lost granting.LostGrant) error {
	return errors.Join(t.add("Requeue turn %d", lost.TurnID), t.tick.Requeue(ctx, lost))
}

func (t *notedTick) CloseLost(ctx context.Context, lost granting.LostGrant) error {
	return errors.Join(t.add("CloseLost turn %d", lost.TurnID), t.tick.CloseLost(ctx, lost))
}

func (t *notedTick) LostCalls(ctx context.Context, limit int) ([]granting.LostCall, error) {
	return either(t.add("LostCalls %d", limit), func() ([]granting.LostCall, error) {
		return t.tick.LostCalls(ctx, limit)
	})
}

func (t *notedTick) RunAgain(ctx context.Context, c granting.LostCall) error {
	return errors.Join(t.add("RunAgain %s", c.Name), t.tick.RunAgain(ctx, c))
}

func (t *notedTick) EndCall(ctx context.Context, c granting.LostCall) error {
	return errors.Join(t.add("EndCall %s", c.Name), t.tick.EndCall(ctx, c))
}

func (t *notedTick) DueSchedules(ctx context.Context, limit int) ([]granting.DueSchedule, error) {
	return either(t.add("DueSchedules %d", limit), func() ([]granting.DueSchedule, error) {
		return t.tick.DueSchedules(ctx, limit)
	})
}

func (t *notedTick) Fire(ctx context.Context, d granting.SlotDecision) error {
	return errors.Join(t.add("Fire %s, slot %s, next %s, skipped %q, error %q", d.Schedule.Name, clock(d.Slot),
		clock(d.NextDue), d.Skipped, d.Error), t.tick.Fire(ctx, d))
}

func (t *notedTick) Chains(ctx context.Context, models []string) ([]modelhealth.Chain, error) {
	return either(t.add("Chains %v", models), func() ([]modelhealth.Chain, error) { return t.tick.Chains(ctx, models) })
}

func (t *notedTick) ReadyTurns(ctx context.Context, limit int, held []string, full ...string) ([]granting.Candidate,
	error) {
	return either(t.add("ReadyTurns %d, held %v, full %v", limit, held, full), func() ([]granting.Candidate, error) {
		return t.tick.ReadyTurns(ctx, limit, held, full...)
	})
}

func (t *notedTick) ReadyMessages(ctx context.Context, limit int, held []string, full ...string) ([]granting.Candidate,
	error) {
	return either(t.add("ReadyMessages %d, held %v, full %v", limit, held, full), func() ([]granting.Candidate, error) {
		return t.tick.ReadyMessages(ctx, limit, held, full...)
	})
}

func (t *notedTick) Dispatch(ctx context.Context, ready []granting.Candidate) error {
	var all []string
	for _, r := range ready {
		all = append(all, fmt.Sprintf("message %d to %q in %q with probes %v", r.MessageID, r.WorkerID,
			r.Slot, r.Probes))
	}
	return errors.Join(t.add("Dispatch %s", strings.Join(all, "; ")), t.tick.Dispatch(ctx, ready))
}

// A notedLocal is a local whose calls are noted.
type notedLocal struct {
	*local
	*notes
}

func (l *notedLocal) Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID) {
	_ = l.add("Reserve %d", n)
	return l.local.Reserve(n)
}

func (l *notedLocal) Start(turns []granting.Handed) {
	for _, turn := range turns {
		_ = l.add("Start turn %d in %q", turn.TurnID, turn.GrantID)
	}
	l.local.Start(turns)
}

func (l *notedLocal) Release(grants []turnkeeper.GrantID) {
	_ = l.add("Release %q", grants)
	l.local.Release(grants)
}

// busy makes work of every kind due, for two agents of which one has a model that is down.
func busy(w *testEnv) {
	now := w.now()
	lost := granting.LostGrant{TurnID: 31, MessageID: 41, Lane: "clerk", WorkerID: "gone", Lapsed: true, Losses: 1,
		Rounds: 5}
	last := granting.LostGrant{TurnID: 32, MessageID: 42, Lane: "desk@ann/a", WorkerID: "gone", Losses: 2, Rounds: 6}
	w.lost = []granting.LostGrant{lost, last}
	call := granting.LostCall{Name: "again", Failure: granting.CallJobMissing, WorkerID: "gone"}
	call.Ref.TurnID, call.Ref.Key, call.Ref.Attempt = 51, turnkeeper.CallKey{Round: 2, Ordinal: 3}, 4
	end := call
	end.Name, end.Failure, end.Ref.TurnID = "ended", granting.CallOverdue, 52
	w.calls = []granting.LostCall{call, end}
	schedule := func(name, cron, level string) granting.DueSchedule {
		return granting.DueSchedule{Agent: "clerk", Name: name, Cron: cron, TimeZone: "UTC", Level: level,
			NextDue: now.Add(-time.Hour).Truncate(time.Minute)}
	}
	w.schedules = []granting.DueSchedule{schedule("hourly", "0 * * * *", ""), schedule("skipped", "0 * * * *", "low"),
		schedule("broken", "x", "")}
	w.sit.Asks, w.expired, w.sit.Spawns, w.spawns = true, 2, true, 3
	w.sit.Lanes, w.sit.Levels, w.sit.Held, w.sit.Waiting, w.sit.Aside = true, true, true, 9, true
	w.sit.FreeSlots, w.sit.Running = 6, []string{"clerk", "desk"}
	w.sit.Down = []modelhealth.Health{{Model: "p/down", Due: true, DownSince: now.Add(-time.Minute),
		Failed: []turnkeeper.Lane{"clerk#2"}}}
	w.chains = []modelhealth.Chain{{Agent: "clerk", Models: []string{"p/down"}}}
	w.wakes = []granting.Candidate{{TurnID: 61, MessageID: 71, Agent: "desk", Lane: "desk@ann/b", Rank: now}}
	for i, agent := range []string{"clerk", "clerk", "desk", "desk", "desk", "other"} {
		w.messages = append(w.messages, granting.Candidate{New: true, TurnID: turnkeeper.TurnID(81 + i),
			MessageID: turnkeeper.MessageID(91 + i), Agent: agent,
			Lane: turnkeeper.Lane(fmt.Sprintf("%s#%d", agent, i+1)),
			Rank: now.Add(time.Duration(i-9) * time.Second)})
	}
	w.messages[3].WorkerID = "named"
}

var errRow = errors.New("a bad row")

// recordedTicks are what happens before each of the three ticks of a scheduler, by what they show.
var recordedTicks = map[string]struct {
	slots int // of the scheduler's own worker
	set   func(w *testEnv, n *notes, tick int)
}{
	"nothing is due":  {2, func(*testEnv, *notes, int) {}},
	"much is due":     {2, first(func(w *testEnv, _ *notes) { busy(w) })},
	"no worker":       {0, first(func(w *testEnv, _ *notes) { busy(w); w.sit.FreeSlots = -2 })},
	"rows set aside":  {2, first(func(w *testEnv, _ *notes) { busy(w); w.sit.Retry = true })},
	"paused":          {2, first(func(w *testEnv, _ *notes) { busy(w); w.sit.Paused = true })},
	"another ticks":   {2, first(func(w *testEnv, _ *notes) { busy(w); w.locked = true })},
	"a restart":       {2, first(func(w *testEnv, _ *notes) { w.sit.Restarted = true })},
	"an older record": {2, first(func(w *testEnv, _ *notes) { w.sit.LastTickAt = w.now().Add(time.Hour); busy(w) })},
	"an older grant":  {2, first(func(w *testEnv, _ *notes) { w.sit.NewestGrant = w.now().Add(time.Hour); busy(w) })},
	"another timeline": {2, first(func(w *testEnv, _ *notes) {
		busy(w)
		w.sit.SeenTimeline, w.sit.HoldReason = "00000009", "an older reason"
	})},
	"a step of the clock": {2, func(w *testEnv, _ *notes, tick int) {
		if tick == 2 {
			busy(w)
			w.skew = 2 * time.Hour
		}
	}},
	"the end of a hold-off": {2, first(func(w *testEnv, _ *notes) {
		busy(w)
		w.sit.HoldUntil, w.sit.HoldReason = w.now().Add(8*time.Second), "a step"
	})},
	"bad rows": {3, first(func(w *testEnv, n *notes) {
		busy(w)
		w.sit.Retry = true
		n.fails = map[string]error{"Requeue turn 31": errRow, "EndCall ended": errRow, "ForgetAside": errRow,
			"ExpireAsks 100": errRow,
			`Fire hourly, slot 31 Dec 23:00:00, next 1 Jan 01:00:00, skipped "", error ""`: errRow}
	})},
	"a slot that fails": {2, first(func(w *testEnv, n *notes) {
		busy(w)
		n.fails = map[string]error{
			`Fire hourly, slot 1 Jan 00:00:00, next 1 Jan 01:00:00, skipped "", error ""`: errRow}
	})},
	"a slot that is skipped and fails": {2, first(func(w *testEnv, n *notes) {
		busy(w)
		n.fails = map[string]error{"Fire skipped, slot 1 Jan 00:00:00, next 1 Jan 01:00:00, " +
			`skipped "the agent's survival level is low", error ""`: errRow}
	})},
	"a bad step": {2, first(func(w *testEnv, n *notes) {
		busy(w)
		n.fails = map[string]error{"MoveLevels": errRow}
	})},
	"grants that fail": {2, first(func(w *testEnv, n *notes) {
		busy(w)
		w.sit.Retry = true
		n.fails = map[string]error{"ReadyMessages 7, held [], full []": errRow}
	})},
	"a lost answer": {2, first(func(w *testEnv, _ *notes) { busy(w); w.lose = errLost })},
	"an answer that cannot be read back": {2, first(func(w *testEnv, _ *notes) {
		busy(w)
		w.lose, w.readBack = errLost, func() error { return errAway }
	})},
	"an outage": {2, func(w *testEnv, _ *notes, tick int) {
		if tick == 2 {
			busy(w)
			w.fail, w.failFor = errAway, 7*time.Second
		}
	}},
}

// first changes the world before the first tick.
func first(set func(*testEnv, *notes)) func(*testEnv, *notes, int) {
	return func(w *testEnv, n *notes, tick int) {
		if tick == 1 {
			set(w, n)
		}
	}
}

// TestTicksAreRecorded shows all that ticks do, in testdata/ticks.txt: three of a scheduler, five seconds apart, in
// each situation.
func TestTicksAreRecorded(t *testing.T) {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{LevelKey: "level", MessageKey: "says",
		EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeTime: zapcore.ISO8601TimeEncoder,
		EncodeDuration: zapcore.StringDurationEncoder})
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recordedTicks)) {
		inBubble(t, func(t *testing.T, w *testEnv) {
			n := &notes{}
			w.stall = 30 * time.Millisecond
			s := scheduler.New(scheduler.Config{
				Store: &notedStore{w, n}, Observer: n, Fault: n, MaxDispatches: 7,
				Local: &notedLocal{&local{slots: recordedTicks[name].slots}, n},
				Log:   zap.New(zapcore.NewCore(encoder, n, zap.DebugLevel)),
			})
			for tick := range 3 {
				fmt.Fprintf(&n.Builder, "%s, tick %d:\n", name, tick+1)
				recordedTicks[name].set(w, n, tick+1)
				report, err := s.Tick(t.Context())
				looked := clock(report.Looked)
				report.Looked = time.Time{}
				_ = n.add("reports %s, looked %s, error %v",
					strings.Join(golden.Fields("", reflect.ValueOf(report)), " "),
					looked, err)
				time.Sleep(5 * time.Second)
			}
			all.WriteString(n.String() + "\n")
		})
	}
	golden.File(t, "testdata/ticks.txt", all.String())
}
