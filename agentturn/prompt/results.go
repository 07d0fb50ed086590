package prompt

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// Results that the program writes in place of a tool.
const (
	// ShownUnknown is the result of a started call of effect once whose worker was lost.
	ShownUnknown = "outcome unknown: the worker that ran this call was lost. It may or may not have happened. " +
		"It is not run again; check before you rely on it."
	// ShownNotRun is the result of a call that was not started.
	ShownNotRun = "cancelled: the turn ended before this call was run."
	// ShownNoTime is the prefix of the result of a call that the lease is too short for.
	ShownNoTime = turnlog.Denied + turnlog.RefusedNoTime
)

// WithAge returns what is shown of a result that was kept since an equal call: it says how old it is.
func WithAge(shown string, handle outputs.Placeholder, age time.Duration) string {
	return WithNote(shown, handle, "[This result is kept: it is "+ageOf(age)+" old. The tool was not run again.]")
}

// WithNote returns what is shown of a result with a note of the program before it. A handle stays in front, because
// Handled looks for it there.
func WithNote(shown string, handle outputs.Placeholder, note string) string {
	if strings.HasPrefix(shown, handle.Head()) {
		return shown + "\n\n" + note
	}
	return note + "\n\n" + shown
}

// ageOf returns a time in whole seconds, minutes or hours.
func ageOf(age time.Duration) string {
	n, unit := int64(age/time.Second), "second"
	switch {
	case age >= 2*time.Hour:
		n, unit = int64(age/time.Hour), "hour"
	case age >= 2*time.Minute:
		n, unit = int64(age/time.Minute), "minute"
	case n == 0:
		return "less than a second"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// WentOn reports whether a call runs or ran in the background, or detached: the model was
// given a handle before there was a result.
func WentOn(call turnkeeper.ToolCall) bool {
	return call.OutputID != "" && strings.HasPrefix(call.Shown, outputs.Placeholder{ID: call.OutputID,
		Tool: call.Name}.Background())
}

// Handled reports whether the model knows the call's output by its handle.
func Handled(call turnkeeper.ToolCall) bool {
	return call.OutputID != "" && strings.HasPrefix(call.Shown, outputs.Placeholder{ID: call.OutputID,
		Tool: call.Name}.Head())
}

// modeOf returns the mode of a call of get_tool_output, or "" of another call.
func modeOf(call *turnkeeper.ToolCall) string {
	var args struct {
		Mode string `json:"mode"`
	}
	if call.Name != turnkeeper.ToolGetToolOutput || json.Unmarshal([]byte(call.Arguments), &args) != nil {
		return ""
	}
	return args.Mode
}

// CallsOf returns the calls of rounds in the order the model asked for them.
func CallsOf(rounds []turnkeeper.Round) []turnkeeper.ToolCall {
	n := 0
	for i := range rounds {
		n += len(rounds[i].Calls)
	}
	calls := slices.Grow([]turnkeeper.ToolCall(nil), n)
	for i := range rounds {
		calls = append(calls, rounds[i].Calls...)
	}
	return calls
}

// eachCall yields the calls of rounds in the order of CallsOf, without copying them.
func eachCall(rounds []turnkeeper.Round) iter.Seq[*turnkeeper.ToolCall] {
	return func(yield func(*turnkeeper.ToolCall) bool) {
		for i := range rounds {
			for j := range rounds[i].Calls {
				if !yield(&rounds[i].Calls[j]) {
					return
				}
			}
		}
	}
}

// anyCall reports whether is selects a call of the rounds.
func anyCall(rounds []turnkeeper.Round, is func(turnkeeper.ToolCall) bool) bool {
	for call := range eachCall(rounds) {
		if is(*call) {
			return true
		}
	}
	return false
}

// IndexOf returns the index of the call with an id, or -1. The id may be, in this order of precedence, the id on the
// wire, the output's id or the call's key, the id that the provider sent, or the call's number in the turn.
func IndexOf(calls []turnkeeper.ToolCall, id string) int {
	if i := slices.IndexFunc(calls, func(c turnkeeper.ToolCall) bool { return c.WireID == id }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(calls, func(c turnkeeper.ToolCall) bool {
		return c.OutputID != "" && string(c.OutputID) == id || c.Key.String() == id
	}); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(calls, func(c turnkeeper.ToolCall) bool {
		return c.ProviderID == id
	}); i >= 0 && id != "" {
		return i
	}
	if n, err := strconv.Atoi(id); err == nil && n >= 1 && n <= len(calls) && strconv.Itoa(n) == id {
		return n - 1
	}
	return -1
}

// PastCall returns the newest call of earlier turns whose output has this id, or that requests show with this id, and
// its turn. It returns nil if there is none.
func PastCall(history []turnlog.Past, id string) (turnkeeper.TurnID, *turnkeeper.ToolCall) {
	if id == "" {
		return 0, nil
	}
	for _, past := range slices.Backward(history) {
		for call := range eachCall(past.Rounds) {
			if string(call.OutputID) == id || call.WireID == id || RenamedID(past.TurnID, call.Key) == id {
				return past.TurnID, call
			}
		}
	}
	return 0, nil
}

// Charged returns the number of rounds that count against max_rounds.
func Charged(rounds []turnkeeper.Round) int {
	n := 0
	for _, round := range rounds {
		if round.Charged {
			n++
		}
	}
	return n
}
