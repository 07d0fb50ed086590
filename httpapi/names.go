package httpapi

import (
	"bytes"
	"encoding/json"
)

// repeated is a name that an object of the JSON text has twice, by what as makes of it;
// empty: none has. What reads the text takes the last, and what was before it, such as a
// proxy that looks for the agent, may have taken the first.
func repeated(text []byte, as func(string) string) string {
	type level struct {
		names map[string]bool // nil: a list
		value bool            // a name was read, and its value comes
	}
	levels := []level{{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return "" // the end, or what is told of by who reads it
		}
		at := &levels[len(levels)-1]
		if name, ok := token.(string); ok && at.names != nil && !at.value {
			if at.names[as(name)] {
				return name
			}
			at.names[as(name)], at.value = true, true
			continue
		}
		at.value = false
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		}
	}
}
