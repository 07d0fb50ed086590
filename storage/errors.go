package storage

import "turnkeeper/storage/internal/pg"

// Unanswered reports whether the write that err is of may have been done all the same: the
// database did not come to answer.
func Unanswered(err error) bool { return pg.Unanswered(err) }

// Away reports whether the database could not be reached, did not answer in time, or refused the
// connection: the same may be answered when it is back.
func Away(err error) bool { return pg.Away(err) }

// Passes reports whether err is of a database that is away, slow or busy: the same may succeed
// later.
func Passes(err error) bool { return pg.Uncertain(err) }
