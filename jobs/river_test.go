package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"turnkeeper/scheduler"
	"turnkeeper/storage"
)

// The tests in this file check behaviour of River that this package depends on. If one fails after
// an upgrade of River, that behaviour has changed.

type canaryArgs struct{}

func (canaryArgs) Kind() string { return "canary" }

// canary inserts a job whose worker is f, and returns its id once f runs. wait returns when River
// has ended the job.
func (s *site) canary(attempts int, f func(ctx context.Context,
	job *river.Job[canaryArgs]) error) (client *river.Client[pgx.Tx], id int64, wait func()) {
	s.t.Helper()
	workers := river.NewWorkers()
	taken := make(chan struct{})
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[canaryArgs]) error {
		close(taken)
		return f(ctx, job)
	}))
	client, err := river.NewClient(riverpgxv5.New(s.Pool()), &river.Config{
		Schema: storage.Schema, Workers: workers, Queues: map[string]river.QueueConfig{"canary": {MaxWorkers: 1}},
		JobTimeout: time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	done, unsubscribe := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobCancelled,
		river.EventKindJobFailed)
	s.t.Cleanup(unsubscribe)
	if err := client.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := client.StopAndCancel(context.Background()); err != nil {
			s.t.Error(err)
		}
	})
	inserted, err := client.Insert(s.t.Context(), canaryArgs{}, &river.InsertOpts{Queue: "canary",
		MaxAttempts: attempts})
	if err != nil {
		s.t.Fatal(err)
	}
	<-taken
	return client, inserted.Job.ID, func() {
		s.t.Helper()
		select {
		case <-done:
		case <-time.After(patience):
			s.t.Fatal("River does not end the job")
		}
	}
}

func (s *site) row(id int64) map[string]any {
	s.t.Helper()
	var row map[string]any
	if err := json.Unmarshal([]byte(one[string](s, "select to_jsonb(j)::text from turnkeeper.river_job j where id = $1",
		id)), &row); err != nil {
		s.t.Fatal(err)
	}
	return row
}

// completeTx completes a job in a transaction with River's own function.
func (s *site) completeTx(ctx context.Context, job *river.Job[canaryArgs]) error {
	return pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// A grant inserts the row of its job with our own SQL. Once fetched, it must equal one that River has inserted
// and fetched.
func TestAGrantInsertsItsJobAsRiverWould(t *testing.T) {
	s := newSite(t)
	asked, resume := make(chan struct{}, 1), make(chan struct{})
	p := s.start(kind{scheduler: true, queued: true, model: func(context.Context, string) (string, error) {
		asked <- struct{}{}
		<-resume
		return "done", nil
	}})
	message := s.enqueue("clerk", "", "hello")
	<-asked
	_, id, wait := s.canary(1, func(context.Context, *river.Job[canaryArgs]) error { <-resume; return nil })
	want, got := s.row(id), s.row(int64(s.view(message).Turn.JobID))
	close(resume)
	wait()
	s.reply(message)
	if by := got["attempted_by"]; !cmp.Equal(by, []any{string(p.id)}) {
		t.Errorf("the job was attempted by %v", by)
	}
	for _, row := range []map[string]any{want, got} {
		for _, moment := range []string{"created_at", "scheduled_at", "attempted_at"} {
			if row[moment] == nil {
				t.Errorf("%s is missing in %v", moment, row)
			}
		}
		for _, own := range []string{"id", "args", "kind", "queue", "created_at", "scheduled_at", "attempted_at",
			"attempted_by"} {
			delete(row, own)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-River +ours):\n%s", diff)
	}
}

// A turn that the scheduler hands to its own worker has no job, from its grant to its end.
func TestATurnThatIsHandedOverHasNoJob(t *testing.T) {
	s := newSite(t)
	during := make(chan int, 1)
	p := s.start(kind{slots: 1, passive: true, model: func(context.Context, string) (string, error) {
		during <- one[int](s, "select count(*) from turnkeeper.river_job")
		return "done", nil
	}})
	id := s.enqueue("clerk", "", "hello")
	ticks := scheduler.New(scheduler.Config{Store: s.dispatcher(p), Local: p.worker})
	if _, err := ticks.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.reply(id)
	view := s.view(id)
	after := one[int](s, "select count(*) from turnkeeper.river_job")
	if n := <-during; n != 0 || after != 0 || view.Turn.JobID != 0 || view.Dispatches[0].JobID != 0 {
		t.Errorf("%d jobs during the turn, %d after it; the turn's is %d, its grant's %d", n, after,
			view.Turn.JobID, view.Dispatches[0].JobID)
	}
}

// River may give a job to a second attempt while the first still runs. River has no fence, so the
// result of the first attempt changes the job.
func TestRiverTakesTheWordOfAStaleAttempt(t *testing.T) {
	cases := map[string]struct {
		end  func(s *site) func(context.Context, *river.Job[canaryArgs]) error
		want string
	}{
		"it returns nil": {func(*site) func(context.Context, *river.Job[canaryArgs]) error {
			return func(context.Context, *river.Job[canaryArgs]) error { return nil }
		}, "completed"},
		"it completes in a transaction": {func(s *site) func(context.Context, *river.Job[canaryArgs]) error {
			return s.completeTx
		}, "completed"},
		"it fails": {func(*site) func(context.Context, *river.Job[canaryArgs]) error {
			return func(context.Context, *river.Job[canaryArgs]) error { return errors.New("stale") }
		}, "retryable"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			wake := make(chan struct{})
			end := c.end(s)
			_, id, wait := s.canary(3, func(ctx context.Context, job *river.Job[canaryArgs]) error {
				<-wake
				return end(ctx, job)
			})
			if _, err := s.Pool().Exec(t.Context(),
				"update turnkeeper.river_job set attempt = 2, attempted_at = now(), attempted_by = attempted_by || '{other}' where id = $1", id); err != nil {
				t.Fatal(err)
			}
			close(wake)
			wait()
			if state := s.row(id)["state"]; state != c.want && (c.want != "retryable" || state != "available") {
				t.Errorf("the job of a detached call is %v, was %s before", state, c.want)
			}
		})
	}
}

func TestRiverCompletesADiscardedJobWithoutAWord(t *testing.T) {
	s := newSite(t)
	wake := make(chan struct{})
	completed := make(chan error, 1)
	_, id, wait := s.canary(1, func(ctx context.Context, job *river.Job[canaryArgs]) error {
		<-wake
		completed <- s.completeTx(ctx, job)
		return nil
	})
	if _, err := s.Pool().Exec(t.Context(),
		"update turnkeeper.river_job set state = 'discarded', finalized_at = now() where id = $1", id); err != nil {
		t.Fatal(err)
	}
	close(wake)
	if err := <-completed; err != nil {
		t.Errorf("JobCompleteTx: %v", err)
	}
	wait()
	if state := s.row(id)["state"]; state != "discarded" {
		t.Errorf("the job is %v", state)
	}
}
