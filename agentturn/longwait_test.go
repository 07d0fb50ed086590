package agentturn_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	askings "turnkeeper/asks"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/scheduler"
)

// A longRun is a worker that looks for work only when the test says so, so that days cost nothing.
type longRun struct {
	*bench
	mem   *memory.Store
	conn  *memory.Conn
	ticks *scheduler.Scheduler
}

const longRunner = turnkeeper.WorkerID("worker")

func newLongRun(b *bench) *longRun {
	mem := memory.New(memory.Options{LeaseTTL: time.Hour})
	r := &longRun{bench: b, mem: mem, conn: mem.Connect(nil)}
	r.ticks = scheduler.New(scheduler.Config{Store: r.conn, LeaseTTL: time.Hour, Log: zap.NewNop()})
	if err := r.conn.RegisterAgents(b.t.Context(), []turnkeeper.AgentRegistration{{Name: "tester",
		DefinitionHash: "hash"}}); err != nil {
		b.t.Fatal(err)
	}
	r.conn.Present(longRunner)
	return r
}

func (r *longRun) says(conversation string) turnkeeper.MessageID {
	r.t.Helper()
	return must(r.conn.Enqueue(r.t.Context(), turnkeeper.Submission{Agent: "tester", Conversation: conversation,
		Body: "Hello."}))
}

// work grants and runs what is ready.
func (r *longRun) work() {
	r.t.Helper()
	ctx := r.t.Context()
	for range 3 { // the turns that a turn has held up are granted by a later tick
		if err := r.conn.Beat(ctx, presence.Heartbeat{WorkerID: longRunner, Slots: 4,
			TakeoverAfter: time.Minute}); err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.ticks.Tick(ctx); err != nil {
			r.t.Fatal(err)
		}
		for _, job := range must(r.conn.Fetch(ctx, longRunner, 4)) {
			r.dispatch(ctx, job)
		}
	}
}

func (r *longRun) dispatch(ctx context.Context, job memory.Job) {
	r.t.Helper()
	if _, err := r.conn.BindGrant(ctx, job.TurnID, job.GrantID, longRunner); err != nil {
		r.t.Fatal(err)
	}
	record := must(r.conn.LoadPatiently(ctx, job.TurnID, job.GrantID))
	journal := r.conn.Journal(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: record.Turn.GrantID,
		JobID: job.ID, WorkerID: longRunner,
	})
	if _, err := r.runner().Run(ctx, agentturn.Assignment{Record: record, Definition: r.def}, journal); err != nil {
		r.t.Fatal(err)
	}
}

// replied reports whether a message has its reply.
func (r *longRun) replied(id turnkeeper.MessageID) bool {
	_, ok := r.mem.ReplyTo(id)
	return ok
}

// One ask waits for days while other conversations of the agent, in the same lane, are answered. Then it is answered,
// and the messages of its conversation follow in order.
func TestAnAskWaitsForDays(t *testing.T) {
	const days = 6
	for name, ask := range map[string]struct {
		tool   *tool
		answer askings.Answer
	}{
		"an approval": {once("pay").needsApproval(), yes},
		"input":       {once("pay").asksFor(1), seat(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := append([]inferencetest.Step{asks("pay")}, repeat(days, says("Good day."))...)
				b := newBench(t, append(steps, says("Paid."), says("Later."))...).with(ask.tool)
				b.def.AskTimeout = 2 * days * 24 * time.Hour
				r := newLongRun(b)
				paid := r.says("main")
				r.work()
				open := r.mem.OpenAsks()
				if len(open) != 1 {
					t.Fatalf("the asks are %+v", open)
				}
				later := r.says("main")
				for day := range days {
					time.Sleep(24 * time.Hour)
					other := r.says("day " + string(rune('a'+day)))
					r.work()
					if !r.replied(other) || r.replied(paid) || r.replied(later) || len(r.mem.OpenAsks()) != 1 {
						t.Fatalf("day %d: the replies are %+v", day, r.mem.Replies())
					}
				}
				ask.answer.By = "ann"
				if _, err := r.conn.AnswerAsk(t.Context(), open[0].ID, ask.answer); err != nil {
					t.Fatal(err)
				}
				r.work()
				var bodies []string
				for _, reply := range r.mem.Replies() {
					bodies = append(bodies, reply.Body)
				}
				if want := append(slices.Repeat([]string{"Good day."}, days), "Paid.", "Later."); !slices.Equal(
					bodies, want) {
					t.Errorf("the replies are %q", bodies)
				}
				for _, v := range r.mem.Check(time.Minute) {
					t.Error(v)
				}
			})
		})
	}
}
