package app_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// settings returns the settings of a worker on a new database with one agent.
func settings(t *testing.T, agent string) *config.Config {
	t.Helper()
	cfg := config.Default()
	url, err := config.NewDatabaseURL(storagetest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DatabaseURL = url
	cfg.AgentsDir = t.TempDir()
	cfg.Listen = "127.0.0.1:0"
	if err := os.WriteFile(filepath.Join(cfg.AgentsDir, "helper.md"), []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startWorker runs a worker until the test ends, and returns when it is ready.
func startWorker(t *testing.T, cfg *config.Config) {
	t.Helper()
	soft, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunWorker(soft, context.Background(), cfg, zap.NewNop(), func(app.Ready) { close(ready) })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the worker did not start: %v", err)
	}
}

// patience is the timeout of every wait for an event, far longer than any takes.
const patience = time.Minute

// awaitReply waits for the reply to a message, using the doorbell and polling.
func awaitReply(t *testing.T, store *operate.Store, url string, id turnkeeper.MessageID) turnkeeper.Reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bell := storage.NewNotifier(url, zap.NewNop())
	rings, unsubscribe := bell.Subscribe(storage.TopicTurns)
	defer unsubscribe()
	go bell.Run(ctx)
	for {
		reply, err := store.ReplyTo(ctx, id)
		if err == nil {
			return reply
		}
		if !errors.Is(err, turnkeeper.ErrNotFound) {
			t.Fatal(err)
		}
		select {
		case <-rings:
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatalf("message %d got no reply", id)
		}
	}
}

const clockAgent = `---
description: Tells the time.
tools: [clock, note_write, note_read]
---
You are a helper.
`

func TestAMessageBecomesOneReply(t *testing.T) {
	cfg := settings(t, clockAgent)
	startWorker(t, cfg)
	store := storagetest.Open(t, cfg.DatabaseURL.Reveal())
	id, err := store.Enqueue(t.Context(), turnkeeper.Submission{Agent: "helper", Body: "What time is it?"})
	if err != nil {
		t.Fatal(err)
	}
	reply := awaitReply(t, store.Store, cfg.DatabaseURL.Reveal(), id)
	if reply.Outcome != turnkeeper.TurnSucceeded {
		t.Errorf("the reply is %s: %s", reply.Outcome, reply.Body)
	}
	view, err := store.ViewTurn(t.Context(), reply.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if view.Turn.InferenceRounds < 2 || view.Turn.ExecutedCalls < 1 || view.Turn.StopReason != turnkeeper.StopNone {
		t.Errorf("the turn had %d rounds, %d calls, stop reason %s", view.Turn.InferenceRounds, view.Turn.ExecutedCalls,
			view.Turn.StopReason)
	}
	t.Logf("reply: %s", reply.Body)
}
