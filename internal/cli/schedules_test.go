package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/cli/turnctl"
)

// checkNext fails the test unless there are three times, a week apart, on Sundays at nine by the clocks of Berlin.
func checkNext(t *testing.T, next []time.Time) {
	t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if len(next) != 3 {
		t.Fatalf("the next times are %v", next)
	}
	for i, at := range next {
		if at = at.In(berlin); at.Weekday() != time.Sunday || at.Hour() != 9 ||
			!at.After(time.Now().AddDate(0, 0, 7*i-1)) {
			t.Errorf("one of the next times is %s", at)
		}
	}
}

// A file and a command show the next three times of a schedule, and warn of days that mean either.
func TestNextTimes(t *testing.T) {
	t.Parallel()
	env, store := somewhere(t)
	file := filepath.Join(t.TempDir(), "x.md")
	check := func(cron string) ran {
		text := "---\nmodel: demo/script\nschedule: {cron: \"" + cron + "\", time_zone: Europe/Berlin}\n---\nHello.\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return run(t, turnctl.Program(), env, "", "agents", "check", file)
	}
	const warning = `"0 9 1-7 * 1" names days of the month and days of the week: it is due on each day that is either, not only on days that are both`
	if got := check("0 9 * * 7"); got.code != 0 || strings.Contains(got.stdout, "!") || strings.Count(got.stdout,
		"Sun 2") != 3 || !strings.Contains(got.stdout, "09:00:00") {
		t.Errorf("a file: %+v", got)
	}
	if got := check("0 9 1-7 * 1"); got.code != 0 || !strings.Contains(got.stdout, ":3: schedule.cron "+warning) {
		t.Errorf("a file with either day: %+v", got)
	}
	check("0 9 * * 7")
	report := decode[struct{ Schedules []struct{ Next []time.Time } }](t, run(t, turnctl.Program(), env, "", "agents",
		"check", file, "-o", "json"))
	checkNext(t, report.Schedules[0].Next)

	if _, err := store.Pool().Exec(t.Context(),
		"update turnkeeper.schedules set time_zone = 'Europe/Berlin'"); err != nil {
		t.Fatal(err)
	}
	set := func(cron string, flags ...string) ran {
		return run(t, turnctl.Program(), env, "", append([]string{"schedules", "set", "watcher", cron}, flags...)...)
	}
	if got := set("0 9 * * 7"); got.code != 0 || strings.Count(got.stdout, "Sun 2") != 3 || got.stderr != "" {
		t.Errorf("set: %+v", got)
	}
	type schedule struct {
		Warning string
		Next    []time.Time
	}
	checkNext(t, decode[schedule](t, set("0 9 * * 7", "-o", "json")).Next)
	if got := set("0 9 1-7 * 1"); got.code != 0 || !strings.Contains(got.stderr, warning) {
		t.Errorf("set either day: %+v", got)
	}
	if got := set("TZ=0"); got.code != 2 || !strings.Contains(got.stderr, "set the time zone with the key time_zone") {
		t.Errorf("set a zone alone: %+v", got)
	}
	paused := decode[schedule](t, run(t, turnctl.Program(), env, "", "schedules", "pause", "watcher", "-o", "json"))
	if paused.Next == nil || len(paused.Next) > 0 || !strings.Contains(paused.Warning, "either") {
		t.Errorf("pause: %+v", paused)
	}
}
