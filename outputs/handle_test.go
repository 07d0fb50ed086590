package outputs_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/outputs"
)

func TestParseHandle(t *testing.T) {
	part := func(id string, start, end int64) outputs.Handle {
		return outputs.Handle{ID: id, Part: true, Start: start, End: end}
	}
	const wrong = ": the part must be [START:END], two whole numbers of characters, the first not above the second"
	for value, c := range map[string]struct {
		want  outputs.Handle
		ok    bool
		fails bool
	}{
		"output:k3v9x2m4q7ab":                {outputs.Handle{ID: "k3v9x2m4q7ab", End: -1}, true, false},
		"output:round-1-tool-2":              {outputs.Handle{ID: "round-1-tool-2", End: -1}, true, false},
		"output:3":                           {outputs.Handle{ID: "3", End: -1}, true, false},
		"output:a[0:10]":                     {part("a", 0, 10), true, false},
		"output:a[5:5]":                      {part("a", 5, 5), true, false},
		"output:a[:10]":                      {part("a", 0, 10), true, false},
		"output:a[10:]":                      {part("a", 10, -1), true, false},
		"output:a[:]":                        {part("a", 0, -1), true, false},
		"output:a[9223372036854775807:]":     {part("a", 1<<63-1, -1), true, false},
		"output:a[9223372036854775808:]":     {ok: true, fails: true},
		"output:a[2:1]":                      {ok: true, fails: true},
		"output:a[-1:2]":                     {ok: true, fails: true},
		"output:a[1.5:2]":                    {ok: true, fails: true},
		"output:a[1]":                        {ok: true, fails: true},
		"output:a[]":                         {ok: true, fails: true},
		"output:a[ 1:2]":                     {ok: true, fails: true},
		"output:":                            {},
		"output::a":                          {},
		"output: a":                          {},
		"output:a b":                         {},
		"output:a[1:2] and more":             {},
		"output:a[1:2][3:4]":                 {},
		"see output:a":                       {},
		"Output:a":                           {},
		"output:a\n":                         {},
		"output:" + strings.Repeat("a", 300): {},
		"":                                   {},
	} {
		got, ok, err := outputs.ParseHandle(value)
		if ok != c.ok || (err != nil) != c.fails || err != nil && err.Error() != value+wrong ||
			!cmp.Equal(got, c.want) {
			t.Errorf("%q: %+v, %v, %v", value, got, ok, err)
		}
	}
}

// Every text can be written, and a text that is not a handle stays unchanged.
func FuzzLiteral(f *testing.F) {
	for _, text := range []string{"", "x", "output:x", "output::x", "output:", "outputs", "output:::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		written := text
		if rest, ok := strings.CutPrefix(text, "output:"); ok {
			written = "output::" + rest
		}
		if _, ok, err := outputs.ParseHandle(written); ok || err != nil {
			t.Errorf("%q is a handle, error %v", written, err)
		}
		if got := outputs.Literal(written); got != text {
			t.Errorf("%q stands for %q, not for %q", written, got, text)
		}
	})
}
