package storesuite

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/turnlog"
)

// A fact is one value that a store returned, in a form that can be compared with that of another store: ids by name,
// and times as the distance from the store's clock.
type fact struct {
	path, text string
	distance   time.Duration // of a time from now, or a duration
}

func (f fact) String() string {
	if f.distance != 0 {
		return fmt.Sprintf("%s%s", f.text, f.distance.Round(time.Second))
	}
	return f.text
}

// tolerance is the maximum difference between the times of two stores, plus twice the duration of the slowest step,
// because the stores run each operation one after the other. A program uses only times that are further apart.
const tolerance = 4 * time.Second

func (f fact) equal(other fact, slowest time.Duration) bool {
	return f.text == other.text && (f.distance-other.distance).Abs() < tolerance+2*slowest
}

// A facts collects what a store returns.
type facts struct {
	names map[any]string // of ids: the n-th of their type that was read
	count map[reflect.Type]int
	now   time.Time
	all   []fact
	added map[string]int // values by path
	raw   []string       // errors without a meaning
}

func newFacts() *facts {
	return &facts{names: map[any]string{}, count: map[reflect.Type]int{}, added: map[string]int{}}
}

// named are the types of ids that a store allocates, with the prefixes of their names.
var named = map[reflect.Type]string{
	reflect.TypeFor[turnkeeper.MessageID](): "m", reflect.TypeFor[turnkeeper.TurnID](): "t",
	reflect.TypeFor[turnkeeper.GrantID](): "g",
	reflect.TypeFor[turnkeeper.JobID]():   "j", reflect.TypeFor[turnkeeper.ReplyID](): "r",
	reflect.TypeFor[asks.ID]():         "ask",
	reflect.TypeFor[turnlog.ClaimID](): "claim",
	reflect.TypeFor[token]():           "token ",
}

// A token is that of a grant. A grant that is undone may leave a gap in the sequence of tokens.
type token int64

// name returns the name of an id: m3 is the third message that was read.
func (f *facts) name(id any) string {
	v := reflect.ValueOf(id)
	if v.IsZero() {
		return "-"
	}
	if f.names[id] == "" {
		f.count[v.Type()]++
		f.names[id] = named[v.Type()] + strconv.Itoa(f.count[v.Type()])
	}
	return f.names[id]
}

// turnIn finds the id of a turn in the name of a conversation, a lane or a sender.
var turnIn = regexp.MustCompile(`(turn[-: ]|[@#])(\d+)`)

func (f *facts) text(s string) string {
	return turnIn.ReplaceAllStringFunc(s, func(found string) string {
		parts := turnIn.FindStringSubmatch(found)
		id, _ := strconv.ParseInt(parts[2], 10, 64)
		return parts[1] + f.name(turnkeeper.TurnID(id))
	})
}

// add adds a value with all that is in it.
func (f *facts) add(path string, value any) {
	if f.added[path]++; f.added[path] > 1 {
		path = fmt.Sprintf("%s, number %d", path, f.added[path])
	}
	f.walk(path, reflect.ValueOf(value))
}

// begin forgets the facts, but not the names.
func (f *facts) begin() { f.all, f.added, f.raw = nil, map[string]int{}, nil }

func (f *facts) put(path, text string, distance time.Duration) {
	f.all = append(f.all, fact{path, text, distance})
}

func (f *facts) walk(path string, v reflect.Value) {
	if !v.IsValid() || v.Kind() == reflect.Func || slices.ContainsFunc(differs, func(d string) bool {
		return strings.HasSuffix(path, d)
	}) {
		return
	}
	switch value := v.Interface().(type) {
	case time.Time:
		if !value.IsZero() {
			f.put(path, "now+", value.Sub(f.now))
		}
		return
	case time.Duration:
		f.put(path, "", value)
		return
	case error:
		f.put(path, f.outcome(value), 0)
		return
	case []byte:
		f.put(path, hex.EncodeToString(value), 0)
		return
	}
	if strings.HasSuffix(path, ".Token") && v.Kind() == reflect.Int64 {
		v = reflect.ValueOf(token(v.Int()))
	}
	if _, ok := named[v.Type()]; ok {
		f.put(path, f.name(v.Interface()), 0)
		return
	}
	f.walkKind(path, v)
}

func (f *facts) walkKind(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			f.walk(path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				f.walk(path+"."+field.Name, v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Len() > 0 {
			f.put(path, fmt.Sprint(v.Len(), " of them"), 0)
		}
		for i := range v.Len() {
			f.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range keys {
			f.walk(fmt.Sprintf("%s[%v]", path, k), v.MapIndex(k))
		}
	default:
		if !v.IsZero() {
			f.put(path, f.text(fmt.Sprint(v.Interface())), 0)
		}
	}
}

// difference returns how the facts of two stores differ, at most ten lines; empty: they agree.
func difference(names [2]string, a, b []fact, slowest time.Duration) string {
	var lines []string
	other := map[string]fact{}
	for _, f := range b {
		other[f.path] = f
	}
	for _, f := range a {
		got, ok := other[f.path]
		delete(other, f.path)
		switch {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s: %s %q, %s nothing", f.path, names[0], f, names[1]))
		case !f.equal(got, slowest):
			lines = append(lines, fmt.Sprintf("%s: %s %q, %s %q", f.path, names[0], f, names[1], got))
		}
	}
	for _, f := range b {
		if _, ok := other[f.path]; ok {
			lines = append(lines, fmt.Sprintf("%s: %s nothing, %s %q", f.path, names[0], names[1], f))
		}
	}
	return strings.Join(lines[:min(len(lines), 12)], "\n")
}
