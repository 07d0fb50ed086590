package storage

import "turnkeeper/storage/internal/pg"

// Unanswered reports whether the write that failed with err may have been done, because the
// database did not answer.
func Unanswered(err error) bool { return pg.Unanswered(err) }

// Away reports whether err means that the database is unavailable: it could not be reached, did not
// answer in time, or refused the connection.
func Away(err error) bool { return pg.Away(err) }

// Passes reports whether err is temporary: the database is unavailable, slow or busy, and a retry
// may succeed.
func Passes(err error) bool { return pg.Uncertain(err) }
