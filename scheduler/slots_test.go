package scheduler_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/scheduler"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		cron, zone   string
		due, now     string
		slot, next   string // empty: none
		conversation string
		errorMention string
	}{
		"on time": {
			cron: "*/10 * * * *", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:00:00.2Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:10:00Z",
		},
		"not known yet: waits for the next": {
			cron: "*/10 * * * *", now: "2026-03-01T12:05:00Z", next: "2026-03-01T12:10:00Z",
		},
		"ten missed slots are one, the newest": {
			cron: "*/10 * * * *", due: "2026-03-01T12:00:00Z", now: "2026-03-01T13:35:00Z",
			slot: "2026-03-01T13:30:00Z", next: "2026-03-01T13:40:00Z",
		},
		"exactly at a later slot": {
			cron: "*/10 * * * *", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:20:00Z",
			slot: "2026-03-01T12:20:00Z", next: "2026-03-01T12:30:00Z",
		},
		"came due while the tick was under way": {
			cron: "*/10 * * * *", due: "2026-03-01T12:00:00Z", now: "2026-03-01T11:59:59.998Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:10:00Z",
		},
		"a schedule that changed": { // its due time is not a slot of the new expression
			cron: "0 6 * * *", due: "2026-03-01T12:07:00Z", now: "2026-03-01T12:07:00Z",
			slot: "2026-03-01T12:07:00Z", next: "2026-03-02T06:00:00Z",
		},
		"@every": {
			cron: "@every 90s", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:00:01Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:01:30Z",
		},
		"@every, not known yet": {cron: "@every 90s", now: "2026-03-01T12:00:01Z", next: "2026-03-01T12:01:31Z"},
		"@every, missed": {
			cron: "@every 90s", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:15:10Z",
			slot: "2026-03-01T12:15:00Z", next: "2026-03-01T12:16:30Z",
		},
		"@every, came due while the tick was under way": {
			cron: "@every 90s", due: "2026-03-01T12:00:00Z", now: "2026-03-01T11:59:59.998Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:01:30Z",
		},
		"@daily in a zone": {
			cron: "@daily", zone: "Asia/Tokyo", due: "2026-02-28T15:00:00Z", now: "2026-02-28T15:00:01Z",
			slot: "2026-02-28T15:00:00Z", next: "2026-03-01T15:00:00Z",
		},
		"summer time begins: 09:00 stays 09:00": {
			cron: "0 9 * * *", zone: "Europe/Berlin", due: "2026-03-28T08:00:00Z", now: "2026-03-28T08:00:01Z",
			slot: "2026-03-28T08:00:00Z", next: "2026-03-29T07:00:00Z",
		},
		"summer time ends: 09:00 stays 09:00": {
			cron: "0 9 * * *", zone: "Europe/Berlin", due: "2026-10-24T07:00:00Z", now: "2026-10-24T07:00:01Z",
			slot: "2026-10-24T07:00:00Z", next: "2026-10-25T08:00:00Z",
		},
		"every hour goes on when summer time begins": {
			cron: "0 * * * *", zone: "Europe/Berlin", due: "2026-03-29T00:00:00Z", now: "2026-03-29T00:00:01Z",
			slot: "2026-03-29T00:00:00Z", next: "2026-03-29T01:00:00Z",
		},
		"every hour goes on when summer time ends": {
			cron: "0 * * * *", zone: "Europe/Berlin", due: "2026-10-25T00:00:00Z", now: "2026-10-25T00:00:01Z",
			slot: "2026-10-25T00:00:00Z", next: "2026-10-25T01:00:00Z",
		},
		"29 February": {
			cron: "0 0 29 2 *", due: "2024-02-29T00:00:00Z", now: "2024-02-29T00:00:01Z",
			slot: "2024-02-29T00:00:00Z", next: "2028-02-29T00:00:00Z",
		},
		"29 February, missed for nine years": {
			cron: "0 0 29 2 *", due: "2024-02-29T00:00:00Z", now: "2033-06-01T00:00:00Z",
			slot: "2032-02-29T00:00:00Z", next: "2036-02-29T00:00:00Z",
		},
		"30 February never comes": {
			cron: "0 0 30 2 *", now: "2026-03-01T12:00:00Z", errorMention: "is never due",
		},
		"unknown zone": {
			cron: "* * * * *", zone: "Mars/Olympus", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:00:00Z",
			errorMention: `unknown time zone "Mars/Olympus"`,
		},
		"unreadable": {
			cron: "every day", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:00:00Z",
			errorMention: `invalid schedule "every day"`,
		},
		"a conversation with the longest name": {
			cron: "*/10 * * * *", conversation: strings.Repeat("ж", 100), due: "2026-03-01T12:00:00Z",
			now:  "2026-03-01T12:00:00Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:10:00Z",
		},
		"nothing after the zone": { // the library panics
			cron: "TZ=0", due: "2026-03-01T12:00:00Z", now: "2026-03-01T12:00:00Z",
			errorMention: `invalid schedule "TZ=0"`,
		},
		"Sunday as 7": {
			cron: "0 9 * * 7", zone: "Europe/Berlin", due: "2026-03-01T08:00:00Z", now: "2026-03-01T08:00:01Z",
			slot: "2026-03-01T08:00:00Z", next: "2026-03-08T08:00:00Z",
		},
		"a zone in the expression": { // invalid in agent files, but possible by SQL
			cron: "TZ=Asia/Tokyo 0 9 * * *", zone: "Europe/Berlin", due: "2026-03-01T00:00:00Z",
			now:  "2026-03-01T00:00:01Z",
			slot: "2026-03-01T00:00:00Z", next: "2026-03-02T00:00:00Z",
		},
		"a conversation that no message may have": {
			cron: "* * * * *", conversation: strings.Repeat("ж", 101), due: "2026-03-01T12:00:00Z",
			now:          "2026-03-01T12:00:00Z",
			errorMention: "has 202 bytes: at most 200",
		},
		"a year away from every minute": {
			cron: "* * * * *", due: "2025-03-01T12:00:00Z", now: "2026-03-01T12:00:30Z",
			slot: "2026-03-01T12:00:00Z", next: "2026-03-01T12:01:00Z",
		},
		"a year away from a Monday morning": {
			cron: "30 8 * * 1", zone: "Europe/Berlin", due: "2025-03-03T07:30:00Z", now: "2026-03-06T12:00:00Z",
			slot: "2026-03-02T07:30:00Z", next: "2026-03-09T07:30:00Z",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := granting.DueSchedule{Agent: "a", Name: "s", Cron: c.cron, TimeZone: c.zone,
				Conversation: c.conversation, NextDue: at(t, c.due)}
			got := scheduler.Decide(d, at(t, c.now))
			if c.errorMention != "" {
				if !strings.Contains(got.Error, c.errorMention) || !got.Slot.IsZero() || !got.NextDue.IsZero() {
					t.Errorf("decided %+v, want no slot and an error with %q", got, c.errorMention)
				}
				return
			}
			if got.Error != "" || !got.Slot.Equal(at(t, c.slot)) || !got.NextDue.Equal(at(t, c.next)) {
				t.Errorf("slot %v, next %v, error %q; want %s, %s", got.Slot, got.NextDue, got.Error, c.slot, c.next)
			}
		})
	}
}

// A nightly job at an hour that a change of summer time skips or repeats runs at most once a
// night, and not twice for one slot.
func TestDecideInTheHourThatSummerTimeMoves(t *testing.T) {
	for name, c := range map[string]struct{ from, to string }{
		"begins": {"2026-03-27T12:00:00Z", "2026-03-31T12:00:00Z"},
		"ends":   {"2026-10-23T12:00:00Z", "2026-10-27T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			berlin, err := time.LoadLocation("Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			d := granting.DueSchedule{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}
			d.NextDue = scheduler.Decide(d, at(t, c.from)).NextDue
			nights := map[string]int{}
			for end := at(t, c.to); d.NextDue.Before(end); {
				got := scheduler.Decide(d, d.NextDue.Add(time.Second))
				if !got.NextDue.After(d.NextDue) {
					t.Fatalf("after %v comes %v", d.NextDue, got.NextDue)
				}
				nights[got.Slot.In(berlin).Format(time.DateOnly)]++
				d.NextDue = got.NextDue
			}
			for night, n := range nights {
				if n != 1 {
					t.Errorf("ran %d times on %s", n, night)
				}
			}
			if len(nights) < 3 {
				t.Errorf("ran in %d nights of four: %v", len(nights), nights)
			}
		})
	}
}

// TestDecideEachMinuteOfALongDay has one schedule for each minute of a day on which clocks
// are set back, in zones with changes of an hour, half an hour, two hours, and at midnight.
// Each is due once, when the clocks first show its minute.
func TestDecideEachMinuteOfALongDay(t *testing.T) {
	for _, c := range []struct{ zone, day string }{
		{"Europe/Berlin", "2026-10-25"}, {"America/New_York", "2026-11-01"}, {"Australia/Lord_Howe", "2026-04-05"},
		{"Antarctica/Troll", "2026-10-25"}, {"America/Havana", "2026-11-01"}, {"Atlantic/Azores", "2026-10-25"},
	} {
		t.Run(c.zone, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			day, err := time.ParseInLocation(time.DateOnly, c.day, zone)
			if err != nil {
				t.Fatal(err)
			}
			shown, repeats := map[string]time.Time{}, 0
			for at := day.UTC(); at.In(zone).Day() == day.Day(); at = at.Add(time.Minute) {
				minute := at.In(zone).Format("4 15")
				if _, again := shown[minute]; again {
					repeats++
				} else {
					shown[minute] = at
				}
			}
			if repeats == 0 || len(shown) != 24*60 {
				t.Fatalf("%d minutes, %d of them twice: the clocks are not put back on this day", len(shown), repeats)
			}
			for minute, first := range shown {
				d := granting.DueSchedule{Cron: minute + " * * *", TimeZone: c.zone}
				d.NextDue = scheduler.Decide(d, day.Add(-time.Minute)).NextDue
				if !d.NextDue.Equal(first) {
					t.Errorf("%q comes due at %v, want %v", d.Cron, d.NextDue.In(zone), first.In(zone))
					continue
				}
				if next := scheduler.Decide(d, d.NextDue).NextDue.In(zone); next.YearDay() != day.YearDay()+1 {
					t.Errorf("%q comes due again at %v", d.Cron, next)
				}
			}
		})
	}
}

// TestDecideOnADayWithHalfAnHourMore does the same for clocks that go forward by half an
// hour: each minute that they show on that day is due.
func TestDecideOnADayWithHalfAnHourMore(t *testing.T) {
	zone, err := time.LoadLocation("Australia/Lord_Howe")
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 10, 4, 0, 0, 0, 0, zone)
	n := 0
	for at := day; at.Day() == day.Day(); at = at.Add(time.Minute) {
		n++
		d := granting.DueSchedule{Cron: at.Format("4 15") + " * * *", TimeZone: zone.String()}
		if next := scheduler.Decide(d, day.Add(-time.Minute)).NextDue; !next.Equal(at) {
			t.Errorf("%q comes due at %v, want %v", d.Cron, next.In(zone), at)
		}
	}
	if n != 24*60-30 {
		t.Errorf("the day has %d minutes", n)
	}
}

// TestDailyJobsRunEachDay runs daily jobs for a year in zones whose clocks change by an
// hour, half an hour, two hours, at midnight, and by a whole day. Each job runs once on each
// existing day: at its time, or at the change that skips it. CI takes every zone, from 2010
// to 2026.
func TestDailyJobsRunEachDay(t *testing.T) {
	jobs := []string{"0 0", "30 0", "30 1", "0 2", "15 2", "0 3", "0 4", "15 5", "59 23"}
	for name, year := range map[string]int{
		"Europe/Berlin": 2026, "America/New_York": 2026, "Australia/Lord_Howe": 2026, "Antarctica/Troll": 2026,
		"America/Havana":  2026,
		"Atlantic/Azores": 2026, "America/Sao_Paulo": 2018, "Pacific/Apia": 2011,
		"America/Scoresbysund": 2026, "UTC": 2028,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := place(t, name)
			for _, job := range jobs {
				runsDaily(t, job, time.Date(year, 1, 1, 12, 0, 0, 0, zone), time.Date(year, 12, 31, 12, 0, 0, 0, zone))
			}
		})
	}
	if !testrun.All() {
		return
	}
	for _, name := range allZones(t) { // around each clock change
		t.Run("all/"+name, func(t *testing.T) {
			t.Parallel()
			zone := place(t, name)
			for at := time.Date(2010, 1, 1, 0, 0, 0, 0, zone); ; {
				_, change := at.ZoneBounds()
				if change.IsZero() || change.Year() > 2026 {
					return
				}
				for _, job := range jobs {
					noon := time.Date(change.Year(), change.Month(), change.Day(), 12, 0, 0, 0, zone)
					runsDaily(t, job, noon.AddDate(0, 0, -2), noon.AddDate(0, 0, 2))
				}
				at = change
			}
		})
	}
}

func place(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// runsDaily runs a daily job from the noon of a day to that of another, and expects one run
// on each day between.
func runsDaily(t *testing.T, job string, first, last time.Time) {
	t.Helper()
	hour, minute, zone := 0, 0, first.Location()
	if _, err := fmt.Sscan(job, &minute, &hour); err != nil {
		t.Fatal(err)
	}
	d := granting.DueSchedule{Cron: job + " * * *", TimeZone: zone.String()}
	runs := map[string]int{}
	d.NextDue = scheduler.Decide(d, first.AddDate(0, 0, -2)).NextDue
	for d.NextDue.Before(last.AddDate(0, 0, 1)) {
		local := d.NextDue.In(zone)
		runs[local.Format(time.DateOnly)]++
		due := time.Date(local.Year(), local.Month(), local.Day(), hour, minute, 0, 0, zone)
		if there := due.Hour() == hour && due.Minute() == minute; there != (local.Hour() == hour &&
			local.Minute() == minute) {
			t.Errorf("%q ran at %v", job, local)
		}
		next := scheduler.Decide(d, d.NextDue).NextDue
		if !next.After(d.NextDue) {
			t.Fatalf("%q: after %v comes %v", job, d.NextDue, next)
		}
		d.NextDue = next
	}
	for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
		date := day.Format(time.DateOnly)
		if n := runs[date]; n != 1 {
			t.Errorf("%q ran %d times on %s", job, n, date)
		}
	}
}

// allZones returns the names of all time zones of the machine.
func allZones(t *testing.T) (names []string) {
	t.Helper()
	const dir = "/usr/share/zoneinfo"
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir+"/")
		if err != nil || entry.IsDir() || name[0] < 'A' || name[0] > 'Z' {
			return err
		}
		if _, err := time.LoadLocation(name); err == nil {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Logf("only some zones: %v", err)
	}
	return names
}

// TestDecideTheLastSlot changes a schedule to one that is never due again: the slot that is
// due already runs once.
func TestDecideTheLastSlot(t *testing.T) {
	due := at(t, "2026-03-01T12:00:00Z")
	got := scheduler.Decide(granting.DueSchedule{Cron: "0 0 30 2 *", NextDue: due}, due.Add(time.Hour))
	if !got.Slot.Equal(due) || !got.NextDue.IsZero() || !strings.Contains(got.Error, "is never due") {
		t.Errorf("decided %+v", got)
	}
}

// Stepping through every slot of ten years twenty times would take more than a minute, and
// ten minutes for slots of a second.
func TestDecideIsCheapAfterALongAbsence(t *testing.T) {
	due, now := at(t, "2016-01-01T00:00:00Z"), at(t, "2026-03-01T00:00:30Z")
	for _, cron := range []string{"* * * * *", "*/7 3 * * *", "0 0 1 1 *", "@every 1s", "0 0 29 2 *"} {
		began := time.Now()
		for range 20 {
			scheduler.Decide(granting.DueSchedule{Cron: cron, NextDue: due}, now)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: %v for twenty times ten years, want far less", cron, took)
		}
	}
}

func TestSlotsBecomeMessagesByTheDatabasesClock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *testEnv) {
		w.skew = -6 * time.Hour
		w.schedules = []granting.DueSchedule{
			{Name: "missed", Cron: "*/10 * * * *", NextDue: w.now().Add(-95 * time.Minute)},
			{Name: "new", Cron: "*/10 * * * *"},
			{Name: "broken", Cron: "nonsense", NextDue: w.now()},
		}
		core, logs := observer.New(zap.ErrorLevel)
		report := w.tick(t, scheduler.New(scheduler.Config{Store: w, Log: zap.New(core)}))
		if report.Slots != 1 || len(w.slots) != 3 {
			t.Fatalf("%d messages of %d decisions, want 1 of 3", report.Slots, len(w.slots))
		}
		if all := logs.All(); len(all) != 1 || all[0].ContextMap()["schedule"] != "broken" {
			t.Errorf("logged are %+v, want that one schedule is switched off", all)
		}
		for _, d := range w.slots {
			if !d.NextDue.IsZero() && (d.NextDue.Before(w.now()) || d.NextDue.After(w.now().Add(10*time.Minute))) {
				t.Errorf("%s is next due %v from the database's now", d.Schedule.Name, d.NextDue.Sub(w.now()))
			}
		}
	})
}
