package outputs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A Continuation is what get_continuation was asked for.
type Continuation struct {
	ID     string // the call's id, as the model wrote it, or its ordinal in the turn
	Offset *int64 // nil: the first character that the model has not seen
}

// ParseContinuation reads the arguments of get_continuation. Numbers may come as
// strings. What is wrong is an error in plain words, for the model.
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

// An ID names a result, as a model wrote it: a string, unchanged, or a number, with the
// digits that it was written with. The zero value is that of any other JSON.
type ID string

// UnmarshalJSON never fails.
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

// idOf returns a string or a number as it was written, and nothing for anything else.
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
