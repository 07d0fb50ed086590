package words

import "time"

// A Clock formats times in a zone, relative to Now.
type Clock struct {
	Now  time.Time
	Zone *time.Location
}

// At formats a time for a table: its moment and how long ago that was. The
// zero time is a dash.
func (c Clock) At(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return c.Moment(t) + " (" + c.Ago(t) + ")"
}

// Moment formats a time of today as a time of day, and any other with its date.
func (c Clock) Moment(t time.Time) string {
	t, now := t.In(c.Zone), c.Now.In(c.Zone)
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04")
}

// Ago formats a time relative to Now: "3 min ago", "in 12 s"; the zero time as "-".
func (c Clock) Ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Ago(c.Now, t)
}

// Exactly formats a time with its date and offset.
func (c Clock) Exactly(t time.Time) string {
	return t.In(c.Zone).Format("2006-01-02 15:04:05 -07:00") + " (" + c.Ago(t) + ")"
}
