package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
)

// Which errors of the server a writer waits out. The classes are those of Postgres' documentation, appendix A.
func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct{ passes, key, lock bool }{
		"08006": {passes: true},             // connection failure
		"25006": {passes: true},             // read-only transaction: the server is a standby now
		"53100": {passes: true},             // disk full
		"53300": {passes: true},             // too many connections
		"57014": {passes: true},             // query cancelled: a timeout
		"57P01": {passes: true},             // the server is shut down
		"58030": {passes: true},             // input or output error
		"40001": {passes: true},             // serialization failure
		"40P01": {passes: true},             // deadlock
		"55P03": {passes: true, lock: true}, // lock timeout
		"40003": {},                         // statement completion unknown
		"55006": {},                         // object in use
		"23505": {key: true},                // unique violation
		"23503": {},                         // foreign key violation
		"22001": {},                         // value too long
		"42P01": {},                         // undefined table
		"28P01": {},                         // wrong password
	} {
		err := fmt.Errorf("writing: %w", &serverError{code: code})
		if got := Uncertain(err); got != want.passes {
			t.Errorf("%s passes: %v", code, got)
		}
		if got := KeyTaken(err); got != want.key {
			t.Errorf("%s is a taken key: %v", code, got)
		}
		if got := LockRefused(err); got != want.lock {
			t.Errorf("%s is a refused lock: %v", code, got)
		}
	}
	if KeyTaken(&serverError{code: "23505", constraint: "ended_grants_grant_id_key"}) {
		t.Error("a grant that has ended already counts as another writer's write")
	}
	for _, c := range []struct {
		err    error
		passes bool
	}{
		{nil, false},
		{context.Canceled, false},
		{context.DeadlineExceeded, true},
		{turnkeeper.ErrFenced, false},
		{turnkeeper.ErrJournalMoved, false},
		{turnkeeper.ErrNotFound, false},
		{io.ErrUnexpectedEOF, true},
		{&brokenError{"the connection broke", errors.New("broken")}, true},
		{retryable{errors.New("nothing was sent"), true}, true},
		{errors.New("an error of this program"), false},
		{pgx.ScanArgError{Err: errors.New("a value that cannot be decoded")}, false},
		{errUndone, false},
	} {
		if got := Uncertain(c.err); got != c.passes || KeyTaken(c.err) || LockRefused(c.err) {
			t.Errorf("%v passes: %v", c.err, got)
		}
	}
}

// A retryable is an error that says itself whether anything was sent.
type retryable struct {
	error
	safe bool
}

func (e retryable) SafeToRetry() bool { return e.safe }
func (e retryable) Unwrap() error     { return e.error }

func TestWhatWasNotAnswered(t *testing.T) {
	t.Parallel()
	broken := &brokenError{"the connection broke", errors.New("broken")}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the server is shut down":       {&serverError{code: "57P01"}, true},
		"a statement was cancelled":     {&serverError{code: "57014"}, false},
		"a key was taken":               {&serverError{code: "23505"}, false},
		"the connection broke":          {broken, true},
		"nothing was sent":              {retryable{broken, true}, false},
		"something was sent":            {retryable{broken, false}, true},
		"an error of the program":       {errors.New("other"), false},
		"cancelled, before it was sent": {context.Canceled, false},
	} {
		if got := Unanswered(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := committed(pgconn.NewCommandTag("COMMIT")); err != nil {
		t.Error(err)
	}
	if err := committed(pgconn.NewCommandTag("ROLLBACK")); !errors.Is(err, errUndone) {
		t.Errorf("a transaction that the server undid: %v", err)
	}
}
