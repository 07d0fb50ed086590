package agentdef

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/cronspec"
)

func (r *reader) schedules(at strictyaml.Place, v *strictyaml.Node, _ any) {
	entries := []*strictyaml.Node{v}
	if v.Kind == strictyaml.List {
		entries = v.Items
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		s := Schedule{
			Name: "default", TimeZone: "UTC", Conversation: "main",
			Message: fmt.Sprintf("Scheduled run of %s.", r.def.Name), History: HistoryLast,
		}
		r.Decode(at.Where+".", entry, &s)
		if seen[s.Name] {
			r.Add(entry.Line, "two schedules have the name %q: give each its own name", s.Name)
		}
		seen[s.Name] = true
		r.def.Schedules = append(r.def.Schedules, s)
	}
}

func (r *reader) cron(at strictyaml.Place, v *strictyaml.Node, to any) {
	text := ""
	if r.Value(at, v, &text, ""); v.Kind != strictyaml.Text {
		return
	}
	spec, err := ParseCron(text)
	if err != nil {
		r.Add(v.Line, "%s is %q: %v", at.Where, text, err)
	}
	*to.(*string) = spec
}

// ParseCron checks a schedule's spec and returns it with single spaces. It accepts five cron
// fields, or a word such as @daily or @every 10m, without a time zone, that are due within
// five years. The error says what to write; the text is then returned unchanged.
func ParseCron(text string) (spec string, err error) {
	spec = strings.Join(strings.Fields(text), " ")
	if err := checkCron(spec); err != nil {
		return text, err
	}
	return spec, nil
}

// CronWarning says what a valid spec does that its author may not expect; empty: nothing.
func CronWarning(spec string) string {
	schedule, err := cronspec.Parse(spec)
	if err != nil || !cronspec.EitherDay(schedule) {
		return ""
	}
	return fmt.Sprintf(
		"%q names days of the month and days of the week: it is due on each day that is either, not only on days that are both", spec)
}

func checkCron(spec string) error {
	if strings.Contains(spec, "TZ=") {
		return errors.New("set the time zone with the key time_zone")
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		if d, err := time.ParseDuration(every); err != nil || d < time.Second {
			return errors.New("it must be @every with a duration of 1s or more, such as @every 90s")
		}
	}
	schedule, err := cronspec.Parse(spec)
	if err != nil {
		return fmt.Errorf("it must be five fields such as 0 9 * * 1-5, or @hourly, @daily, @every 10m (%w)", err)
	}
	if schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return errors.New("there is no such day within five years")
	}
	return nil
}
