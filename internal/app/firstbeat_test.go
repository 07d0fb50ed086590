package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
)

// TestTheFirstHeartbeat uses a database that answers late, never, or with an error.
func TestTheFirstHeartbeat(t *testing.T) {
	for name, c := range map[string]struct {
		errs    []error // of the attempts, in order
		stopped bool    // the worker is told to stop at the last attempt
		tries   int
		fails   bool
	}{
		"at once":    {tries: 1},
		"slow":       {errs: []error{context.DeadlineExceeded, context.DeadlineExceeded}, tries: 3},
		"it refuses": {errs: []error{turnkeeper.ErrNotFound}, tries: 1, fails: true},
		"told to stop": {errs: []error{context.DeadlineExceeded, context.DeadlineExceeded}, stopped: true,
			tries: 2, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				tries := 0
				err := firstBeat(ctx, func(context.Context) error {
					tries++
					if tries > len(c.errs) {
						return nil
					}
					if c.stopped && tries == len(c.errs) {
						stop()
					}
					return c.errs[tries-1]
				}, zap.NewNop())
				if tries != c.tries || (err != nil) != c.fails {
					t.Errorf("%d tries, %v", tries, err)
				}
			})
		})
	}
}

type encoded string

func (e encoded) Encoding(context.Context) (string, error) {
	if e == "" {
		return "", errors.New("away")
	}
	return string(e), nil
}

func TestADatabaseThatIsNotUTF8IsWarnedOf(t *testing.T) {
	for encoding, lines := range map[encoded]int{"UTF8": 0, "": 0, "SQL_ASCII": 1, "LATIN1": 1} {
		core, logged := observer.New(zap.WarnLevel)
		warnOfEncoding(t.Context(), encoding, zap.New(core))
		if logged.Len() != lines {
			t.Errorf("%q: %v", encoding, logged.All())
		}
	}
}
