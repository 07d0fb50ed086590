package jobs_test

import (
	"testing"
	"time"

	"turnkeeper/internal/bounds"
	"turnkeeper/internal/presence"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
)

// A message that was set aside is granted though the row that says so cannot be deleted. That is recorded as a failed
// step, once a tick.
func TestARowThatCannotBeForgotten(t *testing.T) {
	s := newSite(t)
	if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "w", Slots: 9}); err != nil {
		t.Fatal(err)
	}
	id := s.enqueue("clerk", "", "hello")
	s.exec(
		"insert into turnkeeper.set_aside (kind, id, next_try, code, error) values ('message', $1::bigint::text, clock_timestamp(), '', 'it failed')", int64(id))
	s.exec("create function keep() returns trigger language plpgsql as $$ begin raise exception 'it is kept'; end $$")
	s.exec("create trigger keep before delete on turnkeeper.set_aside for each row execute function keep()")
	sched := scheduler.New(scheduler.Config{Store: &jobs.Dispatcher{Grants: s.Grants, TTL: bounds.Default().LeaseTTL}})
	tick := func() (granted int) {
		t.Helper()
		report, err := sched.Tick(t.Context())
		if err != nil {
			t.Error(err)
		}
		return report.Granted
	}
	if n := tick(); n != 1 {
		t.Errorf("%d messages are granted", n)
	}
	const rows = "select string_agg(kind || ' ' || error, ', ' order by kind) from turnkeeper.set_aside"
	if got := one[string](s, rows); got != "message it failed, step database: it is kept (SQLSTATE P0001)" {
		t.Errorf("set aside: %s", got)
	}
	s.exec("drop trigger keep on turnkeeper.set_aside")
	s.exec("update turnkeeper.set_aside set last_at = last_at - $1::interval", 2*time.Minute)
	s.enqueue("desk", "", "another")
	if n := tick(); n != 1 {
		t.Errorf("%d messages are granted", n)
	}
	if left := one[int](s, "select count(*) from turnkeeper.set_aside"); left != 0 {
		t.Errorf("%d rows are left: %s", left, one[string](s, rows))
	}
}
