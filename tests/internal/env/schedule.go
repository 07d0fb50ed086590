package env

import (
	"fmt"
	"time"
)

// HourlySchedule is the line of the front matter that runs an agent once an hour.
const HourlySchedule = `schedule: {cron: "@every 1h", message: "Look around."}`

// AwaitSchedule waits until a schedule is registered.
func (e *Env) AwaitSchedule() {
	e.T.Helper()
	e.Await("a schedule is registered", "select exists (select from schedules where next_due is not null)")
}

// MissSlots moves the next slot of every schedule into the past, as if nothing had run for the time ago.
func (e *Env) MissSlots(ago time.Duration) {
	e.T.Helper()
	e.AwaitSchedule()
	e.Exec("update schedules set next_due = clock_timestamp() - $1::interval", ago)
	e.Exec("notify turnkeeper_inbox")
}

// AwaitSlots waits until n messages of schedules are closed and the next slots are in the future. It
// returns the number of messages of schedules.
func (e *Env) AwaitSlots(n int) int {
	e.T.Helper()
	e.Await(fmt.Sprint(n, " messages of schedules are closed"),
		"select count(*) >= $1 from messages where trigger = 'schedule' and closed_at is not null", n)
	e.Await("the next slot is in the future", "select bool_and(next_due > clock_timestamp()) from schedules")
	return Query[int](e, "select count(*) from messages where trigger = 'schedule'")
}
