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
	"TK010": turnkeeper.ErrAgentRetired,
}

const (
	uniqueViolation    = "23505"
	lockNotAvailable   = "55P03"
	tooManyConnections = "53300"
)

// A conditionError has the database's own sentence and matches the condition.
type conditionError struct {
	condition error
	message   string
}

func (e *conditionError) Error() string { return e.message }

func (e *conditionError) Is(target error) bool { return target == e.condition }

// Translate turns what the database raised into what callers branch on. Other
// errors keep their message, without the detail that may hold a row's content.
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

// Refuse returns an error with a sentence of its own that matches the condition.
func Refuse(condition error, format string, args ...any) error {
	return &conditionError{condition, fmt.Sprintf(format, args...)}
}

// A serverError is an error of Postgres without its detail, hint and context:
// those quote rows.
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

// A brokenError is a connection that broke, or could not be made, in plain words.
type brokenError struct {
	sentence string
	err      error
}

func (e *brokenError) Error() string { return e.sentence }

func (e *brokenError) Unwrap() error { return e.err }

// plainBreak puts what happened to a connection into plain words; other errors
// are returned as they are.
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

// Unanswered says of a write's error that the write may have been done all the
// same: the database did not come to answer.
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

// Away says that the database could not be reached, did not answer in time, or refused the connection: the
// same may be answered when it is back.
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

// Uncertain says that a write may or may not have been done, or was undone for
// a reason that passes: the writer reads back and tries again.
func Uncertain(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) && !pgconn.Timeout(err) {
		return false
	}
	if server, ok := errors.AsType[*serverError](err); ok {
		switch class := server.code[:2]; class {
		case "08", "53", "57", "58", "25": // connection, resources, shutdown or timeout, system, read-only after failover
			return true
		default:
			return server.code == "40001" || server.code == "40P01" || server.code == lockNotAvailable // serialization, deadlock, lock timeout
		}
	}
	for _, condition := range conditions {
		if errors.Is(err, condition) {
			return false
		}
	}
	return !errors.Is(err, turnkeeper.ErrNotFound)
}

// KeyTaken says that a unique key refused the write.
func KeyTaken(err error) bool {
	server, ok := errors.AsType[*serverError](err)
	return ok && server.code == uniqueViolation
}

// LockRefused says that a statement waited for a lock as long as it may.
func LockRefused(err error) bool {
	server, ok := errors.AsType[*serverError](err)
	return ok && server.code == lockNotAvailable
}

// Patiently does f again as long as the reason that it failed for passes.
func Patiently(ctx context.Context, f func() error) error {
	return commit.Patiently(ctx, Uncertain, f)
}
