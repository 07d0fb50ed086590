package outputs

import (
	"cmp"
	"strconv"
	"strings"

	"turnkeeper/internal/arguments"
)

// A Continuation holds the arguments of get_continuation.
type Continuation struct {
	ID     string // id of the call as the model wrote it, or its number in the turn
	Offset *int64 // nil: the first character that the model has not seen
}

// ParseContinuation parses the arguments of get_continuation. Numbers may be strings. Errors
// are Refusals.
func ParseContinuation(args []byte) (Continuation, error) {
	value, err := arguments.Parse(string(args))
	members, isObject := value.Members()
	if err != nil || !isObject {
		return Continuation{}, refusal("the arguments are not a JSON object")
	}
	id := cmp.Or(idOf(members["tool_call_id"]), idOf(members["id"]))
	if id == "" {
		return Continuation{}, refusal("tool_call_id is missing: give the id from the marker at the end of the result")
	}
	c := Continuation{ID: id}
	if members["offset"].Null() {
		return c, nil
	}
	offset, err := strconv.ParseInt(strings.TrimSpace(idOf(members["offset"])), 10, 64)
	if err != nil {
		return Continuation{}, refusal("offset must be a whole number of characters, 0 or more")
	}
	c.Offset = &offset
	return c, nil
}

// An ID is the id of a result as a model wrote it: a string, or the digits of a number. Any
// other JSON gives an empty ID.
type ID string

// UnmarshalJSON decodes an id. It never fails.
func (id *ID) UnmarshalJSON(data []byte) error {
	value, _ := arguments.Parse(string(data)) // null if it cannot be read
	*id = ID(idOf(value))
	return nil
}

// idOf returns a string, or the text of a number, and an empty text for other values.
func idOf(value arguments.Value) string {
	if number, ok := value.Number(); ok {
		return number
	}
	text, _ := value.Text()
	return text
}
