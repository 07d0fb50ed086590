package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// A worker whose scheduler grants more turns than it has slots runs no more than that at once, and all of
// them: those that were handed over, and those that River has for any worker. A dead worker's slots make the
// scheduler grant too many.
func TestSlotsAreShared(t *testing.T) {
	testrun.Guard(t)
	s := newSite(t)
	var tally tally
	if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "dead", Slots: 8,
		TakeoverAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s.start(kind{scheduler: true, slots: 2, model: tally.counted(func(ctx context.Context,
		body string) (string, error) {
		one[bool](s, "select true from pg_sleep(0.02)")
		return echo(ctx, body)
	})})
	var all []turnkeeper.MessageID
	for _, body := range numbered(30) {
		all = append(all, s.enqueue("desk", body, body))
	}
	for _, id := range all {
		s.reply(id)
	}
	if tally.most != 2 {
		t.Errorf("%d turns ran at once, with 2 slots", tally.most)
	}
	if n := len(tally.asked()); n != len(all) {
		t.Errorf("the model was asked %d times", n)
	}
	if n := one[int](s, "select count(*) from turnkeeper.lease_log where outcome <> 'finished'"); n > 0 {
		t.Errorf("%d grants did not finish", n)
	}
}

// A fetch that is limited to the free slots leaves jobs. They are fetched as soon as slots are free, not at the next
// poll, which is far away.
func TestJobsThatAFetchLeftAreFetched(t *testing.T) {
	testrun.Guard(t)
	s := newSite(t)
	if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "dead", Slots: 40,
		TakeoverAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := s.start(kind{model: echo, slots: 20})
	var held []turnkeeper.GrantID
	for len(held) < 19 { // the first fetch has taken all slots, until it finds nothing
		_, more := p.worker.Reserve(19 - len(held))
		held = append(held, more...)
		one[bool](s, "select true from pg_sleep(0.002)")
	}
	var all []turnkeeper.MessageID
	for _, body := range numbered(12) {
		all = append(all, s.enqueue("desk", body, body))
	}
	report, err := scheduler.New(scheduler.Config{Store: s.dispatcher(p)}).Tick(t.Context())
	if err != nil || report.Granted != len(all) {
		t.Fatalf("granted %d, error %v", report.Granted, err)
	}
	for _, id := range all {
		s.reply(id)
	}
	p.worker.Release(held)
}

// The answer to the commit of a tick is lost. The scheduler reads back whether the turns were granted, and starts
// exactly these.
func TestALostAnswerToATickIsReadBack(t *testing.T) {
	testrun.Guard(t)
	for name, done := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			var tally tally
			p := s.start(kind{model: tally.counted(echo), slots: 2, passive: true})
			id := s.enqueue("clerk", "", "hello")
			cutter, url := newCutter(t, s.url)
			far := storagetest.Open(t, url)
			d := &jobs.Dispatcher{Grants: far.Grants, TTL: bounds.Default().LeaseTTL}
			ticks := scheduler.New(scheduler.Config{Store: d, Local: p.worker,
				Fault: atPoint{scheduler.PointGranted, func() {
					if len(tally.asked()) == 0 {
						cutter.cutNext(done)
					}
				}}})
			if _, err := ticks.Tick(t.Context()); err == nil {
				t.Fatal("the tick did not fail")
			}
			if !done {
				s.awaitRunning(p, 0)
				if n := len(tally.asked()) + one[int](s, "select count(*) from turnkeeper.turns"); n != 0 {
					t.Errorf("a turn that was not granted has run, or is on record")
				}
				if _, grants := p.worker.Reserve(3); len(grants) != 2 {
					t.Errorf("%d slots are free", len(grants))
				} else {
					p.worker.Release(grants)
				}
				if _, err := scheduler.New(scheduler.Config{Store: d, Local: p.worker}).Tick(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.reply(id)
			if n := len(tally.asked()); n != 1 {
				t.Errorf("the model was asked %d times", n)
			}
			if n := one[int](s, "select count(*) from turnkeeper.lease_log"); n != 1 {
				t.Errorf("%d grants", n)
			}
		})
	}
}

// A deadLocal reserves slots, and dies before it starts a turn.
type deadLocal struct{ *jobs.Worker }

func (deadLocal) Start([]granting.Handed) {}

// A turn that was handed over and not started is given back by its worker, or else is lost with it.
func TestATurnThatWasNotStartedIsReclaimed(t *testing.T) {
	t.Run("given back", func(t *testing.T) { notStarted(t, true) })
	t.Run("lost", func(t *testing.T) { notStarted(t, false) })
}

func notStarted(t *testing.T, alive bool) {
	s := newSite(t)
	dead := s.start(kind{model: echo, slots: 1, passive: true})
	id := s.enqueue("clerk", "", "hello")
	if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(dead), Local: deadLocal{dead.worker}}).Tick(
		t.Context()); err != nil {
		t.Fatal(err)
	}
	if by := one[string](s, "select worker_id from turnkeeper.turns"); by != string(dead.id) {
		t.Fatalf("the grant is bound to %q", by)
	}
	if alive {
		dead.worker.GiveBack(t.Context(), 0)
	} else {
		s.falls(dead)
	}
	s.start(kind{model: echo, scheduler: true})
	s.reply(id)
	view := s.view(id)
	if first := view.Dispatches[0]; first.Outcome != "lost" || first.WorkerID != dead.id || len(view.Dispatches) != 2 {
		t.Errorf("alive %v: %d dispatches, the first %+v", alive, len(view.Dispatches), first)
	}
}

// A worker without slots, and one that is being stopped, get no turns.
func TestNoSlotsNoTurns(t *testing.T) {
	s := newSite(t)
	unused, _ := s.turnWorker(echo, nil)
	p := s.start(kind{model: echo, slots: 3, passive: true})
	reserved := func(w *jobs.Worker, n int) []turnkeeper.GrantID {
		_, grants := w.Reserve(n)
		return grants
	}
	if got := reserved(unused, 1); len(got) > 0 {
		t.Error("a worker that River does not run has slots")
	}
	first := reserved(p.worker, 2)
	if len(first) != 2 || slices.Contains(first, "") || first[0] == first[1] {
		t.Errorf("reserved %v", first)
	}
	if second := reserved(p.worker, 5); len(second) != 1 {
		t.Errorf("reserved %d more slots", len(second))
	} else {
		p.worker.Release(second)
	}
	if p.worker.Running() != 0 {
		t.Error("reserved slots count as running turns")
	}
	p.worker.Drain()
	if got := reserved(p.worker, 1); len(got) > 0 {
		t.Error("a worker that is being stopped has slots")
	}
	p.worker.Release(first)
	p.worker.Wait()
}

// A turn that was handed over stops soon after its grant was taken away: its job is unknown to River.
func TestTheHolderOfAHandedOverTurnLearnsThatItIsTaken(t *testing.T) {
	s := newSite(t)
	asked, cause := make(chan struct{}), make(chan error, 1)
	p := s.start(kind{scheduler: true, slots: 1, model: func(ctx context.Context, _ string) (string, error) {
		close(asked)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return "", ctx.Err()
	}})
	bell := storage.NewNotifier(s.url, zap.NewNop())
	rings, _ := bell.Subscribe(storage.TopicCancels)
	go bell.Run(t.Context())
	go p.worker.WatchCancels(t.Context(), rings)
	id := s.enqueue("clerk", "", "hello")
	<-asked
	s.exec("update turnkeeper.worker_heartbeat set slots = 0")
	s.exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()")
	s.enqueue("desk", "", "makes the scheduler look")
	if err := <-cause; err == nil {
		t.Error("the turn's context did not end")
	}
	s.awaitRunning(p, 0)
	if out := s.view(id).Dispatches[0].Outcome; out != "lost" {
		t.Errorf("its dispatch is %q", out)
	}
}

// A turn that panics ends alone, and its slot is free again.
func TestAPanicOfAHandedOverTurn(t *testing.T) {
	s := newSite(t)
	p := s.start(kind{model: echo, slots: 1, passive: true})
	panics := true
	p.worker.Fault = atPoint{jobs.PointFetched, func() {
		if panics {
			panics = false
			panic("on purpose")
		}
	}}
	first := s.enqueue("clerk", "", "hello")
	ticks := scheduler.New(scheduler.Config{Store: s.dispatcher(p), Local: p.worker})
	if _, err := ticks.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(p, 0)
	p.worker.GiveBack(t.Context(), 0)
	_, grants := p.worker.Reserve(2)
	if len(grants) != 1 {
		t.Errorf("%d slots are free", len(grants))
	}
	p.worker.Release(grants)
	s.start(kind{model: echo, scheduler: true})
	s.reply(first)
}

// A slowFetch is an executor whose fetches wait until they are answered.
type slowFetch struct {
	riverdriver.Executor
	begun  []string // queues, in order
	answer chan error
}

func (f *slowFetch) JobGetAvailable(_ context.Context,
	p *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	f.begun = append(f.begun, p.Queue)
	return &riverdriver.JobGetAvailableResult{}, <-f.answer
}

// TestOneFetchAtATime fetches for three queues at once. The first fetch fails and the third is given up while it waits:
// neither keeps the second one from running.
func TestOneFetchAtATime(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Options{URL: "postgres://127.0.0.1:1/", Lazy: true}) // not used
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowFetch{answer: make(chan error)}
		executor := jobs.NewWorker(jobs.WorkerConfig{DB: store}).Fetching(slow)
		failed := errors.New("the connection is gone")
		done := make(chan error, 3)
		fetch := func(ctx context.Context, queue string) {
			_, err := executor.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{Queue: queue, MaxToLock: 1})
			done <- err
		}
		go fetch(t.Context(), "first")
		synctest.Wait()
		given, giveUp := context.WithCancel(t.Context())
		go fetch(given, "third")
		synctest.Wait()
		giveUp()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the third fetch ended with %v", err)
		}
		go fetch(t.Context(), "second")
		synctest.Wait()
		if !slices.Equal(slow.begun, []string{"first"}) {
			t.Errorf("the fetches of %q run at once", slow.begun)
		}
		slow.answer <- failed
		if err := <-done; !errors.Is(err, failed) {
			t.Errorf("the first fetch ended with %v", err)
		}
		slow.answer <- nil
		if err := <-done; err != nil || !slices.Equal(slow.begun, []string{"first", "second"}) {
			t.Errorf("%q were fetched, %v", slow.begun, err)
		}
	})
}
