package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/commit"
)

// conditions are the error codes that the functions of the schema raise.
var conditions = map[string]error{
	"TK001": turnkeeper.ErrFenced,
	"TK002": turnkeeper.ErrJournalMoved,
	"TK003": turnkeeper.ErrEmptyMessage,
	"TK004": turnkeeper.ErrInvalidMessage,
	"TK005": turnkeeper.ErrUnknownAgent,
	"TK006": turnkeeper.ErrKeyConflict,
	"TK007": turnkeeper.ErrBadMove,
	"TK008": turnkeeper.ErrWrongState,
	"TK010": turnkeeper.ErrAgentRetired,
	"TK011": asks.ErrNotApproved,
	"TK012": asks.ErrClosed,
	"TK013": turnkeeper.ErrNotFound,
	"TK014": asks.ErrInvalid,
}

const (
	uniqueViolation      = "23505"
	lockNotAvailable     = "55P03"
	serializationFailure = "40001"
	deadlock             = "40P01"
	tooManyConnections   = "53300"
	statementTimeout     = "57014"
)

// A conditionError has the database's message and matches the condition.
type conditionError struct {
	condition error
	message   string
}

func (e *conditionError) Error() string { return e.message }

func (e *conditionError) Is(target error) bool { return target == e.condition }

// Translate converts the error codes of the schema's functions into the errors that
// callers branch on. Other errors keep their message but lose the detail, which may
// contain a row.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return turnkeeper.ErrNotFound
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return plainBreak(err)
	}
	if condition := conditions[pg.Code]; condition != nil {
		return &conditionError{condition, pg.Message}
	}
	return &serverError{code: pg.Code, message: pg.Message, constraint: pg.ConstraintName}
}

// Refusal returns the error that a function of the schema reported by one of its codes.
func Refusal(code, message string) error { return &conditionError{conditions[code], message} }

// Refuse returns an error with its own message that matches the condition.
func Refuse(condition error, format string, args ...any) error {
	return &conditionError{condition, fmt.Sprintf(format, args...)}
}

// A serverError is an error of Postgres without its detail, hint and context, which
// quote rows.
type serverError struct {
	code, message, constraint string
}

func (e *serverError) Error() string {
	s := "database: " + e.message + " (SQLSTATE " + e.code
	if e.constraint != "" {
		s += ", " + e.constraint
	}
	return s + ")"
}

// A brokenError is a connection that broke or could not be opened.
type brokenError struct {
	message string
	err     error
}

func (e *brokenError) Error() string { return e.message }

func (e *brokenError) Unwrap() error { return e.err }

// plainBreak turns errors of a connection into a brokenError, and returns other errors
// unchanged.
func plainBreak(err error) error {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return &brokenError{fmt.Sprintf("the database cannot be reached: %v", PlainConnect(err)), err}
	}
	if pgconn.Timeout(err) && errors.Is(err, context.DeadlineExceeded) {
		return &brokenError{"the database did not answer in time", err}
	}
	_, network := errors.AsType[*net.OpError](err)
	if network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &brokenError{"the connection to the database broke before it answered", err}
	}
	return err
}

// Unanswered reports whether the write that failed with err may have been done, because
// the database did not answer.
func Unanswered(err error) bool {
	if server, ok := errors.AsType[*serverError](err); ok {
		return strings.HasPrefix(server.code, "57P") // the server, or this session, is ended
	}
	return !pgconn.SafeToRetry(err) && (pgconn.Timeout(err) || isBroken(err))
}

func isBroken(err error) bool {
	_, broken := errors.AsType[*brokenError](err)
	return broken
}

// Away reports whether err means that the database is unavailable: it could not be reached, did not answer in
// time, or refused the connection.
func Away(err error) bool {
	if server, ok := errors.AsType[*serverError](err); ok {
		switch server.code[:2] {
		case "08", "28", "3D": // connection, sign-in, no such database
			return true
		default:
			return strings.HasPrefix(server.code, "57P") || server.code == tooManyConnections
		}
	}
	_, network := errors.AsType[*net.OpError](err)
	return network || isBroken(err)
}

// Uncertain reports whether a write may or may not have been done, or was undone for a reason that may pass: the
// connection, a timeout, a lock, resources, or a server that shuts down or has become a standby. The writer must read
// back and retry. Any other error goes to the caller, because a retry cannot help: a value that cannot be decoded, a
// violated constraint, a bug.
func Uncertain(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) && !pgconn.Timeout(err) {
		return false
	}
	if server, ok := errors.AsType[*serverError](err); ok {
		switch class := server.code[:2]; class {
		// connection, resources, shutdown or timeout, system, read-only after failover
		case "08", "53", "57", "58", "25":
			return true
		default:
			return mayBeAnothers(server.code)
		}
	}
	return errors.Is(err, context.DeadlineExceeded) || ofConnection(err)
}

// mayBeAnothers reports whether other transactions may have caused an error of the server.
func mayBeAnothers(code string) bool {
	return code == serializationFailure || code == deadlock || code == lockNotAvailable
}

// ofConnection reports whether an error is of the connection, not of a statement or a row.
func ofConnection(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return network || refused || isBroken(err) || pgconn.Timeout(err) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// KeyTaken reports whether a unique key refused the write: another writer has written it. The keys of ended grants are
// no such keys: whoever ends a grant has locked it.
func KeyTaken(err error) bool {
	server, ok := errors.AsType[*serverError](err)
	return ok && server.code == uniqueViolation && !strings.HasPrefix(server.constraint, "ended_grants_")
}

// LockRefused reports whether a statement ran into the lock timeout.
func LockRefused(err error) bool {
	server, ok := errors.AsType[*serverError](err)
	return ok && server.code == lockNotAvailable
}

// Patiently retries f until ctx ends, as long as its error may pass: see Uncertain. Other errors are returned.
func (s *DB) Patiently(ctx context.Context, f func() error) (err error) {
	op := s.Operation(0)
	defer func() { op.Done(err) }()
	return commit.Patiently(ctx, Uncertain, op.Failed, f)
}
