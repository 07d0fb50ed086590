package term

import (
	"time"

	"turnkeeper/internal/words"
)

// A Clock tells times to people, in one zone and from one moment.
type Clock struct {
	Now  time.Time
	Zone *time.Location
}

// At is a time as a table shows it: what the clock showed and how long ago
// that was. The zero time is a dash.
func (c Clock) At(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return c.Moment(t) + " (" + c.Ago(t) + ")"
}

// Moment is a time by the clock, with its date unless that is today's.
func (c Clock) Moment(t time.Time) string {
	t, now := t.In(c.Zone), c.Now.In(c.Zone)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// Ago is how long a time is past, or ahead: "3 min ago", "in 12 s".
func (c Clock) Ago(t time.Time) string { return words.Ago(c.Now, t) }

// Coarse is a duration in its largest unit.
func Coarse(d time.Duration) string { return words.Coarse(d) }

// Exact is a duration with about three digits.
func Exact(d time.Duration) string { return words.Exact(d) }

// Exactly is a time with its date and its offset.
func (c Clock) Exactly(t time.Time) string {
	return t.In(c.Zone).Format("2006-01-02 15:04:05 -07:00") + " (" + c.Ago(t) + ")"
}
