package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
)

func TestOneLaneIsSerialAndInOrder(t *testing.T) {
	s := newSite(t)
	var tally tally
	for range 2 {
		s.start(kind{model: tally.counted(echo), scheduler: true})
	}
	var ids []turnkeeper.MessageID
	want := numbered(20)
	for _, body := range want {
		ids = append(ids, s.enqueue("clerk", "", body))
	}
	for i, id := range ids {
		if reply := s.reply(id); reply.Body != "re: "+want[i] || reply.Outcome != turnkeeper.TurnSucceeded {
			t.Errorf("message %d: %s %q", id, reply.Outcome, reply.Body)
		}
	}
	if diff := cmp.Diff(want, tally.asked()); diff != "" {
		t.Errorf("worked in this order (-want +got):\n%s", diff)
	}
	if tally.most != 1 {
		t.Errorf("%d turns of one lane at once", tally.most)
	}
	if n := one[int](s, "select count(*) from turnkeeper.replies"); n != 20 {
		t.Errorf("%d replies", n)
	}
	if n := one[int](s, "select count(*) from turnkeeper.ended_grants"); n != 20 {
		t.Errorf("%d grants, want one a message", n)
	}
	s.await("not exists (select from turnkeeper.river_job)")
}

func TestManyLanesAreAnsweredOnce(t *testing.T) {
	s := newSite(t)
	var tally tally
	for range 2 {
		s.start(kind{model: tally.counted(echo), slots: 10, scheduler: true})
	}
	want := numbered(200)
	for i, body := range want {
		s.enqueue("desk", fmt.Sprint(i%50), body)
	}
	s.await("select count(*) = 200 from turnkeeper.replies")
	asked := tally.asked()
	slices.Sort(asked)
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if n := one[int](s, "select count(*) from (select from turnkeeper.ended_grants group by lane having count(*) <> 4 union all select from turnkeeper.leases) l"); n != 0 {
		t.Errorf("%d of 50 lanes are held or had other than four grants", n)
	}
	// A lane runs its messages in the order of their ids.
	if n := one[int](s,
		`select count(*) from (select m.id, lag(m.id) over (partition by m.lane order by t.token) as before
		from turnkeeper.messages m join turnkeeper.turns t on t.message_id = m.id) o where before > id`); n != 0 {
		t.Errorf("%d messages came before an older one of their lane", n)
	}
	s.await("not exists (select from turnkeeper.river_job)")
}

func TestJobOfAStaleGrantDoesNothing(t *testing.T) {
	s := newSite(t)
	var tally tally
	p := s.start(kind{model: tally.counted(echo), scheduler: true})
	id := s.enqueue("clerk", "", "hello")
	s.reply(id)
	turn := s.view(id).Turn
	before := one[string](s, "select t::text from turnkeeper.turns t")
	for name, args := range map[string]jobs.TurnArgs{
		"another grant": {TurnID: turn.ID, GrantID: "00000000-0000-4000-8000-000000000000"},
		"a closed turn": {TurnID: turn.ID, GrantID: turn.GrantID},
		"no such turn":  {TurnID: 9999, GrantID: turn.GrantID},
	} {
		inserted, err := p.client.Insert(t.Context(), args, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.await("select state not in ('available', 'running') from turnkeeper.river_job where id = $1", inserted.Job.ID)
		if state := one[string](s, "select state::text from turnkeeper.river_job where id = $1",
			inserted.Job.ID); state != "cancelled" {
			t.Errorf("%s: the job is %s", name, state)
		}
		if n := len(tally.asked()); n != 1 {
			t.Errorf("%s: the model was asked %d times", name, n)
		}
	}
	if after := one[string](s, "select t::text from turnkeeper.turns t"); after != before {
		t.Errorf("the turn was\n%s\nand is\n%s", before, after)
	}
	if n := one[int](s, "select count(*) from turnkeeper.replies"); n != 1 {
		t.Errorf("%d replies", n)
	}
}

// After a crash, a database server may have lost the record that River fetched a job. A turn that was handed over
// may get a job by a mistake. In both cases the grant belongs to its first worker, which runs it once.
func TestJobThatIsGivenOutTwiceIsWorkedOnce(t *testing.T) {
	t.Run("fetched", func(t *testing.T) { givenOutTwice(t, true) })
	t.Run("handed over", func(t *testing.T) { givenOutTwice(t, false) })
}

func givenOutTwice(t *testing.T, queued bool) {
	s := newSite(t)
	asked, resume := make(chan struct{}, 2), make(chan struct{})
	slow := model(func(ctx context.Context, body string) (string, error) {
		asked <- struct{}{}
		<-resume
		return "slow: " + body, nil
	})
	s.start(kind{model: slow, scheduler: true, slots: 2, queued: queued})
	id := s.enqueue("clerk", "", "hello")
	<-asked
	forget := func() {
		s.exec("update turnkeeper.river_job set state = 'available', attempt = 0, finalized_at = null")
		s.exec(`select pg_notify('turnkeeper.river_insert', '{"queue": "turns"}')`)
	}
	if !queued { // a tick before the worker offers its slots writes a job
		s.exec(`insert into turnkeeper.river_job (args, kind, max_attempts, priority, queue, scheduled_at, tags)
			select jsonb_build_object('turn_id', id, 'grant_id', grant_id), $1, 1, 1, 'turns', '2000-01-01', '{}'
			from turnkeeper.turns where not exists (select from turnkeeper.river_job)`, jobs.TurnArgs{}.Kind())
	}
	forget() // the same worker fetches it again, and does nothing
	s.await("not exists (select from turnkeeper.river_job where state in ('available', 'running'))")

	other := &tally{}
	second := s.start(kind{model: other.counted(echo), slots: 2})
	for one[string](s, "select attempted_by[array_upper(attempted_by, 1)] from turnkeeper.river_job") != string(
		second.id) {
		forget() // until the other worker fetches it
		s.await("not exists (select from turnkeeper.river_job where state in ('available', 'running'))")
	}
	close(resume)
	if reply := s.reply(id); reply.Body != "slow: hello" {
		t.Errorf("the reply is %q", reply.Body)
	}
	if n := len(asked) + len(other.asked()); n != 0 {
		t.Errorf("models were asked %d times more", n)
	}
	if n := one[int](s, "select inference_rounds from turnkeeper.turns_now"); n != 1 {
		t.Errorf("%d rounds are on record", n)
	}
}

func TestNothingIsGrantedWithoutALiveWorker(t *testing.T) {
	s := newSite(t)
	only := s.start(kind{})
	id := s.enqueue("clerk", "", "hello")
	report, err := scheduler.New(scheduler.Config{Store: s.dispatcher(only)}).Tick(t.Context())
	if err != nil || report.Granted != 0 {
		t.Fatalf("granted %d, error %v", report.Granted, err)
	}
	s.start(kind{model: echo, scheduler: true})
	s.reply(id)
}

func TestShutdownHandsBack(t *testing.T) {
	t.Run("fetched", func(t *testing.T) { shutDown(t, true) })
	t.Run("handed over", func(t *testing.T) { shutDown(t, false) })
}

func shutDown(t *testing.T, queued bool) {
	s := newSite(t)
	asked := make(chan struct{})
	leaving := s.start(kind{scheduler: true, queued: queued, model: func(ctx context.Context,
		_ string) (string, error) {
		close(asked)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	id := s.enqueue("clerk", "", "hello")
	<-asked
	// Stop in the order of a worker process: report no slots, fetch no new jobs, then end the turns.
	leaving.hush()
	if err := leaving.store.StopBeating(t.Context(), leaving.id); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- leaving.client.Stop(context.Background()) }()
	leaving.worker.Drain()
	leaving.worker.Stop(agentturn.ErrShutdown)
	leaving.worker.Wait()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if n := leaving.worker.Running(); n != 0 {
		t.Errorf("%d turns still run", n)
	}
	view := s.view(id)
	if view.Turn.State != turnkeeper.TurnQueued || view.Dispatches[0].Outcome != "handed_back" ||
		view.Turn.Losses != 0 {
		t.Errorf("the turn is %s, its dispatch %s, losses %d", view.Turn.State, view.Dispatches[0].Outcome,
			view.Turn.Losses)
	}
	if got := s.jobStates(); got != "" {
		t.Errorf("River's rows: %s", got)
	}
	s.start(kind{model: echo})
	if reply := s.reply(id); reply.Body != "re: hello" {
		t.Errorf("reply %q", reply.Body)
	}
	if n := s.view(id).Turn.Dispatches; n != 2 {
		t.Errorf("%d dispatches, want 2", n)
	}
}

func TestFailedTurnIsTriedAgain(t *testing.T) {
	testrun.Slow(t)
	s := newSite(t)
	calls := 0
	s.start(kind{scheduler: true, model: func(context.Context, string) (string, error) {
		if calls++; calls == 1 {
			return "", &inference.Error{Class: inference.ClassAuth, Detail: "bad day"}
		}
		return "better", nil
	}})
	id := s.enqueue("clerk", "", "hello")
	if reply := s.reply(id); reply.Body != "better" {
		t.Errorf("reply %q", reply.Body)
	}
	turns, err := s.TurnsOf(t.Context(), id)
	if err != nil || len(turns) != 2 || turns[0].State != turnkeeper.TurnFailed {
		t.Fatalf("turns %+v, error %v", turns, err)
	}
	if wait := turns[1].GrantedAt.Sub(turns[0].EndedAt).Seconds(); wait < 2 || wait > patience.Seconds() {
		t.Errorf("tried again after %.1f s, want 2 s and a moment", wait)
	}
}
