package outputs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/outputs"
)

// TestCutsBetweenCharacters cuts texts at each byte: no character is split.
func TestCutsBetweenCharacters(t *testing.T) {
	for _, text := range []string{"abcdef", "éèüöä", "日本語日本", "😀😁😂", "a日b😀é", "\xff\xfe\xfd\xfc\xfb", "a\x80b\x80",
		"\x80\x80\x80\x80\x80\x80", "x\x00y"} {
		for limit := 1; limit <= len(text)+1; limit++ {
			out := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{MaxBytes: limit}).Output
			cut := limit
			for cut < len(text) && cut > 0 && utf8.ValidString(text) && !utf8.RuneStart(text[cut]) {
				cut--
			}
			want := strings.ReplaceAll(strings.ToValidUTF8(text[:min(cut, len(text))], "\uFFFD"), "\x00", "")
			if out.Text != want || out.Incomplete != (limit < len(text)) {
				t.Errorf("%q at %d: %q, want %q; incomplete %t", text, limit, out.Text, want, out.Incomplete)
			}
		}
	}
	if got := outputs.Clean("\x00a\x00"); got != "a" {
		t.Errorf("a NUL at the start: %q", got)
	}
}

func TestHandlesOnEitherSideOfABound(t *testing.T) {
	long := "output:" + strings.Repeat("a", outputs.MaxHandleBytes-len("output:"))
	if h, ok, err := outputs.ParseHandle(long); !ok || err != nil || len(h.ID) != len(long)-len("output:") {
		t.Errorf("the longest: %v, %v", ok, err)
	}
	if _, ok, _ := outputs.ParseHandle(long + "a"); ok {
		t.Error("a longer one is a handle")
	}
	for value, fails := range map[string]bool{"output:a[0:0]": false, "output:a[1:0]": true, "output:a[:0]": false} {
		if _, ok, err := outputs.ParseHandle(value); !ok || (err != nil) != fails {
			t.Errorf("%s: %v, %v", value, ok, err)
		}
	}
	for value, want := range map[string]string{"output::a": "output:a", "output:a": "output:a",
		"x output::a": "x output::a", "output:::": "output::", "": ""} {
		if got := outputs.Literal(value); got != want {
			t.Errorf("%q means %q, want %q", value, got, want)
		}
	}
	for _, c := range []struct {
		handle     outputs.Handle
		start, end int64
		ok         bool
	}{
		{outputs.Handle{End: -1}, 0, 10, true},
		{outputs.Handle{Start: 10, End: -1}, 10, 10, true},
		{outputs.Handle{Start: 11, End: -1}, 0, 0, false},
		{outputs.Handle{Start: 3, End: 3}, 3, 3, true},
		{outputs.Handle{Start: 0, End: 0}, 0, 0, true},
		{outputs.Handle{Start: 3, End: 10}, 3, 10, true},
		{outputs.Handle{Start: 3, End: 11}, 0, 0, false},
		{outputs.Handle{Start: 4, End: 3}, 0, 0, false},
	} {
		start, end, err := c.handle.Within("it", 10)
		if start != c.start || end != c.end || (err == nil) != c.ok || err != nil &&
			err.Error() != "it is past the end: there are 10 characters" {
			t.Errorf("%+v: %d to %d, %v", c.handle, start, end, err)
		}
	}
}

func TestSlicesOnEitherSideOfABound(t *testing.T) {
	const negative = "start, length, window and match_index must not be negative"
	for name, c := range map[string]struct {
		text    string
		request outputs.SliceRequest
		want    outputs.Span
		fails   string
	}{
		"a negative length": {"abc", outputs.SliceRequest{Length: -1}, outputs.Span{}, negative},
		"a negative window": {"abc", outputs.SliceRequest{Anchor: "b", Window: -1}, outputs.Span{}, negative},
		"a negative match":  {"abc", outputs.SliceRequest{Anchor: "b", Match: -1}, outputs.Span{}, negative},
		"the last character": {"abc", outputs.SliceRequest{Start: 2}, outputs.Span{Text: "c",
			Start: 2, End: 3}, ""},
		"nothing":      {"", outputs.SliceRequest{}, outputs.Span{}, ""},
		"past nothing": {"", outputs.SliceRequest{Start: 5}, outputs.Span{}, ""},
		"an anchor in nothing": {"", outputs.SliceRequest{Anchor: "a"}, outputs.Span{},
			"Anchor not found in content"},
		"the last one": {"aXbX", outputs.SliceRequest{Anchor: "X", Match: 1, Window: 2},
			outputs.Span{Text: "bX", Start: 2, End: 4}, ""},
		"one more than the last": {"aXbX", outputs.SliceRequest{Anchor: "X", Match: 2}, outputs.Span{},
			"Anchor not found in content"},
	} {
		got, err := outputs.Slice(t.Context(), outputs.Text(c.text), c.request)
		if (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
			t.Errorf("%s: error %v", name, err)
		}
		c.want.Total = int64(len(c.text))
		if diff := cmp.Diff(c.want, got); err == nil && diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	// If a part ends between two matches, the second one is counted once.
	const part = 1 << 16
	text := strings.Repeat("a", part-1) + "XX" + strings.Repeat("b", part-2) + "XX"
	for match, want := range []int64{part - 1, part, 2*part - 1, 2 * part} {
		if span, err := outputs.Slice(t.Context(), outputs.Text(text), outputs.SliceRequest{Anchor: "X",
			Match: int64(match), Window: 1}); err != nil || span.Start != want {
			t.Errorf("match %d: %d, %v; want %d", match, span.Start, err, want)
		}
	}
}

// A broken source fails from a position on.
type broken struct {
	outputs.Source
	after int
}

var errBroken = errors.New("the store is away")

func (b *broken) Read(ctx context.Context, from, to int64) (string, error) {
	if b.after--; b.after < 0 {
		return "", errBroken
	}
	return b.Source.Read(ctx, from, to)
}

func TestChunksOnEitherSideOfABound(t *testing.T) {
	for name, c := range map[string]struct {
		text           string
		tokens, window int64
		want           []string
	}{
		"as long as a chunk":      {"abcdefgh", 4, 8, []string{"abcdefgh"}}, // 4 tokens, 8 characters
		"a character more":        {"abcdefghi", 4, 8, []string{"abcdefghi"}},
		"of no tokens":            {"abcdef", 0, 2, []string{"ab", "cd", "ef"}},
		"of a wrong count":        {"abcdef", -1, 2, []string{"ab", "cd", "ef"}},
		"empty":                   {"", 5, 10, []string{""}},
		"of more tokens than one": {"abc", 300, 2, []string{"a", "b", "c"}},
	} {
		var got []string
		at := int64(0)
		for chunk, err := range outputs.Chunks(t.Context(), outputs.Text(c.text), c.tokens, c.window) {
			if err != nil || chunk.StartChar != at || chunk.StartByte != at || chunk.Total != len(c.want) {
				t.Errorf("%s: %+v, error %v", name, chunk, err)
			}
			at += int64(len(chunk.Text))
			got = append(got, chunk.Text)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	n := 0
	for _, err := range outputs.Chunks(t.Context(), &broken{outputs.Text("abcdef"), 1}, 0, 2) {
		if n++; n == 2 != errors.Is(err, errBroken) {
			t.Errorf("chunk %d: %v", n, err)
		}
	}
	if n != 2 {
		t.Errorf("%d chunks of a source that fails at the second", n)
	}
}

func TestWhatIsAFirstPage(t *testing.T) {
	long := strings.Repeat("x", 7000)
	for name, c := range map[string]struct {
		shown string
		want  int64
	}{
		"with paging":    {outputs.Take(outputs.Raw{Text: long}, outputs.Limits{CallID: "c"}).Shown, 6000},
		"without paging": {outputs.Take(outputs.Raw{Text: long}, outputs.Limits{}).Shown, 6000},
		"whole":          {outputs.Take(outputs.Raw{Text: "x"}, outputs.Limits{}).Shown, 0},
		"another in it": {outputs.Take(outputs.Raw{Text: "x\n\n[truncated — showing 7/9 chars." + long},
			outputs.Limits{}).Shown, 6000},
		"another first": {outputs.Take(outputs.Raw{Text: "x\n\n[... truncated: showing first 7 of 9 chars]" + long},
			outputs.Limits{CallID: "c"}).Shown, 6000},
		"nearly": {"\n\n[truncated - showing ", 0},
	} {
		if got := outputs.FirstPageChars(c.shown); got != c.want {
			t.Errorf("%s: %d of %q", name, got, c.shown[max(0, len(c.shown)-100):])
		}
	}
}

// TestBridges names words with and without white space between them, also at the beginning
// of the text.
func TestBridges(t *testing.T) {
	chunk := outputs.Chunk{Text: "one two, three four  five"}
	for name, c := range map[string]struct{ named, want []string }{
		"from the start":   {[]string{"one", "two"}, []string{"one two"}},
		"parted by a sign": {[]string{"two", "three"}, []string{"two", "three"}},
		"touching":         {[]string{"on", "e two"}, []string{"one two"}},
		"three":            {[]string{"three", "four", "five"}, []string{"three four  five"}},
		"one in another":   {[]string{"three four", "four", "five"}, []string{"three four  five"}},
		"of the same end":  {[]string{"three four", "four", "our"}, []string{"three four"}},
	} {
		var got []string
		for _, s := range outputs.Merge(outputs.Locate(chunk, c.named)) {
			got = append(got, s.Text)
			if s.SHA256 != sum(s.Text) || chunk.Text[s.StartByte:s.EndByte] != s.Text {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestRanked(t *testing.T) {
	chunk := outputs.Chunk{Text: "one two three four five six"}
	named := outputs.Locate(chunk, []string{"five", "one two", "ne", "two three", "six"})
	merged := outputs.Merge(named)
	texts := func(snippets []outputs.Snippet) (all []string) {
		for _, s := range snippets {
			all = append(all, s.Text)
		}
		return all
	}
	if diff := cmp.Diff([]string{"five six", "one two three"}, texts(outputs.Ranked(merged, named, 6000))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// A part outside the merged snippets is left out.
	before := outputs.Locate(chunk, []string{"one", "four", "three four"})
	if diff := cmp.Diff([]string(nil), texts(outputs.Ranked(outputs.Locate(chunk, []string{"three"}), before,
		6000))); diff != "" {
		t.Errorf("parts of nothing (-want +got)\n%s", diff)
	}
}

// TestVerifyEachCondition changes one field of a snippet at a time.
func TestVerifyEachCondition(t *testing.T) {
	text := "日本 two"
	for name, change := range map[string]func(*outputs.Snippet){
		"a longer end":      func(s *outputs.Snippet) { s.EndChar = 100 }, // where the text ends sooner
		"a negative start":  func(s *outputs.Snippet) { s.StartChar, s.EndChar = -2, 2 },
		"a start before it": func(s *outputs.Snippet) { s.StartChar = -1 },
	} {
		x := extractionFrom(text, text)
		change(&x.Snippets[0])
		if ok, err := x.Verify(t.Context(), outputs.Text(text), sum(text)); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	x := extractionFrom(text, text)
	if _, err := x.Verify(t.Context(), &broken{outputs.Text(text), 0}, sum(text)); !errors.Is(err, errBroken) {
		t.Errorf("a source that fails: %v", err)
	}
}

// TestRenderAtEachLength checks that each result fills the limit and does not exceed it.
func TestRenderAtEachLength(t *testing.T) {
	text := strings.Repeat("word ", 40) + "." + strings.Repeat("other ", 40)
	x := extractionFrom(text, strings.TrimSpace(strings.Repeat("word ", 40)),
		strings.TrimSpace(strings.Repeat("other ", 40)))
	full := utf8.RuneCountInString(x.Render(1 << 30))
	if got := utf8.RuneCountInString(x.Render(full)); got != full {
		t.Errorf("%d characters in the room of %d", got, full)
	}
	if got := x.Render(full - 1); utf8.RuneCountInString(got) >= full || !strings.Contains(got,
		`"snippets_dropped":1`) || strings.Contains(got, "snippet_cut") {
		t.Errorf("one character less: %s", got)
	}
	one := extractionFrom(text, strings.TrimSpace(strings.Repeat("word ", 40)))
	whole := utf8.RuneCountInString(one.Render(1 << 30))
	last := ""
	for limit := whole; limit > whole-230; limit-- {
		got := one.Render(limit)
		n := utf8.RuneCountInString(got)
		cut := strings.Contains(got, `"snippet_cut":true`)
		empty := strings.Contains(got, `"snippets":[]`)
		if limit == whole && (n != whole || cut) || limit < whole && !cut && !empty || !empty && n > limit {
			t.Fatalf("in the room of %d of %d: %d characters, cut %t: %s", limit, whole, n, cut, got)
		}
		if cut && n < limit-8 { // positions may have a digit more or less
			t.Fatalf("in the room of %d only %d characters", limit, n)
		}
		if limit > whole-100 && !cut && limit < whole || strings.Contains(got, `"text":""`) {
			t.Fatalf("in the room of %d of %d: %s", limit, whole, got)
		}
		last = got
	}
	if none := (outputs.Extraction{NoMatchReason: outputs.NoMatch}); none.Render(10) != none.Render(1<<30) {
		t.Errorf("nothing, in little room: %s", none.Render(10))
	}
	if !strings.Contains(last, `"snippets_dropped":1`) {
		t.Errorf("at last: %s", last)
	}
}

// TestRankedAtTheLimit checks that a snippet stays whole up to half of what the characters of an extraction leave for
// texts, and up to 2500 characters, and that a longer one is replaced by the part that was named.
func TestRankedAtTheLimit(t *testing.T) {
	for _, c := range []struct{ maxChars, most int }{{1400, 500}, {1401, 500}, {1402, 501}, {5400, 2500}, {5402, 2500},
		{100_000, 2500}} {
		for _, size := range []int{c.most - 1, c.most, c.most + 1} {
			part, rest := "best", strings.Repeat("x", size-len("best")-2) // with quotation marks
			chunk := outputs.Chunk{Text: part + rest}
			named := outputs.Locate(chunk, []string{part})
			whole := outputs.Locate(chunk, []string{part + rest})
			if len(named) != 1 || len(whole) != 1 {
				t.Fatalf("%d and %d snippets", len(named), len(whole))
			}
			got := outputs.Ranked(outputs.Merge(whole), named, c.maxChars)
			if want := size <= c.most; len(got) != 1 || (got[0].Text == part+rest) != want {
				t.Errorf("of %d characters, a snippet of %d is whole: %t", c.maxChars, size, !want)
			}
		}
	}
}
