package cronspec_test

import (
	"testing"
	"time"

	"turnkeeper/internal/cronspec"
)

// Days of the week, as they are due from Monday, 2 March 2026.
func TestDaysOfTheWeek(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"7": "Sun", "0": "Sun", "0,7": "Sun", "5-7": "Fri Sat Sun", "1-7": "Mon Tue Wed Thu Fri Sat Sun",
		"0-7":   "Mon Tue Wed Thu Fri Sat Sun",
		"1-7/2": "Mon Wed Fri Sun", "2-7/2": "Tue Thu Sat", "7/2": "Sun", "1,7": "Mon Sun",
		"MON-FRI": "Mon Tue Wed Thu Fri", "7-7": "Sun", "*": "Mon Tue Wed Thu Fri Sat Sun",
		"8": "", "7-3": "", "1-8": "", "-7": "", "1-7/0": "", "17": "",
	} {
		schedule, err := cronspec.Parse("0 9 * * " + field)
		if (err != nil) != (want == "") {
			t.Errorf("%q: %v", field, err)
		}
		if err != nil {
			continue
		}
		got := ""
		for at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC); at.Day() < 9; at = at.AddDate(0, 0, 1) {
			if next := schedule.Next(at); next.YearDay() == at.YearDay() {
				got += " " + at.Format("Mon")
			}
		}
		if got != " "+want {
			t.Errorf("%q is due on%s, want %s", field, got, want)
		}
	}
}

func TestNoSchedules(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "TZ=0", "CRON_TZ=UTC", "TZ=", "7", "* * * *", "0 9 * * 1 2 7", "TZ=0 0 9 * * 7"} {
		if schedule, err := cronspec.Parse(text); err == nil {
			t.Errorf("%q is %v", text, schedule)
		}
	}
	if _, err := cronspec.Parse("TZ=Asia/Tokyo 0 9 * * 7"); err != nil {
		t.Error(err)
	}
}

func TestEitherDay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"0 9 1-7 * 1": true, "0 9 13 * FRI": true, "0 9 */2 * 1": true, "0 9 1-31 * 1-7": true,
		"0 9 * * 1": false, "0 9 1 * *": false, "0 9 ? * 1": false, "@daily": false, "@every 1h": false,
	} {
		schedule, err := cronspec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := cronspec.EitherDay(schedule); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
