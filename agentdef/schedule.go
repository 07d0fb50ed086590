package agentdef

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

func (r *reader) schedules(name string, v *strictyaml.Node) {
	entries := []*strictyaml.Node{v}
	if v.Kind == strictyaml.List {
		entries = v.Items
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		schedule := r.schedule(name+".", entry)
		if seen[schedule.Name] {
			r.Add(entry.Line, "two schedules have the name %q: give each its own name", schedule.Name)
		}
		seen[schedule.Name] = true
		r.def.Schedules = append(r.def.Schedules, schedule)
	}
}

func (r *reader) schedule(where string, v *strictyaml.Node) Schedule {
	s := Schedule{
		Name: "default", TimeZone: "UTC", Conversation: "main",
		Message: fmt.Sprintf("Scheduled run of %s.", r.def.Name), History: HistoryLast,
	}
	given := false
	r.Fields(where, v, names(where), func(key string, v *strictyaml.Node) {
		value := r.text(where+key, v)
		if v.Kind != strictyaml.Text {
			given = given || key == "cron"
			return
		}
		var err error
		switch key {
		case "name":
			s.Name, err = value, checkForm(value)
		case "cron":
			given = true
			s.Cron, err = ParseCron(value)
		case "time_zone":
			s.TimeZone, err = value, checkTimeZone(value)
		case "conversation":
			s.Conversation, err = value, r.checkConversation(value)
		case "message":
			s.Message, err = value, checkMessage(value)
		case "history":
			s.History, err = History(value), checkHistory(value)
		}
		if err != nil {
			r.Add(v.Line, "%s%s is %q: %v", where, key, value, err)
		}
	})
	if !given && v.Kind == strictyaml.Map {
		r.Add(v.Line, "%scron is missing: say when the agent runs, such as cron: \"0 9 * * *\"", where)
	}
	return s
}

func checkForm(name string) error {
	if !scheduleForm.MatchString(name) {
		return errors.New("it must be 1 to 64 of a-z A-Z 0-9 . _ -")
	}
	return nil
}

// ParseCron returns a schedule's spec with single spaces, for agents' files and for who changes a schedule. Its
// error says what to write: five cron fields or a word such as @daily or @every 10m, which come due within
// five years, and do not name a time zone. With an error it returns the text as it is.
func ParseCron(text string) (spec string, err error) {
	spec = strings.Join(strings.Fields(text), " ")
	if err := checkCron(spec); err != nil {
		return text, err
	}
	return spec, nil
}

func checkCron(spec string) error {
	if strings.Contains(spec, "TZ=") {
		return errors.New("give the time zone by the key time_zone")
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		if d, err := time.ParseDuration(every); err != nil || d < time.Second {
			return errors.New("it must be @every with a duration of 1s or more, such as @every 90s")
		}
	}
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return fmt.Errorf("it must be five fields such as 0 9 * * 1-5, or @hourly, @daily, @every 10m (%w)", err)
	}
	if schedule.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return errors.New("no such day comes in five years")
	}
	return nil
}

func checkTimeZone(name string) error {
	if _, err := time.LoadLocation(name); err != nil || name == "" || name == "Local" {
		return errors.New("it must be an IANA time zone such as UTC or Europe/Berlin")
	}
	return nil
}

// checkConversation counts as the inbox does. A recorded definition, which makes no
// messages, may be from when characters were counted.
func (r *reader) checkConversation(name string) error {
	long := len(name) > turnkeeper.MaxKeyLength && r.def.Path != ""
	if strings.TrimSpace(name) == "" || long || strings.ContainsAny(name, "\n\r\x00") {
		return fmt.Errorf("it must be 1 to %d bytes on one line", turnkeeper.MaxKeyLength)
	}
	return nil
}

func checkHistory(word string) error {
	switch History(word) {
	case HistoryNone, HistoryLast, HistoryAll:
		return nil
	}
	return errors.New("it must be none, last or all")
}

func checkMessage(message string) error {
	if strings.TrimSpace(message) == "" {
		return errors.New("it must not be empty")
	}
	return nil
}
