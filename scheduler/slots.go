package scheduler

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"turnkeeper"
)

// Decide returns what to do about a due schedule. However many slots were missed, it
// makes one message, for the newest of them.
func Decide(d turnkeeper.DueSchedule, now time.Time) turnkeeper.SlotDecision {
	decision := turnkeeper.SlotDecision{Schedule: d}
	if len(d.Conversation) > turnkeeper.MaxKeyLength { // the message would be refused, and the tick would fail
		decision.Error = fmt.Sprintf("the schedule's conversation has a name of %d bytes: at most %d are allowed", len(d.Conversation), turnkeeper.MaxKeyLength)
		return decision
	}
	spec, err := parse(d.Cron, d.TimeZone)
	if err != nil {
		decision.Error = err.Error()
		return decision
	}
	if now.Before(d.NextDue) {
		now = d.NextDue // it came due while the tick was under way
	}
	if d.NextDue.IsZero() {
		decision.NextDue = spec.after(now, now)
	} else {
		decision.Slot = spec.newest(d.NextDue, now)
		decision.NextDue = spec.after(decision.Slot, now)
	}
	if decision.NextDue.IsZero() {
		decision.Error = fmt.Sprintf("the schedule %q never comes due", d.Cron)
	}
	return decision
}

// A slotSpec computes the slots of one schedule.
type slotSpec struct {
	cron.Schedule
	location *time.Location
}

func parse(expression, zone string) (slotSpec, error) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return slotSpec{}, fmt.Errorf("the time zone %q is not known", zone)
	}
	schedule, err := cron.ParseStandard(expression)
	if err != nil {
		return slotSpec{}, fmt.Errorf("the schedule %q cannot be read: %w", expression, err)
	}
	if fixed, ok := schedule.(*cron.SpecSchedule); ok && fixed.Location == time.Local { //nolint:gosmopolitan // the parser's default
		fixed.Location = location
	}
	return slotSpec{schedule, location}, nil
}

// everyHour is the bit that the parser sets for an hour field of "*".
const everyHour = 1 << 63

// Next returns the first slot after a time. When the end of summer time repeats an
// hour, a schedule that names its hours runs once in it, and a schedule of every hour
// runs in both.
func (s slotSpec) Next(after time.Time) time.Time {
	fixed, ok := s.Schedule.(*cron.SpecSchedule)
	if !ok {
		return s.Schedule.Next(after)
	}
	slot := nextField(fixed, after)
	for fixed.Hour&everyHour == 0 && repeated(slot.In(fixed.Location)) {
		slot = nextField(fixed, slot)
	}
	return slot
}

// nextField returns the first time after another that matches the fields of a schedule, or zero if
// there is none. The library steps from one full hour to the next, so it misses the rest of a day on
// which clocks move by half an hour. nextField asks it again from the full hour after each such
// change.
func nextField(s *cron.SpecSchedule, after time.Time) time.Time {
	next := s.Next(after)
	for change := clockChange(s.Location, after); !change.IsZero() && change.Before(next); change = clockChange(s.Location, change) {
		past := time.Duration(change.Minute())*time.Minute + time.Duration(change.Second())*time.Second
		if past == 0 {
			continue
		}
		if other := s.Next(change.Add(time.Hour - past - 1)); !other.IsZero() && other.Before(next) {
			next = other
		}
	}
	return next
}

// clockChange returns the next time at which the clocks of a place change, or zero if they do not.
func clockChange(place *time.Location, after time.Time) time.Time {
	_, change := after.In(place).ZoneBounds()
	return change
}

// repeated reports whether the clocks of the place, since they were put back, have
// shown this time before.
func repeated(slot time.Time) bool {
	const within = 3 * time.Hour // of the change
	_, offset := slot.Zone()
	_, before := slot.Add(-within).Zone()
	_, then := slot.Add(-time.Duration(before-offset) * time.Second).Zone()
	return before > offset && then == before
}

// after returns the first slot after now. Slots of an interval are counted from last.
func (s slotSpec) after(last, now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		passed := max(now.Sub(last), 0) / every.Delay
		return last.Add((passed + 1) * every.Delay)
	}
	return s.Next(now.In(s.location))
}

// lookBack lists the spans that are searched for the newest slot, shortest first, so
// that a schedule that was missed for a year is not walked slot by slot. The longest
// contains a 29th of February.
var lookBack = []time.Duration{2 * time.Minute, 2 * time.Hour, 50 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour, 9 * 366 * 24 * time.Hour}

// newest returns the last slot from first to now. first itself is a slot.
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
