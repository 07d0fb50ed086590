package outputs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/outputs"
)

// inPieces writes the content to a Stream in pieces of these sizes, repeatedly.
func inPieces(content []byte, binary bool, raw outputs.Raw, limits outputs.Limits, more bool,
	sizes ...int) (stored []byte, taken outputs.Taken) {
	s := outputs.NewStream(raw, binary, limits)
	for i := 0; len(content) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(content))
		stored = s.Append(stored, content[:n])
		content = content[n:]
	}
	return s.End(stored, more)
}

// A result in pieces gives the same as the whole result, for any pieces.
func FuzzStream(f *testing.F) {
	for _, text := range []string{"", "plain", "日本語 é 😀", "a\xffb", "\xff\xfe\xfd", "\xf0\x9f\x98",
		"\xf0\x9f\x98\x00\x80", "\xff\x00\xff", "\xed\xa0\x80x", "é\xc3", "\x00", "�\xff�"} {
		f.Add([]byte(text), 1, 2, 3, false)
		f.Add([]byte(text), 2, 1, 2, true)
	}
	f.Fuzz(func(t *testing.T, content []byte, a, b, maxChars int, binary bool) {
		limits := outputs.Limits{MaxChars: max(maxChars, 1) % 5000, CallID: "c"}
		raw := outputs.Raw{Text: string(content)}
		if binary {
			raw = outputs.Raw{Bytes: append([]byte{}, content...)}
		}
		want := outputs.Take(raw, limits)
		stored, got := inPieces(content, binary, outputs.Raw{}, limits, false, a%64, b%64)
		whole := []byte(want.Output.Text)
		if binary {
			whole = want.Output.Bytes
		}
		if !bytes.Equal(stored, whole) {
			t.Fatalf("%q is stored, not %q", stored, whole)
		}
		want.Output.Text, want.Output.Bytes, got.Output.Bytes = "", nil, nil
		want.Output.Tokens, got.Output.Tokens = 0, 0 // a guess if there is no media type
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-whole +in pieces)\n%s", diff)
		}
	})
}

func TestStreams(t *testing.T) {
	long := strings.Repeat("日本語 ", 3000)
	for name, c := range map[string]struct {
		content string
		raw     outputs.Raw
		binary  bool
		more    bool
		want    outputs.Raw // the same, whole
	}{
		"text":           {long, outputs.Raw{}, false, false, outputs.Raw{Text: long}},
		"there was more": {long, outputs.Raw{}, false, true, outputs.Raw{Text: long, Incomplete: true}},
		"cut in a character": {long + "\xe6\x97", outputs.Raw{}, false, true, outputs.Raw{Text: long,
			Incomplete: true}},
		"ends in half a character": {long + "\xe6\x97", outputs.Raw{}, false, false,
			outputs.Raw{Text: long + "\xe6\x97"}},
		"its size is known": {long, outputs.Raw{Size: 1 << 30, MediaType: "text/html"}, false, true,
			outputs.Raw{Text: long, Incomplete: true, Size: 1 << 30, MediaType: "text/html"}},
		"JSON by its type": {long, outputs.Raw{MediaType: "application/json"}, false, false,
			outputs.Raw{Text: long, MediaType: "application/json"}},
		"JSON by its beginning": {" [1, 2]", outputs.Raw{}, false, false, outputs.Raw{Text: " [1, 2]"}},
		"binary": {long, outputs.Raw{MediaType: "image/png"}, true, false,
			outputs.Raw{Bytes: []byte(long), MediaType: "image/png"}},
		"binary, there was more": {long, outputs.Raw{}, true, true, outputs.Raw{Bytes: []byte(long),
			Incomplete: true}},
		"nothing": {"", outputs.Raw{}, false, false, outputs.Raw{}},
	} {
		for _, limit := range []int{1, 4000, 6000, 11_999, 12_000, 12_001} {
			t.Run(fmt.Sprint(name, "/", limit), func(t *testing.T) {
				limits := outputs.Limits{MaxChars: limit, CallID: "c"}
				want := outputs.Take(c.want, limits)
				stored, got := inPieces([]byte(c.content), c.binary, c.raw, limits, c.more, 1, 7, 4096)
				if text := want.Output.Text + string(want.Output.Bytes); string(stored) != text {
					t.Errorf("%d bytes are stored, not %d", len(stored), len(text))
				}
				want.Output.Text, want.Output.Bytes, got.Output.Bytes = "", nil, nil
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-whole +in pieces)\n%s", diff)
				}
			})
		}
	}
}
