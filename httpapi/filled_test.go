package httpapi_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
)

// A filler gives each field of a value a value of its own: its name and a number, a later time than that of the field
// before, the next state of those that its type has. The same steps give the same values. So a field that is shown in
// place of another one, or not at all, changes what is recorded.
type filler struct {
	n    int64
	next map[string]int // by type or name: the number of choices so far
}

// entries is the number of entries of a list, and nested that of a list in a value.
const (
	entries = 7
	nested  = 2
)

// zeroTime is when the stand-in's first record was made. In a bubble of synctest it is a day ago.
var zeroTime = time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)

// choices are the values of texts that are more than texts, by type or else by name.
var choices = map[string][]string{
	"turnkeeper.TurnState": texts(turnkeeper.TurnQueued, turnkeeper.TurnRunning, turnkeeper.TurnWaiting,
		turnkeeper.TurnSucceeded, turnkeeper.TurnDegraded, turnkeeper.TurnFailed, turnkeeper.TurnCancelled),
	"turnkeeper.MessageState": texts(turnkeeper.MessageWaiting, turnkeeper.MessageRunning, turnkeeper.MessageSucceeded,
		turnkeeper.MessageDegraded, turnkeeper.MessageFailed, turnkeeper.MessageCancelled),
	"turnkeeper.CallState": texts(turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning,
		turnkeeper.CallSucceeded, turnkeeper.CallFailed, turnkeeper.CallSkipped,
		turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled),
	"turnkeeper.Effect":  texts(turnkeeper.EffectNone, turnkeeper.EffectKeyed, turnkeeper.EffectOnce),
	"turnkeeper.Trigger": texts(turnkeeper.TriggerMessage, turnkeeper.TriggerSchedule),
	"turnkeeper.StopReason": texts(turnkeeper.StopNone, turnkeeper.StopMaxRounds, turnkeeper.StopBudget,
		turnkeeper.StopInferenceError),
	"asks.State": texts(asks.Open, asks.Approved, asks.Denied, asks.Answered, asks.Expired, asks.Withdrawn),
	"asks.Kind": texts(asks.KindApprove, asks.KindQuestion, asks.KindInput, asks.KindSettle,
		asks.KindBudget, asks.KindReply),
	"survival.Level":       texts(survival.Low, survival.Critical, survival.Normal),
	"outbox.DeliveryState": texts(outbox.DeliveryPending, outbox.DeliveryDelivered, outbox.DeliveryDead),
	"turnlog.WantedEnd":    texts(turnlog.EndFinish, turnlog.EndCancel),
	"turnlog.SpawnFailure": {string(turnlog.SpawnUnknownAgent), ""},
	"granting.SubjectKind": texts(granting.AsideMessage, granting.AsideTurn, granting.AsideCall, granting.AsideAsk,
		granting.AsideSubAgent, granting.AsideSchedule),
	"waiting.Reason": reasons(),

	"Agent": {"clerk", "desk"}, "User": {"anna", "", "bert"}, "Outcome": {"finished", "lost", "handed_back", "deferred",
		"unclaimed", "waiting"},
	"Cron": {"@daily"}, "CronOverride": {"0 7 * * *", ""}, "TimeZone": {"UTC"}, "FinishReason": {"stop", "length"},
	"Finish":   {"length", "stop"},
	"SQLState": {"40001", ""}, "Code": {"55P03", ""}, "RefusedCode": {"57014"}, "ErrorClass": {"overloaded", "refused",
		""}, "MediaType": {"text/plain"}, "Version": {"170002"},
	"Labels": {"private", "untrusted"}, "Roles": {"worker", "http"}, "Scopes": everything,
}

func texts[S ~string](all ...S) (texts []string) {
	for _, s := range all {
		texts = append(texts, string(s))
	}
	return texts
}

func reasons() (all []string) {
	for _, row := range waiting.Rows {
		all = append(all, string(row.Reason))
	}
	return all
}

// filled returns a value all of whose fields have a value. A list has a few entries, every third of them with zero
// fields where a field may be left out.
func filled[V any]() (v V) {
	f := &filler{next: map[string]int{}}
	f.fill(reflect.ValueOf(&v).Elem(), "", entries)
	return v
}

func (f *filler) choose(kind string) (text string, known bool) {
	all := choices[kind]
	if len(all) == 0 {
		return "", false
	}
	f.next[kind]++
	return all[(f.next[kind]-1)%len(all)], true
}

func (f *filler) fill(v reflect.Value, name string, length int) {
	f.n++
	switch to := v.Addr().Interface().(type) {
	case *time.Time:
		*to = zeroTime.Add(time.Duration(f.n) * time.Second)
		return
	case *time.Duration:
		*to = time.Duration(f.n) * 1001 * time.Millisecond
		return
	case *json.RawMessage:
		*to = fmt.Appendf(nil, `{"%s":%d}`, name, f.n)
		return
	case *[]byte:
		*to = fmt.Appendf(nil, "---\ntools: [read_file]\nsub_agents: [clerk, desk]\n---\nYou are number %d.\n", f.n)
		if name == "Levels" {
			*to = []byte(`{"low":{"models":["p/small"],"no_schedules":true},"critical":{"min_priority":5}}`)
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.n%2 == 0)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(f.n)
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.String:
		v.SetString(f.text(v.Type().String(), name))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name, length)
	case reflect.Slice:
		f.fillList(v, name, length)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range nested {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, name, nested)
			f.fill(value, name, nested)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				f.fill(v.Field(i), field.Name, nested)
			}
		}
	}
}

func (f *filler) fillList(v reflect.Value, name string, length int) {
	v.Set(reflect.MakeSlice(v.Type(), length, length))
	for i := range length {
		f.fill(v.Index(i), name, nested)
		if length > nested && i%3 == 1 && v.Index(i).Kind() == reflect.Struct {
			spare(v.Index(i))
		}
	}
}

func (f *filler) text(kind, name string) string {
	if text, known := f.choose(kind); known {
		return text
	}
	if text, known := f.choose(name); known {
		return text
	}
	switch name {
	case "Arguments", "RawArgs", "RunArgs", "Answer", "Edited", "Schema":
		return fmt.Sprintf(`{"%s":%d}`, strings.ToLower(name), f.n)
	case "Body", "Reason", "Error", "Text":
		return fmt.Sprintf("%s %d <b>&\u202e", name, f.n)
	}
	return fmt.Sprintf("%s-%d", name, f.n)
}

// spare sets the fields of an entry that may be left out to zero.
func spare(v reflect.Value) {
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case !v.Type().Field(i).IsExported():
		case v.Type().Field(i).Anonymous && field.Kind() == reflect.Struct:
			spare(field)
		case name == "ID", name == "Agent", name == "Name", strings.HasSuffix(name, "State"), name == "Kind",
			name == "CreatedAt", name == "AcceptedAt", name == "Message":
		default:
			field.SetZero()
		}
	}
}
