package waiting

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/words"
)

// Long says in a clause what the message waits for. moment formats a time.
func (w Wait) Long(moment func(time.Time) string) string {
	row, _ := RowOf(w.Reason)
	return fill(row.Long, func(field string) string { return w.field(field, moment) })
}

// Short says it for a list. ago formats a time relative to now.
func (w Wait) Short(ago func(time.Time) string) string {
	row, _ := RowOf(w.Reason)
	return fill(row.Short, func(field string) string { return w.field(field, ago) })
}

// Advice says what an operator can do for the message id. worker is the command that starts a worker.
func (w Wait) Advice(id turnkeeper.MessageID, worker string) string {
	row, _ := RowOf(w.Reason)
	return fill(row.Advice, func(field string) string {
		switch field {
		case "id":
			return fmt.Sprint(id)
		case "worker command":
			return worker
		}
		return w.field(field, func(t time.Time) string { return t.UTC().Format(time.RFC3339) })
	})
}

// field returns the text of a field of a row's texts.
func (w Wait) field(name string, format func(time.Time) string) string {
	switch name {
	case "since", "until", "ago", "lease", "since or yet":
		return w.time(name, format)
	case "turn":
		return positive(int64(w.Turn))
	case "message":
		return positive(int64(w.Message))
	case "first": // only if there are several
		if w.Count > 1 {
			return positive(int64(w.Message))
		}
	case "agent":
		return line(w.Agent)
	case "lane":
		return w.lane("its lane")
	case "rival": // of the turn
		if w.Turn != 0 {
			return w.lane("an old lane")
		}
	case "new": // where it moves
		if w.Turn == 0 {
			return w.lane("its new lane")
		}
	case "worker":
		if w.State == turnkeeper.TurnRunning {
			return line(string(w.Worker))
		}
	case "model":
		return line(w.Model)
	case "why":
		return line(w.Why)
	case "doing":
		return w.doing(format)
	case "quiet":
		return words.SilentFor(w.silence())
	case "silence":
		return words.Silence(w.Worker, w.silence(), fmt.Sprintf("turn %d", w.Turn), format)
	default:
		return w.count(name)
	}
	return ""
}

// lane names the lane, or returns hidden: the name is not for a caller whose token is bound to a user.
func (w Wait) lane(hidden string) string {
	if w.Lane == "" {
		return hidden
	}
	return "lane " + line(string(w.Lane))
}

func (w Wait) silence() turnkeeper.Silence {
	return turnkeeper.Silence{For: w.Silent, Stopped: w.Stopped, Until: w.Until}
}

func (w Wait) time(name string, format func(time.Time) string) string {
	at := w.Until
	switch {
	case name == "since":
		at = w.Since
	case name == "since or yet" && w.Since.IsZero():
		return "yet"
	case name == "since or yet":
		return "since " + format(w.Since)
	case name == "lease" && w.State != turnkeeper.TurnRunning, w.Reason == ModelDown && w.Turn != 0:
		return ""
	}
	if at.IsZero() {
		return ""
	}
	return format(at)
}

// count returns Count with its noun.
func (w Wait) count(name string) string {
	switch name {
	case "messages":
		switch {
		case w.Count >= 100:
			return "at least 100 messages"
		case w.Count > 1:
			return words.Plural(w.Count, "message")
		}
		return fmt.Sprintf("message %d", w.Message)
	case "priority":
		return fmt.Sprint(w.Count)
	case "failures":
		return words.Plural(w.Count, "failed turn")
	case "asks":
		return words.Plural(w.Count, "ask")
	case "calls":
		return one(w.Count, "a detached call", "detached call")
	case "agents":
		return one(w.Count, "a sub-agent", "sub-agent")
	case "turns":
		return words.Plural(w.Count, "turn")
	case "slots":
		if w.Count == 1 {
			return "the one slot is taken by another turn"
		}
		return fmt.Sprintf("the %s are taken by other turns", words.Plural(w.Count, "slot"))
	}
	return ""
}

func one(n int, single, noun string) string {
	if n == 1 {
		return single
	}
	return words.Plural(n, noun)
}

// doing says what the turn in the way does, unless it runs.
func (w Wait) doing(format func(time.Time) string) string {
	switch {
	case w.State == turnkeeper.TurnWaiting && w.Reason == ConversationHeld:
		return "waits for a person"
	case w.State == turnkeeper.TurnWaiting:
		return "waits"
	case w.State == turnkeeper.TurnQueued && !w.Until.IsZero():
		return "is deferred until " + format(w.Until)
	case w.State == turnkeeper.TurnQueued:
		return "is queued"
	}
	return ""
}

func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// line returns untrusted text on one line, without its full stop.
func line(text string) string { return words.Clause(words.Brief(text, 300)) }

var (
	optional = regexp.MustCompile(`\[[^\[\]]*\]`)
	fields   = regexp.MustCompile(`\{[^{}]*\}`)
)

// fill replaces the fields of a text, and drops the parts in brackets whose field is empty.
func fill(text string, value func(field string) string) string {
	replace := func(part string) (filled string, whole bool) {
		whole = true
		filled = fields.ReplaceAllStringFunc(part, func(field string) string {
			v := value(strings.Trim(field, "{}"))
			whole = whole && v != ""
			return v
		})
		return filled, whole
	}
	var b strings.Builder
	for {
		at := optional.FindStringIndex(text)
		if at == nil {
			last, _ := replace(text)
			return b.String() + last
		}
		before, _ := replace(text[:at[0]])
		b.WriteString(before)
		if part, whole := replace(text[at[0]+1 : at[1]-1]); whole {
			b.WriteString(part)
		}
		text = text[at[1]:]
	}
}

// Generic returns a text of a row for documents: fields are in capitals, and nothing is left out.
func Generic(text string) string {
	return fields.ReplaceAllStringFunc(strings.NewReplacer("[", "", "]", "").Replace(text), func(field string) string {
		return strings.ToUpper(strings.Trim(field, "{}"))
	})
}

// Standing returns the status of a message for a list. note says what an open message waits for. ago formats a time
// relative to now.
func Standing(m Message, ago func(time.Time) string) (state, note string) {
	state = string(m.State)
	w, found := Main(m.Waits)
	if !found {
		return state, ""
	}
	if w.State == turnkeeper.TurnQueued && m.State == turnkeeper.MessageRunning && !w.Until.IsZero() &&
		w.Turn == m.TurnID {
		state = "deferred"
	}
	if models := m.WaitsFor; w.Model != "" && len(models) > 0 {
		return state, "for " + words.Brief(strings.Join(models, ", "), 120)
	}
	return state, w.Short(ago)
}

// Main returns the reason that a list shows: the first that is not minor, or else the first.
func Main(waits []Wait) (main Wait, found bool) {
	for _, w := range waits {
		if row, _ := RowOf(w.Reason); !row.Minor {
			return w, true
		}
	}
	if len(waits) == 0 {
		return main, false
	}
	return waits[0], true
}

// For says, behind "waits for", what a turn waits for that is parked for these reasons.
func For(reasons []Reason) string {
	var all []string
	for _, r := range reasons {
		row, _ := RowOf(r)
		all = append(all, cmp.Or(row.Parked, words.Brief(string(r), 64)))
	}
	return words.Enumerate(all)
}

// ParkedFor returns what a turn is parked for that has open asks, detached calls and calls of sub-agents.
func ParkedFor(asks, calls, spawns bool) (reasons []Reason) {
	for _, r := range []struct {
		reason Reason
		holds  bool
	}{{Person, asks}, {SubAgents, spawns}, {DetachedCalls, calls}} {
		if r.holds {
			reasons = append(reasons, r.reason)
		}
	}
	return reasons
}

// Parking returns those of the reasons for which a turn is parked, each once.
func Parking(waits []Wait) (reasons []Reason) {
	for _, w := range waits {
		if row, _ := RowOf(w.Reason); row.Parked != "" && !slices.Contains(reasons, w.Reason) {
			reasons = append(reasons, w.Reason)
		}
	}
	return reasons
}

// Awaited says, behind "waits for", what a parked turn waits for, with numbers where they are known.
func (w Wait) Awaited() string {
	switch row, _ := RowOf(w.Reason); {
	case w.Count > 0 && w.Reason == Person:
		return "a person to answer " + words.Plural(w.Count, "ask")
	case w.Count > 0 && w.Reason == DetachedCalls:
		return words.Plural(w.Count, "detached call")
	case w.Model != "":
		return "model " + line(w.Model)
	default:
		return row.Parked
	}
}

// Doing says, for a list, what an open turn does or waits for. It returns "" if the state says it all. ago formats a
// time relative to now.
func Doing(t Turn, ago func(time.Time) string) string {
	if text := words.Doing(t.Turn); text != "" {
		return text
	}
	if w, found := Main(t.Waits); found {
		return w.Short(ago)
	}
	return ""
}

// Brief counts the turns of a tally, for a list: "2 for a person".
func (t Tally) Brief() string {
	return fmt.Sprintf("%s for %s", words.Thousands(int64(t.Turns)), For([]Reason{t.Reason}))
}

// Long is like Brief, with when the longest of the waits began, and when the first ends. ago formats a time relative to
// now.
func (t Tally) Long(ago func(time.Time) string) string {
	var times []string
	if !t.Since.IsZero() {
		times = append(times, "the oldest began "+ago(t.Since))
	}
	if !t.Until.IsZero() {
		times = append(times, "the first ends "+ago(t.Until))
	}
	if len(times) == 0 {
		return t.Brief()
	}
	return t.Brief() + ": " + strings.Join(times, ", ")
}

// Notes returns, for a list, the main reason of each group of waits: "for a person, outside it: behind turn 3". The
// groups after the first are of turns outside the row's lane.
func Notes(ago func(time.Time) string, inside, outside []Wait) string {
	var notes []string
	if w, found := Main(inside); found {
		notes = append(notes, w.Short(ago))
	}
	if w, found := Main(outside); found {
		notes = append(notes, fmt.Sprintf("turn %d outside: %s", w.Turn, w.Short(ago)))
	}
	return strings.Join(notes, "; ")
}
