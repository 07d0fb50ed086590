package scheduler

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"turnkeeper"
)

// Decide says what becomes of a due schedule. However many slots were missed,
// one message is made, for the newest of them.
func Decide(d turnkeeper.DueSchedule, now time.Time) turnkeeper.SlotDecision {
	decision := turnkeeper.SlotDecision{Schedule: d}
	if len(d.Conversation) > turnkeeper.MaxKeyLength { // it would be refused, and the tick with it
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

// everyHour is how the parser marks an hour field of "*".
const everyHour = 1 << 63

// Next is the first slot after a time. A schedule with hours of its own runs
// once where the end of summer time repeats one of them; one of every hour goes
// on through it.
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

// nextField is the first time after another that fits the fields of a schedule; zero: there is none.
// The library counts from one full hour to the next, and so misses the rest of a day on which clocks
// are moved by half an hour: it is asked again from the full hour after each such change.
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

// clockChange is the next time at which clocks of a place are moved; zero: they are not.
func clockChange(place *time.Location, after time.Time) time.Time {
	_, change := after.In(place).ZoneBounds()
	return change
}

// repeated says that the clocks of the place showed this time before, since
// they were put back.
func repeated(slot time.Time) bool {
	const within = 3 * time.Hour // of the change
	_, offset := slot.Zone()
	_, before := slot.Add(-within).Zone()
	_, then := slot.Add(-time.Duration(before-offset) * time.Second).Zone()
	return before > offset && then == before
}

// after is the first slot after now. Slots of an interval are counted from
// last.
func (s slotSpec) after(last, now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		passed := max(now.Sub(last), 0) / every.Delay
		return last.Add((passed + 1) * every.Delay)
	}
	return s.Next(now.In(s.location))
}

// lookBack are the spans in which the newest slot is looked for, so that a
// schedule that was missed for a year is not counted through slot by slot. The
// longest holds a 29th of February.
var lookBack = []time.Duration{2 * time.Minute, 2 * time.Hour, 50 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour, 9 * 366 * 24 * time.Hour}

// newest is the last slot from first to now; first itself is one.
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
