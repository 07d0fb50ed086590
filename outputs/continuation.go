package outputs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A Continuation holds the arguments of get_continuation.
type Continuation struct {
	ID     string // id of the call as the model wrote it, or its number in the turn
	Offset *int64 // nil: the first character that the model has not seen
}

// ParseContinuation parses the arguments of get_continuation. Numbers may be strings. Errors
// are Refusals.
func ParseContinuation(arguments []byte) (Continuation, error) {
	var args struct {
		ToolCallID any `json:"tool_call_id"`
		ID         any `json:"id"`
		Offset     any `json:"offset"`
	}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	if err := decoder.Decode(&args); err != nil {
		return Continuation{}, refusal("the arguments are not a JSON object")
	}
	id := idOf(args.ToolCallID)
	if id == "" {
		id = idOf(args.ID)
	}
	if id == "" {
		return Continuation{}, refusal("tool_call_id is missing: give the id from the marker at the end of the result")
	}
	c := Continuation{ID: id}
	if args.Offset == nil {
		return c, nil
	}
	offset, err := strconv.ParseInt(strings.TrimSpace(idOf(args.Offset)), 10, 64)
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
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		value = nil
	}
	*id = ID(idOf(value))
	return nil
}

// idOf returns a string, or a number as it was written, and an empty text for other values.
func idOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	default:
		return ""
	}
}
