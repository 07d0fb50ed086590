package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"turnkeeper/internal/granting"
)

// An asideRow says how often a subject has failed in a row, and when it is tried again.
type asideRow struct {
	failures int
	nextTry  time.Time
}

// Pauses before a subject that failed is tried again: the first, which doubles with each failure, and the longest.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// errRow is the error of a row that Fail made fail.
var errRow = errors.New("the row fails")

// Fail makes everything that a tick does with a row of a store fail, or ends that. Only tests can.
func Fail(_ testing.TB, s *Store, row granting.Subject, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fails {
		s.failing[row] = true
	} else {
		delete(s.failing, row)
	}
}

// failure returns an error if the row fails.
func failure(s *Store, row granting.Subject) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing[row] {
		return errRow
	}
	return nil
}

// asideRows are the rows that are set aside.
type asideRows map[granting.Subject]asideRow

// has reports whether a subject is set aside now.
func (a asideRows) has(subject granting.Subject, now time.Time) bool {
	return a[subject].nextTry.After(now)
}

func (a asideRows) hasTurn(turn *turnRow, now time.Time) bool {
	return a.has(granting.Subject{Kind: granting.AsideTurn, ID: strconv.FormatInt(int64(turn.ID), 10)}, now)
}

// put sets a subject aside.
func (a asideRows) put(subject granting.Subject, now time.Time) {
	row := a[subject]
	pause := firstPause
	for range row.failures {
		pause = min(2*pause, longestPause)
	}
	if subject.Kind == granting.AsideStep || subject.Kind == granting.AsideTick {
		pause = 0
	}
	a[subject] = asideRow{row.failures + 1, now.Add(pause)}
}

// Try runs a part of the tick. If a row of it fails, Try undoes it and sets its subject aside, if it has only one.
func (t *tick) Try(_ context.Context, subjects []granting.Subject, part func() error) (failed, err error) {
	before := *t
	before.freed, before.again, before.gone = maps.Clone(t.freed), maps.Clone(t.again), maps.Clone(t.gone)
	before.ends = maps.Clone(t.ends)
	failed = part()
	switch {
	case failed == nil:
		t.later(func(*[]Bell) {
			for _, subject := range subjects {
				delete(t.s.state.aside, subject)
			}
		})
		return nil, nil
	case !errors.Is(failed, errRow):
		return nil, failed
	}
	*t = before
	if len(subjects) == 1 {
		t.later(func(*[]Bell) { t.s.state.aside.put(subjects[0], t.s.now()) })
	}
	return failed, nil
}

// ForgetAside forgets the turns and messages that are over.
func (t *tick) ForgetAside(context.Context) error {
	t.later(func(*[]Bell) {
		maps.DeleteFunc(t.s.state.aside, func(subject granting.Subject, _ asideRow) bool {
			return needsNoWork(&t.s.state, subject)
		})
	})
	return nil
}

// needsNoWork reports whether a turn has ended, or a message does not wait.
func needsNoWork(s *state, subject granting.Subject) bool {
	id, err := strconv.Atoi(subject.ID)
	switch {
	case err == nil && subject.Kind == granting.AsideTurn:
		return !slices.ContainsFunc(slices.Collect(maps.Values(s.open)), func(turn *turnRow) bool {
			return int(turn.ID) == id
		})
	case err == nil && subject.Kind == granting.AsideMessage:
		for _, waiting := range s.waiting {
			for _, m := range waiting {
				if int(m.ID) == id {
					return false
				}
			}
		}
		return true
	}
	return subject.Kind == granting.AsideStep || subject.Kind == granting.AsideTick
}

// TickFailed does nothing: nobody asks this store how its ticks are.
func (*Conn) TickFailed(context.Context, error) error { return nil }
