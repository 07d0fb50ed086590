package shell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"turnkeeper/internal/words"
)

// WriteJSON writes a value as indented JSON. It escapes terminal control
// characters: they occur only within strings, where the escape means the same.
func WriteJSON(w io.Writer, value any) error { return encodeJSON(w, value, "  ") }

// WriteJSONLine is WriteJSON on one line.
func WriteJSONLine(w io.Writer, value any) error { return encodeJSON(w, value, "") }

func encodeJSON(w io.Writer, value any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	var out bytes.Buffer
	for _, r := range b.String() {
		if words.Obeyed(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// Print writes view as JSON with -o json, and else calls text.
func (s *Session) Print(view any, text func()) error {
	if s.JSON() {
		return WriteJSON(s.Stdout, view)
	}
	text()
	return nil
}
