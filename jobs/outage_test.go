package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/lease"
	"turnkeeper/storage/storagetest"
)

// beats lets a process write heartbeats as a worker does: it gives up its turns if it cannot, and gives back what it
// does not run.
func (s *site) beats(p *process, k kind) {
	s.t.Helper()
	p.hush()
	heart := lease.NewHeart(func(ctx context.Context) error {
		return p.store.Beat(ctx, presence.Heartbeat{WorkerID: p.id, Host: "h", Version: "v", Slots: k.slots,
			TakeoverAfter: k.takeover})
	}, k.takeover, zap.NewNop())
	must(s, heart.Beat(s.t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { heart.Run(ctx, p.worker.Stop) })
	group.Go(func() { p.worker.GiveBackOverlooked(ctx) })
	s.t.Cleanup(func() {
		stop()
		group.Wait()
	})
}

// The database is away for longer than takeover_after. Nothing counts as lost, each message has one reply, and normal
// work is back: what came meanwhile, new messages, due messages, doorbells and heartbeats.
func TestAnOutageLosesNothing(t *testing.T) {
	testrun.Slow(t)
	const takeover = 2 * time.Second // a full machine may keep a process waiting for one
	s := newSite(t)
	proxy, url := storagetest.NewProxy(t, s.url)
	asked, cancelled := make(chan struct{}, 99), make(chan struct{})
	var first sync.Map // bodies that were asked about
	model := model(func(ctx context.Context, body string) (string, error) {
		if _, again := first.LoadOrStore(body, true); !again && body == "during" {
			asked <- struct{}{}
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		if body == "cancelled" {
			close(cancelled)
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return echo(ctx, body)
	})
	for range 2 {
		k := kind{model: model, slots: 2, scheduler: true, takeover: takeover, url: url, present: true,
			poll: time.Second}
		s.beats(s.start(k), k)
	}
	var all []turnkeeper.MessageID
	for n := range 3 {
		all = append(all, s.enqueue("desk", fmt.Sprint(n), fmt.Sprint("before ", n)))
	}
	for _, id := range all {
		s.reply(id)
	}
	all = append(all, s.enqueue("desk", "during", "during"))
	<-asked
	proxy.Refuse(true)
	proxy.Break()
	due, err := s.Enqueue(t.Context(), turnkeeper.Submission{Agent: "desk", Conversation: "due", Body: "due",
		DueAt: time.Now().Add(time.Second)})
	must(s, err)
	all = append(all, due, s.enqueue("desk", "meanwhile", "meanwhile"))
	s.await("(select max(beat_at) from turnkeeper.worker_heartbeat) < clock_timestamp() - 3 * $1::interval", takeover)
	proxy.Refuse(false)
	for _, id := range all {
		s.reply(id)
	}
	s.await(`(select count(*) from turnkeeper.worker_heartbeat
		where stopped_at is null and beat_at > clock_timestamp() - $1::interval) = 2`, takeover)
	for _, id := range append(all, s.enqueue("desk", "after", "after")) {
		if reply := s.reply(id); reply.Outcome != turnkeeper.TurnSucceeded {
			t.Errorf("message %d: %s %q", id, reply.Outcome, reply.Body)
		}
		if turn := s.view(id).Turn; turn.Losses != 0 || turn.Attempt != 1 {
			t.Errorf("message %d: %d losses, attempt %d", id, turn.Losses, turn.Attempt)
		}
	}
	id := s.enqueue("desk", "cancelled", "cancelled")
	<-cancelled
	_, err = s.CancelMessage(t.Context(), id, "enough")
	must(s, err)
	if reply := s.reply(id); reply.Outcome != turnkeeper.TurnCancelled {
		t.Errorf("the cancelled message: %s %q", reply.Outcome, reply.Body)
	}
	if n := one[int](s, "select count(*) from turnkeeper.replies"); n != len(all)+2 {
		t.Errorf("%d replies", n)
	}
}
