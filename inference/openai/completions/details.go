package completions

import (
	"bytes"
	"encoding/json"

	"turnkeeper/inference/openai/internal/loose"
)

// A detail collects one entry of reasoning_details. The entries must be sent back to
// OpenRouter complete and in order.
type detail struct {
	members map[string]json.RawMessage
	grown   map[string]*loose.Growing // members that come in pieces
}

// grows holds the members of an entry that come in pieces.
var grows = map[string]bool{"text": true, "summary": true, "data": true}

// addDetail adds a piece to the last entry if type and index are the same, else to a new one.
func (a *answer) addDetail(piece json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(piece, &members) != nil {
		return
	}
	var d *detail
	if n := len(a.details); n > 0 && a.details[n-1].continuedBy(members) {
		d = a.details[n-1]
	} else {
		d = &detail{map[string]json.RawMessage{}, map[string]*loose.Growing{}}
		a.details = append(a.details, d)
	}
	for name, value := range members {
		switch {
		case !grows[name] || len(value) == 0 || value[0] != '"':
			if _, known := d.members[name]; !known || !loose.IsNull(value) {
				d.members[name] = value
			}
		case d.grown[name] == nil:
			d.grown[name] = &loose.Growing{}
			fallthrough
		default:
			d.grown[name].Add(loose.FragmentOf(value))
		}
	}
}

func (d *detail) continuedBy(next map[string]json.RawMessage) bool {
	return !loose.IsNull(next["index"]) && bytes.Equal(d.members["index"], next["index"]) &&
		bytes.Equal(d.members["type"], next["type"])
}

func wholeDetails(details []*detail) []map[string]any {
	var whole []map[string]any
	for _, d := range details {
		o := map[string]any{}
		for name, value := range d.members {
			o[name] = value
		}
		for name, value := range d.grown {
			o[name] = value.String()
		}
		whole = append(whole, o)
	}
	return whole
}
