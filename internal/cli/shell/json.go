package shell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"turnkeeper/internal/words"
)

// WriteJSON prints a value for programs, indented. Characters that a terminal
// would obey are escaped here too: they can stand only within strings, and
// mean the same there.
func WriteJSON(w io.Writer, value any) error { return encodeJSON(w, value, "  ") }

// WriteJSONLine is writeJSON on one line.
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

// Print prints one answer in the form that was asked for.
func (s *Session) Print(view any, text func()) error {
	if s.JSON() {
		return WriteJSON(s.Stdout, view)
	}
	text()
	return nil
}
