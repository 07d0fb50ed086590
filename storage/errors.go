package storage

import "turnkeeper/storage/internal/pg"

// Causes of failed connections that have no SQLSTATE.
const (
	CauseRefused     = pg.CauseRefused     // nothing listens at the address
	CauseName        = pg.CauseName        // the host's name could not be resolved
	CauseUnreachable = pg.CauseUnreachable // no route to the address
	CauseTimeout     = pg.CauseTimeout     // nothing answered
	CauseTLS         = pg.CauseTLS         // no agreement about TLS
	CauseClosed      = pg.CauseClosed      // the server closed the connection
	CauseURL         = pg.CauseURL         // the connection string cannot be parsed
)

// Cause returns the SQLSTATE of an error of the database, or one of the causes above; empty: it is another error.
func Cause(err error) string { return pg.Cause(err) }

// Unanswered reports whether the write that failed with err may have been done, because the
// database did not answer.
func Unanswered(err error) bool { return pg.Unanswered(err) }

// Away reports whether err means that the database is unavailable: it could not be reached, did not
// answer in time, or refused the connection.
func Away(err error) bool { return pg.Away(err) }

// Passes reports whether err is temporary: the database is unavailable, slow or busy, and a retry
// may succeed.
func Passes(err error) bool { return pg.Uncertain(err) }
