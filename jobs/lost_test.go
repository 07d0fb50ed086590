package jobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/testrun"
)

const takeover = 200 * time.Millisecond

// falls ends the heartbeats of a process, and lets it count as lost after takeover. Before, its
// limit is much longer. It rings for a tick, because the last one knows only the longer limit.
func (s *site) falls(p *process) {
	s.t.Helper()
	p.hush()
	s.exec("update turnkeeper.worker_heartbeat set takeover_after = $2 where worker_id = $1", p.id, takeover)
	s.exec("select pg_notify('turnkeeper_inbox', '')")
}

// A worker is silent during a turn, because it is paused, and continues later. Its turn is taken
// over, and the outcome that it writes later changes nothing.
func TestSilentWorkersTurnIsTakenOver(t *testing.T) {
	s := newSite(t)
	asked, release := make(chan struct{}), make(chan struct{})
	silent := s.start(kind{slots: 1, model: func(context.Context, string) (string, error) {
		close(asked)
		<-release
		return "from the silent one", nil
	}})
	s.start(kind{scheduler: true})
	id := s.enqueue("clerk", "", "hello")
	<-asked
	first := s.view(id)
	s.start(kind{model: echo}) // started late, because the silent worker must get the turn first
	s.falls(silent)
	if reply := s.reply(id); reply.Body != "re: hello" {
		t.Errorf("reply %q", reply.Body)
	}
	view := s.view(id)
	if view.Turn.Losses != 1 || view.Turn.Dispatches != 2 || view.Turn.Token != first.Turn.Token+1 {
		t.Errorf("losses %d, dispatches %d, token %d after %d", view.Turn.Losses, view.Turn.Dispatches, view.Turn.Token,
			first.Turn.Token)
	}
	lost := view.Dispatches[0]
	if lost.Outcome != "lost" || lost.WorkerID != silent.id {
		t.Errorf("the first dispatch: %+v", lost)
	}
	beat := one[time.Time](s, "select beat_at from turnkeeper.worker_heartbeat where worker_id = $1", silent.id)
	if after := lost.EndedAt.Sub(beat); after < takeover || after > takeover+patience {
		t.Errorf("taken away after a silence of %v, which was promised to be at most %v", after, takeover)
	}
	if state := one[string](s, "select state::text from turnkeeper.river_job where id = $1",
		lost.JobID); state != "cancelled" {
		t.Errorf("River's old row is %s", state)
	}
	before := one[string](s, "select t::text from turnkeeper.turns t")
	close(release)
	s.awaitRunning(silent, 0)
	if after := one[string](s, "select t::text from turnkeeper.turns t"); after != before {
		t.Errorf("the turn was\n%s\nand is\n%s", before, after)
	}
	if n := one[int](s, "select count(*) from turnkeeper.rounds"); n != 1 {
		t.Errorf("%d rounds, want that of the second worker", n)
	}
	if state := one[string](s, "select state::text from turnkeeper.river_job where id = $1",
		lost.JobID); state != "cancelled" {
		t.Errorf("the silent worker's end made River's old row %s", state)
	}
}

func TestMessageThatLosesItsWorkerThreeTimesIsAnsweredWithoutRunning(t *testing.T) {
	testrun.Guard(t)
	s := newSite(t)
	var tally tally
	deadly := s.start(kind{model: tally.counted(func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})})
	s.start(kind{scheduler: true})
	id := s.enqueue("clerk", "", "poison")
	s.await("exists (select from turnkeeper.turns where state = 'running')")
	s.falls(deadly)
	// The silent worker fetches its turn again. No doorbell tells that to the scheduler, whose poll is far away.
	for losses := 1; losses < 3; losses++ {
		s.await("exists (select from turnkeeper.turns where losses > $1 or losses = $1 and worker_id <> '')", losses)
		s.exec("select pg_notify('turnkeeper_inbox', '')")
	}
	reply := s.reply(id)
	if reply.Outcome != turnkeeper.TurnDegraded || !strings.HasPrefix(reply.Body,
		"This message could not be answered: ") {
		t.Errorf("%s %q", reply.Outcome, reply.Body)
	}
	view := s.view(id)
	if view.Turn.StopReason != turnkeeper.StopWorkerLost || view.Turn.Losses != 3 || view.Turn.Dispatches != 3 ||
		len(view.Dispatches) != 3 {
		t.Errorf("stop reason %s, losses %d, dispatches %d", view.Turn.StopReason, view.Turn.Losses,
			view.Turn.Dispatches)
	}
	for _, d := range view.Dispatches {
		if d.Outcome != "lost" || d.WorkerID != deadly.id {
			t.Errorf("dispatch %+v", d)
		}
	}
	if view.Message.State != turnkeeper.MessageDegraded {
		t.Errorf("the message is %s", view.Message.State)
	}
	if n := len(tally.asked()); n > 3 {
		t.Errorf("the model was asked %d times", n)
	}
	stream, err := s.Events(t.Context(), view.Turn.ID, 0, 100)
	if err != nil || len(stream) == 0 || stream[len(stream)-1].Type != turnkeeper.EventTurnComplete {
		t.Errorf("%d events, error %v", len(stream), err)
	}
	if got := s.jobStates(); got != "3 cancelled" {
		t.Errorf("River's rows: %s", got)
	}
	s.awaitRunning(deadly, 0) // each holder was notified that its grant is over
	// The lane continues.
	s.start(kind{model: echo})
	if err := s.StopBeating(t.Context(), deadly.id); err != nil {
		t.Fatal(err)
	}
	if err := deadly.client.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.reply(s.enqueue("clerk", "", "next"))
}

// A process may get a turn again while the turn's previous dispatch still runs there. The process
// knows both dispatches.
func TestTurnThatComesBackToItsOwnProcessIsKnownThere(t *testing.T) {
	s := newSite(t)
	calls := make(chan chan struct{}, 2)
	p := s.start(kind{takeover: time.Minute, model: func(context.Context, string) (string, error) {
		release := make(chan struct{})
		calls <- release
		<-release
		return "done", nil
	}})
	s.start(kind{scheduler: true})
	id := s.enqueue("clerk", "", "hello")
	first := <-calls
	if _, err := s.Pool().Exec(t.Context(),
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	s.enqueue("desk", "", "rings the doorbell")
	var others []chan struct{}
	for range 2 {
		others = append(others, <-calls)
	}
	if n := p.worker.Running(); n != 3 {
		t.Errorf("%d turns run, want the old dispatch, the new one and the other lane's", n)
	}
	close(first)
	s.await("select count(*) = 1 from turnkeeper.lease_log where outcome = 'lost'")
	s.awaitRunning(p, 2)
	for _, release := range others {
		close(release)
	}
	s.reply(id)
}
