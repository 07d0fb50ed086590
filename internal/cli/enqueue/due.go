package enqueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/storage/operate"
)

// A due is the earliest time to run a message, as given on the command line.
type due struct {
	at    string        // --at; empty: not given
	delay time.Duration // --delay
	given bool          // --at or --delay was given
}

// check validates the flags and sets given.
func (d due) check(atGiven, delayGiven bool, zone *time.Location) (due, error) {
	d.given = atGiven || delayGiven
	switch {
	case atGiven && delayGiven:
		return d, shell.Misused("give --at or --delay, not both")
	case d.delay < 0:
		return d, shell.Misused("--delay is %s: it must not be negative", d.delay)
	case tooLate(d.delay):
		return d, shell.Misused("--delay is %s: it must be at most ten years", d.delay)
	case atGiven:
		_, err := parseMoment(d.at, zone)
		return d, err
	}
	return d, nil
}

// tooLate reports whether no message can be due that late.
func tooLate(delay time.Duration) bool {
	now := time.Now()
	_, err := turnkeeper.Submission{DueAt: now.Add(delay)}.DueFrom(now)
	return err != nil
}

// time returns the due time.
func (d due) time(now time.Time, zone *time.Location) (time.Time, error) {
	if d.at != "" {
		return parseMoment(d.at, zone)
	}
	return now.Add(d.delay), nil
}

// parseMoment parses a time with an offset, or else in the zone.
func parseMoment(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	local := strings.Replace(text, "T", " ", 1)
	for _, form := range []string{"2006-01-02 15:04", time.DateTime} {
		t, err := time.ParseInLocation(form, local, zone)
		if err != nil {
			continue
		}
		if t.Format(form) != local {
			return time.Time{}, shell.Misused("--at is %q: the clocks of %s skip that time", text, zone)
		}
		return t, nil
	}
	return time.Time{},
		shell.Misused(
			"--at is %q: write a time as 2006-01-02T15:04 (local time, %s) or 2006-01-02T15:04:05Z (RFC 3339)", text,
			zone)
}

// setDue sets the message's due time, by the database's clock.
func (e *enqueuing) setDue(ctx context.Context, store *operate.Store) error {
	if !e.due.given {
		return nil
	}
	now, err := store.Now(ctx)
	if err != nil {
		return err
	}
	if e.message.DueAt, err = e.due.time(now, e.Zone); err != nil {
		return err
	}
	if e.due.at != "" && e.message.DueAt.Before(now) {
		e.Err.Line("%s", e.Err.Paint(term.Warned, fmt.Sprintf("--at is in the past (%s): a new message is due at once",
			term.Clock{Now: now, Zone: e.Zone}.Exactly(e.message.DueAt))))
	}
	return nil
}
