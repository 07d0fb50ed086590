package storage_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// impatient is a store behind a proxy whose statements may take a second.
func impatient(t *testing.T, h *house) (*storagetest.Proxy, *storage.Store) {
	t.Helper()
	p, url := storagetest.NewProxy(t, h.url)
	store, err := storage.Open(t.Context(), storage.Options{URL: url, StatementTimeout: time.Second, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	t.Cleanup(p.Break) // what is dead would be waited for
	return p, store
}

func TestADeadConnectionDelaysAStep(t *testing.T) {
	testrun.Guard(t)
	for name, what := range map[string]storagetest.Cut{"after the commit": storagetest.Hush, "before the server has it": storagetest.Freeze} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			p, far := impatient(t, h)
			d := h.turn("x")
			d.TurnWriter = far.Writer(d.record, d.grant)
			began := time.Now()
			happened := p.CutNext(what, storagetest.Sent.Executes)
			d.append(t, turnkeeper.Entry{Round: round(1), Events: events(turnkeeper.EventRoundStart)})
			<-happened
			p.FreezeAll()
			d.finish(t, "done")
			if took := time.Since(began); took > patience {
				t.Errorf("it took %s", took)
			}
			if n := one[int](h, "select entries from turnkeeper.turns"); n != 2 {
				t.Errorf("%d entries, want 2", n)
			}
		})
	}
}

// A tick that hears nothing more ends, and so does its transaction on the
// server, which holds the scheduler's lock.
func TestADeadConnectionDelaysATick(t *testing.T) {
	testrun.Guard(t)
	h := newHouse(t)
	p, far := impatient(t, h)
	ctx := t.Context()
	happened := p.CutNext(storagetest.Freeze, func(s storagetest.Sent) bool { return s.Has("name: LostGrants") })
	began := time.Now()
	err := far.InTick(ctx, func(tick *storage.Tick) error {
		if _, locked, err := tick.Look(ctx); err != nil || !locked {
			t.Fatalf("locked %v, error %v", locked, err)
		}
		_, err := tick.Lost(ctx, 10)
		return err
	})
	<-happened
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("the tick ended with %v", err)
	}
	for locked := false; !locked && time.Since(began) < patience; {
		err := far.InTick(ctx, func(tick *storage.Tick) (err error) {
			_, locked, err = tick.Look(ctx)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("the scheduler's lock was not free after %s", took)
	}
}

func TestADeadBellIsReplaced(t *testing.T) {
	testrun.Guard(t)
	h := newHouse(t)
	p, url := storagetest.NewProxy(t, h.url)
	bell := storage.NewBell(url, zap.NewNop())
	bell.Quiet = 200 * time.Millisecond
	bell.SetLimit(500 * time.Millisecond)
	inbox, _ := bell.Subscribe(storage.TopicInbox)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bell.Run(ctx)
	}()
	defer func() {
		stop()
		p.Break()
		<-ended
	}()
	awaitRing(t, "the bell begins to listen", inbox)
	h.enqueue("clerk", "", "x")
	awaitRing(t, "a message", inbox)
	p.FreezeAll()
	awaitRing(t, "the bell listens again", inbox)
	h.enqueue("clerk", "", "y")
	awaitRing(t, "a message", inbox)
}
