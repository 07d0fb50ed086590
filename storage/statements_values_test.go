package storage_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// result returns a result of a query as text: the fields of structs that are not zero, by name.
func (w *world) result(name string, v reflect.Value) string {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "null"
		}
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		var parts []string
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			if (!v.Field(i).IsZero() || ofClock.MatchString(field)) && !slices.Contains(differs, field) {
				parts = append(parts, field+" "+w.result(field, v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return w.value(name, v.Interface())
}

// value returns a value as text. Of numbers that a clock gave, it returns the minutes.
func (w *world) value(name string, v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case time.Time:
		return w.when(v)
	case time.Duration:
		return w.lasts(v)
	case pgtype.Interval:
		return w.lasts(time.Duration(v.Microseconds)*time.Microsecond + time.Duration(v.Days)*24*time.Hour)
	case [16]byte:
		return w.plain(pgtype.UUID{Bytes: v, Valid: true}.String())
	case string:
		return fmt.Sprintf("'%s'", w.plain(v))
	case json.RawMessage:
		return w.plain(string(v))
	case []byte:
		if strings.HasPrefix(string(v), "[") || strings.HasPrefix(string(v), "{") {
			return w.plain(string(v))
		}
		return fmt.Sprintf("%x", v)
	case []string:
		return w.plain(fmt.Sprintf("%q", v))
	case float32, float64:
		return "about " + (time.Duration(reflect.ValueOf(v).Float()) * time.Second).Round(time.Minute).String()
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return w.value(name, n)
		}
		return v.String()
	case int64:
		unit := time.Millisecond
		if strings.HasSuffix(name, "Us") || strings.HasSuffix(name, "_us") {
			unit = time.Microsecond
		}
		// Cases write durations of one to two seconds; others are of the clock.
		if d := time.Duration(v) * unit; ofClock.MatchString(name) && (!stored.MatchString(name) || d < time.Second ||
			d > 2*time.Second) {
			return "about " + d.Round(time.Minute).String()
		}
		return fmt.Sprint(v)
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return w.plain(string(text))
	default:
		return w.plain(fmt.Sprint(v))
	}
}

// lasts returns a duration as text: in minutes, unless it is a whole number of seconds.
func (w *world) lasts(d time.Duration) string {
	if d%time.Second == 0 {
		return d.String()
	}
	return "about " + d.Round(time.Minute).String()
}

var (
	ownUUID = regexp.MustCompile(`00000000-0000-0000-0000-0*(\d+)`)
	anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	aTime   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00(:00)?|Z)?`)
	stored  = regexp.MustCompile(`(?i)^(duration|latency)_?ms$`)
	ofClock = regexp.MustCompile(`(_us|_ms|_seconds|Us|Ms|Seconds)$`)
	shorter = regexp.MustCompile(`(h|m)(0m)?0s$`)
)

// differs are results that differ with each run.
var differs = []string{
	"DayLeft", "TookUs", "FirstOpen", "OwnID", "Bytes",
	"Version", "MaxConnections", "Encoding", "Fsync", "SynchronousCommit", "FullPageWrites", // of the server
}

// plain returns a text without what differs between runs.
func (w *world) plain(s string) string {
	s = ownUUID.ReplaceAllString(s, "u($1)")
	s = anyUUID.ReplaceAllString(s, "a new UUID")
	s = aTime.ReplaceAllString(s, "a time")
	s = strings.ReplaceAll(s, w.now.UTC().Format(time.DateOnly), "today")
	s = strings.ReplaceAll(s, "\n", `\n`)
	if len(s) > 2000 {
		s = fmt.Sprintf("%s ... %d bytes", s[:50], len(s))
	}
	return s
}

// when returns a time as the distance from at('0') if it is a time of the world, else from the beginning of the case.
func (w *world) when(t time.Time) string {
	switch next := w.now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour); {
	case t.Unix() == 0:
		return "1970"
	case t.Year() < 2020 || t.Year() > 2100:
		return t.UTC().Format(time.DateOnly)
	case t.Sub(w.began)%time.Second == 0:
		return "at " + short(t.Sub(w.began))
	case t.Equal(next):
		return "midnight"
	case t.Nanosecond() == 0:
		return "a whole second, now " + short(t.Sub(w.now).Round(time.Minute))
	case t.Equal(w.started):
		return "the server's start"
	default:
		return "now " + short((t.Sub(w.now) + early).Truncate(time.Second))
	}
}

func short(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return shorter.ReplaceAllString(d.String(), "$1")
}
