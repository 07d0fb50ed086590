package views

import (
	"time"

	"turnkeeper/internal/granting"
)

// An Aside is a row that failed and is set aside.
type Aside struct {
	Kind     string    `json:"kind"`
	ID       string    `json:"id"`
	Since    time.Time `json:"since"` // the first failure in a row
	Failures int       `json:"failures"`
	LastAt   time.Time `json:"last_failed_at"`
	NextTry  time.Time `json:"next_try_at"`
	Code     string    `json:"sqlstate"` // of the newest failure; empty: it was not the database's
	Error    string    `json:"error"`    // likewise
}

// OfAside returns the view of a row that is set aside.
func OfAside(a granting.Aside) Aside {
	return Aside{string(a.Kind), a.ID, a.Since, a.Failures, a.LastAt, a.NextTry, a.Code, a.Error}
}
