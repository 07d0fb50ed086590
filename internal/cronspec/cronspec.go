// Package cronspec reads the times of schedules, as agent files, commands and the database write them.
package cronspec

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// Parse reads five cron fields, or a word such as @daily or @every 10m, either after a time zone
// (TZ=Asia/Tokyo). Sunday is 0 or 7.
func Parse(text string) (cron.Schedule, error) {
	fields := strings.Fields(text)
	if len(fields) > 0 && strings.Contains(fields[0], "TZ=") && len(fields) < 2 {
		return nil, errors.New("there is nothing after the time zone") // the library panics
	}
	if n := len(fields); n >= 5 {
		fields[n-1] = sundays(fields[n-1])
	}
	return cron.ParseStandard(strings.Join(fields, " "))
}

// sundays replaces the 7 of a field of weekdays, which the library does not know, by 0.
func sundays(field string) string {
	items := strings.Split(field, ",")
	for i, item := range items {
		days, step, stepped := strings.Cut(item, "/")
		from, to, isRange := strings.Cut(days, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		by, notStep := strconv.Atoi(step)
		if !stepped {
			by, notStep = 1, nil
		}
		if err == nil && notStep == nil && to == "7" && first >= 0 && first <= 7 && by > 0 {
			items[i] = daysTo7(first, by)
		}
	}
	return strings.Join(items, ",")
}

// daysTo7 lists every by-th day from the first one to the Sunday after it.
func daysTo7(first, by int) string {
	var days []string
	for day := first; day <= 7; day += by {
		if text := strconv.Itoa(day % 7); !slices.Contains(days, text) {
			days = append(days, text)
		}
	}
	return strings.Join(days, ",")
}

// anyDay is the bit that the library sets for a field of "*".
const anyDay = 1 << 63

// EitherDay reports whether a schedule names days of the month and days of the week. It is then due on
// each day that matches one of them, as in every cron.
func EitherDay(schedule cron.Schedule) bool {
	fields, ok := schedule.(*cron.SpecSchedule)
	return ok && fields.Dom&anyDay == 0 && fields.Dow&anyDay == 0
}
