package storage_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// impatient returns a store that connects through a proxy, with a statement timeout of one second.
func impatient(t *testing.T, h *env) (*storagetest.Proxy, *storagetest.DB) {
	t.Helper()
	p, url := storagetest.NewProxy(t, h.URL)
	store := storagetest.OpenWith(t, storage.Options{URL: url, StatementTimeout: time.Second, MaxConns: 3})
	t.Cleanup(p.Break) // otherwise the store waits for dead connections when it closes
	return p, store
}

func TestADeadConnectionDelaysAStep(t *testing.T) {
	testrun.Guard(t)
	for name, what := range map[string]storagetest.Cut{"after the commit": storagetest.Hush,
		"before the server has it": storagetest.Freeze} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			p, far := impatient(t, h)
			d := h.Turn("x")
			d.Writer = far.Writer(d.Record, d.Grant)
			began := time.Now()
			happened := p.CutNext(what, storagetest.Sent.Executes)
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1),
				Events: storagetest.Events(turnkeeper.EventRoundStart)})
			<-happened
			p.FreezeAll()
			d.Finish(t, "done")
			if took := time.Since(began); took > storagetest.Patience {
				t.Errorf("it took %s", took)
			}
			if n := storagetest.One[int](h, "select max(n) from turnkeeper.journal"); n != 2 {
				t.Errorf("%d entries, want 2", n)
			}
		})
	}
}

// A tick that gets no more answers fails. Its transaction on the server, which holds the scheduler's
// lock, ends too.
func TestADeadConnectionDelaysATick(t *testing.T) {
	testrun.Guard(t)
	h := newEnv(t)
	p, far := impatient(t, h)
	ctx := t.Context()
	happened := p.CutNext(storagetest.Freeze, func(s storagetest.Sent) bool { return s.Has("name: LostGrants") })
	began := time.Now()
	err := far.InTick(ctx, func(tick *grants.Tick) error {
		if _, locked, err := tick.Snapshot(ctx, true); err != nil || !locked {
			t.Fatalf("locked %v, error %v", locked, err)
		}
		_, err := tick.Lost(ctx, 10)
		return err
	})
	<-happened
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("the tick ended with %v", err)
	}
	for locked := false; !locked && time.Since(began) < storagetest.Patience; {
		err := far.InTick(ctx, func(tick *grants.Tick) (err error) {
			_, locked, err = tick.Snapshot(ctx, true)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > storagetest.Patience {
		t.Errorf("the scheduler's lock was not free after %s", took)
	}
}

func TestADeadBellIsReplaced(t *testing.T) {
	testrun.Guard(t)
	h := newEnv(t)
	p, url := storagetest.NewProxy(t, h.URL)
	bell := storage.NewNotifier(url, zap.NewNop())
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
	h.Submit("clerk", "", "x")
	awaitRing(t, "a message", inbox)
	p.FreezeAll()
	awaitRing(t, "the bell listens again", inbox)
	h.Submit("clerk", "", "y")
	awaitRing(t, "a message", inbox)
}
