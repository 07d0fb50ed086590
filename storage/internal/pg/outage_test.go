package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

var errAway = &brokenError{"the connection broke", errors.New("broken")}

// TestWhatAnOutageLogs lets many parts of a process fail for 25 s: the log has the beginning, a line every ten seconds,
// and the end.
func TestWhatAnOutageLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		o := NewOutage(zap.New(core))
		ctx := t.Context()
		o.saw(ctx, nil)
		for range 250 {
			o.saw(ctx, fmt.Errorf("querying: %w", errAway))
			o.saw(ctx, nil) // an old connection still answers
			o.saw(ctx, context.Canceled)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // of the bubble
		}
		o.saw(ctx, nil)
		time.Sleep(time.Second) //nolint:forbidigo // of the bubble
		o.saw(ctx, &serverError{code: "23505"})
		o.saw(ctx, nil)
		var lines []string
		for _, l := range logged.All() {
			lines = append(lines, fmt.Sprint(l.Message, " ", l.ContextMap()["for"]))
		}
		want := "the database is unavailable; retrying <nil>|the database is still unavailable; retrying 10s|" +
			"the database is still unavailable; retrying 20s|the database is available again 24.9s"
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("logged %s\nwant   %s", got, want)
		}
	})
}

// TestWhatDoesNotBeginAnOutage shows outcomes that say nothing about the database: the caller's context, and other
// errors.
func TestWhatDoesNotBeginAnOutage(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	o := NewOutage(zap.New(core))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o.saw(ended, errAway)
	o.saw(t.Context(), context.Canceled)
	o.saw(t.Context(), &serverError{code: "53100"})
	(*Outage)(nil).saw(t.Context(), errAway)
	if logged.Len() > 0 {
		t.Errorf("logged %v", logged.All())
	}
}

// TestQuietLog logs errors of a database that is away, of one that refuses, and others.
func TestQuietLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, want := range map[string]string{
			"info":  "warn: refused warn: other warn: no error warn: also refused warn: refused info: fine",
			"debug": "debug: away warn: refused debug: refused warn: other warn: no error warn: also refused warn: refused info: fine",
		} {
			at, err := zap.ParseAtomicLevel(level)
			if err != nil {
				t.Fatal(err)
			}
			core, logged := observer.New(at)
			log := zap.New(core, zap.WrapCore(QuietLog)).With(zap.String("agent", "clerk"))
			refused := fmt.Errorf("writing: %w", &serverError{code: "53100"})
			log.Warn("away", zap.Error(fmt.Errorf("reading: %w", errAway)))
			log.Warn("refused", zap.Error(refused))
			log.Warn("refused", zap.Error(refused))
			log.Warn("other", zap.Error(&serverError{code: "23505"}))
			log.Warn("no error")
			log.Warn("also refused", zap.Error(refused))
			time.Sleep(refusalLogPause) //nolint:forbidigo // of the bubble
			log.Warn("refused", zap.Error(refused))
			log.Info("fine", zap.Error(errAway))
			var lines []string
			for _, l := range logged.All() {
				lines = append(lines, l.Level.String()+": "+l.Message)
				if l.ContextMap()["agent"] != "clerk" {
					t.Errorf("%s has lost its fields", l.Message)
				}
			}
			if got := strings.Join(lines, " "); got != want {
				t.Errorf("at level %s\nlogged %s\nwant   %s", level, got, want)
			}
		}
	})
}
