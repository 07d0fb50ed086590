package prompt

import (
	"fmt"
	"reflect"
	"slices"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// Difference says where a request does not extend another one, in plain words. It is empty if it does: its tools are
// the same, and its messages are those of the other with more at the end.
func Difference(before, after inference.Request) string {
	if !reflect.DeepEqual(before.Tools, after.Tools) {
		return "the tools differ"
	}
	for i, m := range before.Messages {
		switch {
		case i >= len(after.Messages):
			return fmt.Sprintf("it has only %d of %d messages", len(after.Messages), len(before.Messages))
		case reflect.DeepEqual(m, after.Messages[i]):
		case i == 0 && m.Role == inference.RoleSystem:
			return "the system prompt differs"
		default:
			return fmt.Sprintf("message %d of %d differs, of the role %s", i+1, len(before.Messages), m.Role)
		}
	}
	if len(after.Messages) == len(before.Messages) {
		return "it has no message more"
	}
	return ""
}

// Before returns the turn and round of the request that a request of a turn extends. ok is false if it extends none, or
// if the other turn is not in the record.
func Before(record *turnlog.Record, number int) (turn turnkeeper.TurnID, round int, ok bool) {
	r := record.Rounds[number-1].Recipe
	if r == nil || r.Start != nil {
		return 0, 0, false
	}
	for n := number - 1; n > 0; n-- {
		if other := record.Rounds[n-1].Recipe; other != nil {
			return record.Turn.ID, n, other.Epoch == r.Epoch
		}
	}
	at, found := indexOf(record.History, r.After)
	if !found {
		return 0, 0, false
	}
	for _, past := range slices.Backward(record.History[:at+1]) {
		for _, round := range slices.Backward(past.Rounds) {
			if round.Recipe != nil && round.Recipe.Epoch == r.Epoch {
				return past.TurnID, round.Number, true
			}
		}
	}
	return 0, 0, false
}
