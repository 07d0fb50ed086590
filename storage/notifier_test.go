package storage_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

func awaitRing(t *testing.T, what string, rings <-chan struct{}) {
	t.Helper()
	select {
	case <-rings:
	case <-time.After(storagetest.Patience):
		t.Fatalf("no ring: %s", what)
	}
}

func TestBell(t *testing.T) {
	h := newEnv(t)
	bell := storage.NewNotifier(h.URL, zap.NewNop())
	inbox, _ := bell.Subscribe(storage.TopicInbox)
	turns, _ := bell.Subscribe(storage.TopicTurns)
	freed, _ := bell.Subscribe(storage.TopicFreed)
	gone, cancel := bell.Subscribe(storage.TopicInbox)
	cancel()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		bell.Run(ctx)
		close(ended)
	}()
	awaitRing(t, "all ring when the bell begins to listen", inbox)
	awaitRing(t, "all ring when the bell begins to listen", turns)
	awaitRing(t, "all ring when the bell begins to listen", freed)

	h.Submit("clerk", "", "x")
	awaitRing(t, "a message", inbox)
	quiet(t, "turns, for a message", turns)
	d := h.Dispatch("w")[0]
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1)})
	quiet(t, "the inbox, for a step", inbox)
	d.Finish(t, "done")
	awaitRing(t, "the end of a turn", turns)
	awaitRing(t, "a lane became free", freed)
	quiet(t, "the inbox, for a turn that is over", inbox)

	h.Submit("clerk", "", "y")
	awaitRing(t, "a message", inbox)
	back := turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued}}
	if err := h.Dispatch("w")[0].Append(t.Context(), back, turnlog.Consequence{Log: "handed_back"}); err != nil {
		t.Fatal(err)
	}
	awaitRing(t, "a turn goes back into the queue", inbox)
	quiet(t, "room alone, for a turn that goes back", freed)

	if n := storagetest.One[int](h,
		"select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%' and datname = current_database()) k"); n != 1 {
		t.Fatalf("%d listening sessions, want 1", n)
	}
	awaitRing(t, "all ring after the connection broke", inbox)
	awaitRing(t, "all ring after the connection broke", turns)
	for name, ring := range map[string]func() error{
		"registered agents": func() error { h.Register("clerk", false); return nil },
		"resumed":           func() error { return h.ResumeScheduler(t.Context()) },
		"new settings":      func() error { return h.SetScheduler(t.Context(), time.Second, 0) },
	} {
		if err := ring(); err != nil {
			t.Fatal(err)
		}
		awaitRing(t, name, inbox)
	}
	quiet(t, "a subscription that was ended", gone)
	stop()
	<-ended
}

// quiet fails the test if a doorbell rang. The caller has waited for a later notification, so all
// earlier ones have arrived, because notifications arrive in order.
func quiet(t *testing.T, what string, rings <-chan struct{}) {
	t.Helper()
	select {
	case <-rings:
		t.Errorf("rang: %s", what)
	default:
	}
}
