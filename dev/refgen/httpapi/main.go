// Command httpapi writes openapi.json, the description of the HTTP API, from the table of routes and the Go types of
// bodies and answers, and docs/events.md from the table of events. "go generate ./httpapi" runs it, in
// the folder dev; a test fails while a file is out of date.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	for target, text := range generated() {
		if err := os.WriteFile(target, text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "refgen/httpapi:", err)
			os.Exit(1)
		}
	}
}

// generated returns the texts of the files, whose names begin in the folder dev.
func generated() map[string][]byte {
	return map[string][]byte{"../httpapi/openapi.json": description(), "../docs/events.md": eventDocument()}
}

// description returns the document.
func description() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(document()); err != nil {
		panic(err) // the document holds only strings, numbers, lists and objects
	}
	return b.Bytes()
}

// An object is a JSON object with ordered members.
type object []member

type member struct {
	name  string
	value any
}

// add returns the object with a member added.
func (o object) add(name string, value any) object { return append(o, member{name, value}) }

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
