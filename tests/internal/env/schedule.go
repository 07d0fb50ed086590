package env

import "time"

// HourlySchedule is the line of the front matter that runs an agent once an hour.
const HourlySchedule = `schedule: {cron: "@every 1h", message: "Look around."}`

// MissSlots makes the schedule look as if nothing had run for the given time.
func (e *Env) MissSlots(ago time.Duration) {
	e.T.Helper()
	e.Await("the schedule is known", "select exists (select from schedules where next_due is not null)")
	e.Exec("update schedules set next_due = clock_timestamp() - $1::interval", ago)
	e.Exec("notify turnkeeper_inbox")
}

// AwaitSlots waits until n messages of schedules are closed and the next slot is in the
// future. It returns how many messages schedules have made.
func (e *Env) AwaitSlots(n int) int {
	e.T.Helper()
	e.Await("the slot's turn is over",
		"select count(*) >= $1 from messages where trigger = 'schedule' and closed_at is not null", n)
	e.Await("the next slot lies ahead", "select bool_and(next_due > clock_timestamp()) from schedules")
	return Query[int](e, "select count(*) from messages where trigger = 'schedule'")
}
