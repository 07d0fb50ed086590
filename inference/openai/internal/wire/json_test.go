package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzEncoding checks that requests are encoded as encoding/json would, so that a stored request
// can be rebuilt byte for byte.
func FuzzEncoding(f *testing.F) {
	var every strings.Builder
	for r := rune(0); r < 0x3000; r++ {
		every.WriteRune(r)
	}
	for _, seed := range []string{every.String(), "", "\xff\uFFFD\xe2\x80", "\U0001F600\xed\xa0\x80", `<a&b>"\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, _ := Encode(s)
		value := Object{s: s, "raw": json.RawMessage(" " + string(raw) + " "), "list": []Object{{s: 1, "b": true}, {}},
			"none": nil, "t": 0.25}
		want, err := Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Append(nil, value)
		if err != nil || string(got) != string(want) || !utf8.Valid(got) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	})
}
