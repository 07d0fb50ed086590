package loose

import (
	"encoding/json"
	"testing"
)

// FuzzSimple checks that a string is decoded as encoding/json would, whichever code decodes it.
func FuzzSimple(f *testing.F) {
	for _, seed := range []string{
		`""`, `"text"`, `"ü日😀\ufffd"`, `"a\"b\\c\/\b\f\n\r\t"`, `"\`, `"\"`, `"\\"`, `"\x"`, `"\u0041"`, `"\ud83c"`,
		`"`, `"a"b"`, `"\n"b"`, `"a" `, `"a"1`, "\"\xff\"", "\"\\n\xed\xa0\x80\"", "\"\n\"", "\"\\n\x01\"",
		"\"\x7f\u2028\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want string
		err := json.Unmarshal(data, &want)
		if got, ok := simple(data); ok && (err != nil || got != want) {
			t.Errorf("%q is read as %q, want %q, %v", data, got, want, err)
		}
		if len(data) > 0 && data[0] == '"' && Scalar(data) != want {
			t.Errorf("%q is read as %q, want %q", data, Scalar(data), want)
		}
	})
}

// TestSimple checks that the texts and arguments that models write are decoded without reflection.
func TestSimple(t *testing.T) {
	for _, data := range []string{`""`, `"two words"`, `"ü日😀"`, `"{\"path\":\"a\\b\",\n\t\"n\":1}"`} {
		if _, ok := simple([]byte(data)); !ok {
			t.Errorf("%s is not simple", data)
		}
	}
}
