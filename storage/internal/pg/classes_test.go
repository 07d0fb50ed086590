package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
)

// Which errors a writer waits out, which set a row aside, and which mean that the database is away. The classes are
// those of Postgres' documentation, appendix A.
func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct{ passes, key, lock, row, away bool }{
		"08006": {passes: true, away: true},            // connection failure
		"25006": {passes: true},                        // read-only transaction: the server is a standby now
		"53100": {passes: true},                        // disk full
		"53300": {passes: true, away: true},            // too many connections
		"57014": {passes: true, row: true},             // query cancelled: a timeout
		"57P01": {passes: true, away: true},            // the server is shut down
		"58030": {passes: true},                        // input or output error
		"40001": {passes: true, row: true},             // serialization failure
		"40P01": {passes: true, row: true},             // deadlock
		"55P03": {passes: true, lock: true, row: true}, // lock timeout
		"40003": {row: true},                           // statement completion unknown
		"55006": {row: true},                           // object in use
		"23505": {key: true, row: true},                // unique violation
		"23503": {row: true},                           // foreign key violation
		"22001": {row: true},                           // value too long
		"42P01": {row: true},                           // undefined table
		"28P01": {row: true, away: true},               // wrong password
		"3D000": {row: true, away: true},               // no such database
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
		if got := BelongsToRow(err); got != want.row {
			t.Errorf("%s belongs to a row: %v", code, got)
		}
		if got := Away(err); got != want.away {
			t.Errorf("%s means that the database is away: %v", code, got)
		}
	}
	if KeyTaken(&serverError{code: "23505", constraint: "ended_grants_pkey"}) {
		t.Error("a grant that has ended already counts as another writer's write")
	}
	for _, c := range []struct {
		err               error
		passes, row, away bool
	}{
		{nil, false, false, false},
		{context.Canceled, false, false, false},
		{context.DeadlineExceeded, true, false, false},
		{turnkeeper.ErrFenced, false, true, false},
		{turnkeeper.ErrJournalMoved, false, true, false},
		{turnkeeper.ErrNotFound, false, true, false},
		{io.EOF, true, false, false},
		{io.ErrUnexpectedEOF, true, false, false},
		{net.ErrClosed, true, false, false},
		{&net.OpError{Op: "read", Err: errors.New("broken")}, true, false, true},
		{&brokenError{"the connection broke", errors.New("broken")}, true, false, true},
		{retryable{errors.New("nothing was sent"), true}, true, false, false},
		{errors.New("an error of this program"), false, true, false},
		{pgx.ScanArgError{Err: errors.New("a value that cannot be decoded")}, false, true, false},
		{errUndone, false, true, false},
	} {
		for _, err := range []error{c.err, wrapped(c.err)} {
			if got := Uncertain(err); got != c.passes || KeyTaken(err) || LockRefused(err) {
				t.Errorf("%v passes: %v", err, got)
			}
			if got := BelongsToRow(err); got != c.row {
				t.Errorf("%v belongs to a row: %v", err, got)
			}
			if got := Away(err); got != c.away {
				t.Errorf("%v means that the database is away: %v", err, got)
			}
		}
	}
}

// TestBrokenConnectionsAreTranslated translates each error of a connection into one that says that the database is
// away, and leaves others as they are.
func TestBrokenConnectionsAreTranslated(t *testing.T) {
	t.Parallel()
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, &net.OpError{Op: "read",
		Err: errors.New("broken")}} {
		if got := Translate(wrapped(err)); !Away(got) || !Uncertain(got) || !errors.Is(got, err) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
	for _, err := range []error{net.ErrClosed, context.Canceled, context.DeadlineExceeded, errUndone} {
		if err = wrapped(err); Translate(err) != err { //nolint:errorlint // the same one
			t.Errorf("%v becomes %v", err, Translate(err))
		}
	}
	if got := Translate(wrapped(pgx.ErrNoRows)); !errors.Is(got, turnkeeper.ErrNotFound) {
		t.Errorf("no row becomes %v", got)
	}
}

// wrapped returns an error that wraps another one, if there is one.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading: %w", err)
}

// TestWhatIsLoggedOfRowsSetAside raises the warnings of the function turnkeeper.put_aside, and others. The scheduler
// logs failures of its ticks itself.
func TestWhatIsLoggedOfRowsSetAside(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.DebugLevel)
	handle := logAside(zap.New(core))
	for _, n := range []pgconn.Notice{
		{Code: "TK020", TableName: "turn"}, {Code: "TK020", TableName: "step"}, {Code: "TK020", TableName: "tick"},
		{Code: "TK021", TableName: "turn"}, {Code: "00000"},
	} {
		n.Message, n.ColumnName, n.ConstraintName, n.DataTypeName = "it broke", "7", "22012", "4"
		handle(nil, &n)
	}
	var lines []string
	for _, l := range logged.All() {
		lines = append(lines, fmt.Sprint(l.Level, ": ", l.Message, " ", l.ContextMap()))
	}
	fields := "map[error:it broke failures:4 id:7 kind:%s sqlstate:22012]"
	want := []string{"error: a row failed and is set aside; the others go on " + fmt.Sprintf(fields, "turn"),
		"error: a step of the scheduler's tick failed; the others go on " + fmt.Sprintf(fields, "step")}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
