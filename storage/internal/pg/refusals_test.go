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

var (
	errFull     = &serverError{code: "53100", message: "no space left"}
	errReadOnly = &serverError{code: "25006", message: "read-only"}
)

// watched returns a DB with its log.
func watched() (*DB, *observer.ObservedLogs) {
	core, logged := observer.New(zap.InfoLevel)
	return &DB{Refusals: newRefusals(Options{Log: zap.New(core)})}, logged
}

func messages(logged *observer.ObservedLogs) string {
	var lines []string
	for _, l := range logged.TakeAll() {
		lines = append(lines, l.Message)
	}
	return strings.Join(lines, "|")
}

// TestOnlyASuccessEndsARefusal gives up writes that the server refuses. The refusal lasts until a write succeeds.
func TestOnlyASuccessEndsARefusal(t *testing.T) {
	const over = "the database accepts all writes again"
	gaveUp := errors.New("the lease is over")
	for name, c := range map[string]struct {
		then func(db *DB)
		over bool
	}{
		"nothing": {func(*DB) {}, false},
		"another is given up": {func(db *DB) {
			op := db.Operation(8)
			op.Failed(errFull)
			op.Done(gaveUp)
		}, false},
		"a read succeeds": {func(db *DB) {
			_ = db.Patiently(context.Background(), func() error { return nil })
		}, false},
		"a write fails":            {func(db *DB) { db.Operation(8).Done(gaveUp) }, false},
		"a write of a turn":        {func(db *DB) { db.Operation(8).Done(nil) }, true},
		"a trial write is refused": {func(db *DB) { db.Refusals.Recheck(func() error { return errFull }) }, false},
		"a trial write":            {func(db *DB) { db.Refusals.Recheck(func() error { return nil }) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, logged := watched()
				op := db.Operation(7)
				op.Failed(errFull)
				op.Failed(errFull)
				op.Done(gaveUp)
				time.Sleep(time.Minute) //nolint:forbidigo // of the bubble
				c.then(db)
				said := strings.Contains(messages(logged), over)
				now := db.Refusals.Now()
				if said != c.over || len(now) > 0 == c.over {
					t.Errorf("said that it is over: %v, refused %+v", said, now)
				}
				if !c.over && (len(now) != 1 || now[0].Turn != 0 || now[0].For < time.Minute ||
					now[0].SQLState != "53100") {
					t.Errorf("refused %+v", now)
				}
			})
		})
	}
}

// TestATrialWrite checks that nothing is tried while all writes succeed or are being retried.
func TestATrialWrite(t *testing.T) {
	db, _ := watched()
	tries := 0
	try := func() error { tries++; return nil }
	db.Refusals.Recheck(try)
	op := db.Operation(7)
	op.Failed(errFull)
	db.Refusals.Recheck(try)
	op.Done(nil)
	db.Refusals.Recheck(try)
	if tries > 0 {
		t.Errorf("%d trial writes", tries)
	}
}

// TestRepeatedWrites notes a write that is tried again from time to time, such as a heartbeat.
func TestRepeatedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, logged := watched()
		beats := db.Operation(0)
		for range 2 {
			beats.Note(errReadOnly)
			time.Sleep(6 * time.Second) //nolint:forbidigo // of the bubble
		}
		if now := db.Refusals.Now(); len(now) != 1 || now[0].SQLState != "25006" || now[0].For != 12*time.Second ||
			now[0].Attempts != 2 {
			t.Errorf("refused %+v", now)
		}
		beats.Note(nil)
		beats.Note(errReadOnly)
		if now := db.Refusals.Now(); len(now) != 1 || now[0].For != 0 || now[0].Attempts != 1 {
			t.Errorf("refused again: %+v", now)
		}
		beats.Note(errAway)
		beats.Note(nil)
		if now := db.Refusals.Now(); len(now) > 0 {
			t.Errorf("refused %+v", now)
		}
		if got, want := messages(logged),
			"the database refuses writes; retrying|the database accepts all writes again"; got != want {
			t.Errorf("logged %s", got)
		}
	})
}

// TestQuietLogTellsErrorsApart logs refusals that differ in what was refused, or why.
func TestQuietLogTellsErrorsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		log := zap.New(core, zap.WrapCore(QuietLog))
		full, readOnly := zap.Error(fmt.Errorf("writing: %w", errFull)),
			zap.Error(fmt.Errorf("writing: %w", errReadOnly))
		seven, eight := log.With(zap.Int64("turn_id", 7)), log.With(zap.Int64("turn_id", 8))
		for range 3 {
			seven.Warn("cannot write", full, zap.Int("attempt", logged.Len()))
			seven.Warn("cannot write", readOnly)
			eight.Warn("cannot write", full)
			eight.Warn("cannot write", full, zap.Int64("message_id", 3))
			seven.Warn("cannot read", full)
		}
		if logged.Len() != 5 {
			t.Errorf("logged %d lines: %v", logged.Len(), logged.All())
		}
	})
}

// TestATrialThatIsOvertaken refuses a trial write while a write of a turn succeeds: nothing is refused any more.
func TestATrialThatIsOvertaken(t *testing.T) {
	db, _ := watched()
	op := db.Operation(7)
	op.Failed(errFull)
	op.Done(errors.New("the lease is over"))
	db.Refusals.Recheck(func() error {
		db.Operation(8).Done(nil)
		return errFull
	})
	if now := db.Refusals.Now(); len(now) > 0 {
		t.Errorf("still refused: %+v", now)
	}
}
