package app_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/app"
	"turnkeeper/storage/storagetest"
)

// heard calls hear after each entry of a log.
type heard struct {
	zapcore.Core
	hear func(zapcore.Entry)
}

func (c *heard) With(fields []zapcore.Field) zapcore.Core { return &heard{c.Core.With(fields), c.hear} }

func (c *heard) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *heard) Write(e zapcore.Entry, fields []zapcore.Field) error {
	err := c.Core.Write(e, fields)
	c.hear(e)
	return err
}

// logsUntil runs the world's worker until it has logged a message, and returns its warnings and the messages
// about what it has deleted.
func (w *settingsWorld) logsUntil(message string) (warnings, deleted []string) {
	w.t.Helper()
	core, logged := observer.New(zap.InfoLevel)
	seen := make(chan struct{})
	once := sync.OnceFunc(func() { close(seen) })
	log := zap.New(&heard{core, func(e zapcore.Entry) {
		if e.Message == message {
			once()
		}
	}})
	soft, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.RunWorker(soft, soft, w.cfg, log, func(app.Ready) {}) }()
	select {
	case <-seen:
	case err := <-ended:
		w.t.Fatalf("the worker did not start: %v", err)
	case <-time.After(patience):
		w.t.Fatalf("the worker never says %q: %v", message, logged.All())
	}
	stop()
	w.t.Logf("the worker ended: %v", <-ended) // it was told to stop at once
	for _, e := range logged.All() {
		text := e.Message
		for _, key := range []string{"messages", "turns"} {
			if value, ok := e.ContextMap()[key]; ok {
				text += fmt.Sprintf("; %s %v", key, value)
			}
		}
		switch {
		case strings.HasPrefix(text, "this worker runs as root") || strings.HasPrefix(text, "stopped at once"):
		case e.Level >= zap.WarnLevel:
			warnings = append(warnings, text)
		case strings.HasPrefix(text, "deleted old "):
			deleted = append(deleted, text)
		}
	}
	return warnings, deleted
}

// TestAHealthyWorkerWarnsOfNothing runs a worker with old records of each class: it deletes them, says how many, and
// warns of nothing.
func TestAHealthyWorkerWarnsOfNothing(t *testing.T) {
	t.Parallel()
	w := newSettingsWorld(t, "retention: {messages: 250h, outputs: 10h, events: 30h, leases: 50h}",
		"models: {played/default: {context_window: 100000}}")
	for name := range agedHours {
		w.write(strings.ReplaceAll(name, ".", "-"), "")
	}
	w.age()
	warnings, deleted := w.logsUntil("deleted old leases")
	if len(warnings) > 0 {
		t.Errorf("it warns: %q", warnings)
	}
	want := []string{"deleted old messages; messages 3; turns 3", "deleted old outputs; turns 8",
		"deleted old events; turns 5", "deleted old leases; turns 2"}
	for i, text := range want {
		if i >= len(deleted) || deleted[i] != text {
			t.Errorf("deleted: %q, want %q", deleted, want)
			break
		}
	}
	if n := storagetest.One[int](w.db, "select count(*)::int from turnkeeper.messages"); n != 9 {
		t.Errorf("%d messages are left", n)
	}
}
