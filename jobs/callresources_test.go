package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/jobs"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tools"
)

// A bench is a process that runs detached calls of a tool, one at a time.
type bench struct {
	*site
	store  *storagetest.DB
	proxy  *storagetest.Proxy
	worker *jobs.CallWorker
	calls  int

	mu   sync.Mutex
	next func(ctx context.Context) error // what the next run does; nil: it succeeds
	done chan struct{}                   // closed when next is called
}

func newBench(t *testing.T) *bench {
	s := newSite(t)
	b := &bench{site: s}
	var url string
	b.proxy, url = storagetest.NewProxy(t, s.url)
	b.store = storagetest.Open(t, url)
	registry := &tools.Registry{}
	spec := tools.Spec{Name: "tool", Detached: true, Effect: turnkeeper.EffectKeyed, Timeout: time.Hour,
		Parameters: json.RawMessage(`{"type":"object"}`)}
	must(s, registry.Register(tools.New(spec, b.run)))
	b.worker = jobs.NewCallWorker(jobs.CallWorkerConfig{DB: b.store.DB, WorkerID: "bench", Tools: []string{"tool"},
		Runner: agentturn.New(agentturn.Config{Tools: registry})})
	must(s, s.Beat(t.Context(), presence.Heartbeat{WorkerID: "bench", Slots: 1, TakeoverAfter: time.Hour}))
	client, err := jobs.NewClient(jobs.ClientConfig{Pool: b.store.QueuePool(), WorkerID: "bench", CallSlots: 1,
		Calls: b.worker})
	must(s, err)
	must(s, client.Start(context.WithoutCancel(t.Context())))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) run(ctx context.Context, _ tools.Call, _ struct{}) (tools.Result, error) {
	b.mu.Lock()
	next := b.next
	b.next = nil
	b.mu.Unlock()
	if next == nil {
		return tools.Result{Text: "ok"}, nil
	}
	close(b.done)
	return tools.Result{}, next(ctx)
}

// fails makes the next run do something.
func (b *bench) fails(do func(ctx context.Context) error) (happened <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next, b.done = do, make(chan struct{})
	return b.done
}

// call begins a turn that waits for a call.
func (b *bench) call() turnkeeper.TurnID {
	b.t.Helper()
	b.calls++
	d := b.Detached(fmt.Sprint(b.calls), turnkeeper.EffectKeyed)
	d.Wait(b.t)
	return d.Grant.TurnID
}

// ends returns once the turn goes on, because its call has a result. Meanwhile the process gives back what it was given
// and does not run, and the scheduler looks at calls.
func (b *bench) ends(turn turnkeeper.TurnID) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !one[bool](b.site, "select (select state <> 'waiting' from turnkeeper.turns where id = $1) from pg_sleep(0.02)",
		turn) {
		if b.worker.GiveBack(b.t.Context(), time.Second); time.Now().After(deadline) {
			b.t.Fatalf("the call does not end; the worker holds %s", b.held())
		}
	}
	if _, err := b.CancelTurn(b.t.Context(), turn, "it has its result"); err != nil &&
		!errors.Is(err, turnkeeper.ErrWrongState) {
		b.t.Fatal(err)
	}
}

// held describes what the process holds; empty: nothing.
func (b *bench) held() string {
	held := b.worker.Resources()
	for _, pool := range b.store.Pools() {
		if pool.Used > 1 || pool.Used == 1 && pool.Name != "queue" { // River's listener
			held += fmt.Sprintf(" %d connections of the pool %s", pool.Used, pool.Name)
		}
	}
	if n := one[int](b.site,
		"select count(*) from turnkeeper.detached_calls where claim is not null and ended_at is null"); n > 0 {
		held += fmt.Sprintf(" %d claims", n)
	}
	return held
}

func (b *bench) idle() {
	b.t.Helper()
	for deadline := time.Now().Add(patience); b.held() != ""; one[bool](b.site, "select true from pg_sleep(0.02)") {
		if time.Now().After(deadline) {
			b.t.Fatalf("the process still holds %s", b.held())
		}
	}
}

func (b *bench) lose(cut storagetest.Cut, statement string) <-chan struct{} {
	return b.proxy.CutNext(cut, func(sent storagetest.Sent) bool { return sent.Has("name: " + statement + " ") })
}

// After any fault of a detached call, its process holds what it held before, and runs other calls.
func TestResourcesAfterAFaultOfADetachedCall(t *testing.T) {
	testrun.Slow(t)
	type fault struct {
		name string
		arm  func(b *bench) (happened <-chan struct{})
	}
	faults := []fault{
		{"the tool panics", func(b *bench) <-chan struct{} {
			return b.fails(func(context.Context) error { panic("on purpose") })
		}},
		{"the tool fails", func(b *bench) <-chan struct{} {
			return b.fails(func(context.Context) error { return errors.New("no") })
		}},
		{"the turn is cancelled", func(b *bench) <-chan struct{} {
			return b.fails(func(ctx context.Context) error {
				_, err := b.CancelTurn(context.Background(), one[turnkeeper.TurnID](b.site,
					"select max(id) from turnkeeper.turns"), "enough")
				return err
			})
		}},
		{"the worker hands it on", func(b *bench) <-chan struct{} {
			return b.fails(func(ctx context.Context) error {
				b.worker.Stop(agentturn.ErrShutdown)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}},
		{"the answer to its end is lost", func(b *bench) <-chan struct{} {
			return b.lose(storagetest.Unanswer, "EndDetached")
		}},
		{"its end is lost", func(b *bench) <-chan struct{} { return b.lose(storagetest.Lose, "EndDetached") }},
		{"the fetch is lost", func(b *bench) <-chan struct{} { return b.lose(storagetest.Lose, "JobGetAvailable") }},
		{"the answer to the fetch is lost", func(b *bench) <-chan struct{} {
			return b.lose(storagetest.Unanswer, "JobGetAvailable")
		}},
		{"the claim is lost", func(b *bench) <-chan struct{} { return b.lose(storagetest.Lose, "ClaimCall") }},
		{"the answer to the claim is lost", func(b *bench) <-chan struct{} {
			return b.lose(storagetest.Unanswer, "ClaimCall")
		}},
	}
	b := newBench(t)
	for _, f := range testrun.Sample(faults, 5) {
		t.Run(f.name, func(t *testing.T) {
			defer func(all *testing.T) { b.t, b.T = all, all }(b.t)
			b.t, b.T = t, t
			happened := f.arm(b)
			turn := b.call()
			select {
			case <-happened:
			case <-time.After(patience):
				t.Fatal("the fault did not happen")
			}
			b.proxy.Plan(nil)
			b.ends(turn)
			b.idle()
			b.ends(b.call())
			b.idle()
		})
	}
}
