package scheduler

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"turnkeeper"
	"turnkeeper/internal/cronspec"
	"turnkeeper/internal/granting"
)

// Decide returns the decision about a due schedule. If several slots were missed, it makes
// one message, for the newest slot.
func Decide(d granting.DueSchedule, now time.Time) granting.SlotDecision {
	decision := granting.SlotDecision{Schedule: d}
	if len(d.Conversation) > turnkeeper.MaxKeyLength { // the message would be refused, and the tick would fail
		decision.Error = fmt.Sprintf("the name of the schedule's conversation has %d bytes: at most %d are allowed",
			len(d.Conversation), turnkeeper.MaxKeyLength)
		return decision
	}
	spec, err := parse(d.Cron, d.TimeZone)
	if err != nil {
		decision.Error = err.Error()
		return decision
	}
	if now.Before(d.NextDue) {
		now = d.NextDue // it came due during the tick
	}
	if d.NextDue.IsZero() {
		decision.NextDue = spec.after(now, now)
	} else {
		decision.Slot = spec.newest(d.NextDue, now)
		decision.NextDue = spec.after(decision.Slot, now)
	}
	if d.Level != "" && !decision.Slot.IsZero() {
		decision.Skipped = "the agent's survival level is " + d.Level
	}
	if decision.NextDue.IsZero() {
		decision.Error = fmt.Sprintf("the schedule %q is never due", d.Cron)
	}
	return decision
}

// NextSlots returns the next n slots of a schedule after a time, fewer if there are no more. They are what
// the scheduler computes, but for intervals (@every), which it counts from their last slot.
func NextSlots(expression, zone string, after time.Time, n int) (slots []time.Time, err error) {
	spec, err := parse(expression, zone)
	for last := after; err == nil && len(slots) < n; {
		if last = spec.after(last, last); last.IsZero() {
			break
		}
		slots = append(slots, last)
	}
	return slots, err
}

// A slotSpec computes the slots of one schedule.
type slotSpec struct {
	cron.Schedule
	location *time.Location
}

func parse(expression, zone string) (slotSpec, error) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return slotSpec{}, fmt.Errorf("unknown time zone %q", zone)
	}
	schedule, err := cronspec.Parse(expression)
	if err != nil {
		return slotSpec{}, fmt.Errorf("invalid schedule %q: %w", expression, err)
	}
	if fixed, ok := schedule.(*cron.SpecSchedule); ok &&
		fixed.Location == time.Local { //nolint:gosmopolitan // the parser's default
		fixed.Location = location
	}
	return slotSpec{schedule, location}, nil
}

// everyHour is the bit that the parser sets for an hour field of "*".
const everyHour = 1 << 63

// Next returns the first slot after a time, or zero if there is none. It calls the library
// with UTC times only, because the library loses slots on days on which clocks change.
func (s slotSpec) Next(after time.Time) time.Time {
	fixed, ok := s.Schedule.(*cron.SpecSchedule)
	switch {
	case !ok:
		return s.Schedule.Next(after)
	case fixed.Hour&everyHour != 0:
		return nextShown(fixed, after)
	default:
		return nextDaily(fixed, after)
	}
}

// nextDaily returns the first slot of a schedule that names its hours. Each of its times is due
// once a day: when clocks first show it. If clocks skip the time, the slot is at the change, or
// a minute before if the change skips the rest of the day. A skipped day has no slot.
func nextDaily(s *cron.SpecSchedule, after time.Time) time.Time {
	wall := shown(after, s.Location)
	for {
		if wall = nextWall(s, wall); wall.IsZero() {
			return time.Time{}
		}
		slot, day := reached(wall, s.Location), wall.Truncate(24*time.Hour)
		if !sameDay(slot, day, s.Location) {
			if !sameDay(reached(day, s.Location), day, s.Location) {
				continue
			}
			slot = slot.Add(-time.Minute)
		}
		if slot.After(after) {
			return slot
		}
	}
}

// sameDay reports whether the clocks of a place show a time of the day.
func sameDay(at, day time.Time, place *time.Location) bool {
	return shown(at, place).Truncate(24 * time.Hour).Equal(day)
}

// nextShown returns the first time at which clocks show a slot. A slot in a repeated hour is due
// twice.
func nextShown(s *cron.SpecSchedule, after time.Time) time.Time {
	for {
		wall := shown(after, s.Location)
		next := nextWall(s, wall)
		if next.IsZero() {
			return time.Time{}
		}
		slot := after.Add(next.Sub(wall))
		_, change := after.In(s.Location).ZoneBounds()
		if change.IsZero() || slot.Before(change) {
			return slot
		}
		if next = shown(change, s.Location); nextWall(s, next.Add(-1)).Equal(next) {
			return change
		}
		after = change
	}
}

// The functions below represent the time that a clock shows as that time in UTC.

// shown returns the time that the clocks of a place show.
func shown(at time.Time, place *time.Location) time.Time {
	_, offset := at.In(place).Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// nextWall returns the next shown time that matches a schedule, or zero.
func nextWall(s *cron.SpecSchedule, wall time.Time) time.Time {
	plain := *s
	plain.Location = time.UTC
	return plain.Next(wall)
}

// reached returns the time at which the clocks of a place first show a time or, if they skip it,
// a later one.
func reached(wall time.Time, place *time.Location) time.Time {
	const ahead = 36 * time.Hour // more than any offset from UTC
	for at := wall.Add(-ahead); ; {
		due := at.Add(max(wall.Sub(shown(at, place)), 0))
		_, change := at.In(place).ZoneBounds()
		if change.IsZero() || due.Before(change) {
			return due
		}
		at = change
	}
}

// after returns the first slot after now. Intervals are counted from last.
func (s slotSpec) after(last, now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		passed := max(now.Sub(last), 0) / every.Delay
		return last.Add((passed + 1) * every.Delay)
	}
	return s.Next(now.In(s.location))
}

// lookBack lists the spans that are searched for the newest slot, shortest first. A frequent
// schedule that was missed for a year is then found in a short span. The longest span contains
// a 29th of February.
var lookBack = []time.Duration{2 * time.Minute, 2 * time.Hour, 50 * time.Hour, 32 * 24 * time.Hour,
	367 * 24 * time.Hour, 9 * 366 * 24 * time.Hour}

// newest returns the last slot from first to now. first is a slot.
func (s slotSpec) newest(first, now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		return first.Add(max(now.Sub(first), 0) / every.Delay * every.Delay)
	}
	newest := first
	for _, span := range lookBack {
		from := now.Add(-span)
		if from.Before(first) {
			from = first
		}
		for slot := s.Next(from.In(s.location)); !slot.IsZero() && !slot.After(now); slot = s.Next(slot) {
			newest = slot
		}
		if newest.After(first) || from.Equal(first) {
			break
		}
	}
	return newest
}
