package outputs_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/outputs"
)

// scripts are texts with characters of several bytes.
var scripts = map[string]string{
	"plain":           strings.Repeat("0123456789", 2460)[:24591],
	"emoji":           strings.Repeat("👩‍👩‍👧‍👦🏳️‍🌈", 1500),
	"combining marks": strings.Repeat("e\u0301a\u0308\u0323n\u0303", 3000),
	"CJK":             strings.Repeat("日本語中文한국어", 2000),
	"right to left":   strings.Repeat("שלום مرحبا ", 1500),
}

func TestPagesGiveBackTheText(t *testing.T) {
	for name, text := range scripts {
		for _, limit := range []int{1, 7, 4000, 6000, 100_000} {
			if limit < 100 && len(text) > 1000 {
				text = string([]rune(text)[:500])
			}
			t.Run(fmt.Sprintf("%s/%d", name, limit), func(t *testing.T) {
				if got := readAll(t, text, 0, limit); got != text {
					t.Errorf("the pages are %d bytes, the text %d", len(got), len(text))
				}
			})
		}
	}
}

// readAll follows the markers from an offset to the last page.
func readAll(t *testing.T, text string, offset int64, limit int) string {
	t.Helper()
	var all strings.Builder
	for {
		page, err := outputs.PageAt(t.Context(), outputs.Text(text), offset, limit)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(page.Text) || utf8.RuneCountInString(page.Text) > limit {
			t.Fatalf("the page from %d has %d characters: %q", offset, utf8.RuneCountInString(page.Text), page.Text)
		}
		all.WriteString(page.Text)
		shown := page.Render("c")
		if !page.More() {
			if shown != page.Text {
				t.Errorf("the last page has a marker: %q", shown)
			}
			return all.String()
		}
		marker := strings.TrimPrefix(shown, page.Text)
		want := fmt.Sprintf(
			"\n\n[truncated — showing %d-%d/%d chars. %d chars remaining. Call get_continuation with tool_call_id=\"c\" offset=%d to read more]",
			offset, page.End, page.Total, page.Total-page.End, page.End)
		if marker != want {
			t.Fatalf("the marker is %q, not %q", marker, want)
		}
		offset = page.End
	}
}

func TestRefusedOffsets(t *testing.T) {
	for offset, want := range map[int64]string{
		-1:      "offset must not be negative, and is -1",
		3:       "offset 3 is past the end: there are 3 characters",
		1 << 60: "offset 1152921504606846976 is past the end: there are 3 characters",
	} {
		if _, err := outputs.PageAt(t.Context(), outputs.Text("日本語"), offset, 10); err == nil || err.Error() != want {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if page, err := outputs.PageAt(t.Context(), outputs.Text(""), 0, 10); err != nil || page.Render("c") != "" {
		t.Errorf("an empty text: %+v, %v", page, err)
	}
}

func FuzzPages(f *testing.F) {
	for _, text := range scripts {
		f.Add(text[:60], 7, int64(3))
		f.Add(text[:60], 1, int64(0))
		f.Add(text[:60], 60, int64(-1))
		f.Add(text[:60], 4000, int64(1<<62))
	}
	f.Fuzz(func(t *testing.T, text string, limit int, offset int64) {
		text = outputs.Clean(text)
		chars := []rune(text)
		if limit < 1 {
			return
		}
		if offset < 0 || offset >= int64(len(chars)) && offset > 0 {
			if page, err := outputs.PageAt(t.Context(), outputs.Text(text), offset, limit); err == nil {
				t.Errorf("a page from %d of %d characters: %q", offset, len(chars), page.Text)
			}
			return
		}
		if got := readAll(t, text, offset, limit); got != string(chars[offset:]) {
			t.Errorf("the pages from %d are %q, not %q", offset, got, string(chars[offset:]))
		}
	})
}

func TestSlices(t *testing.T) {
	text := "one two 日本 two three two"
	for name, c := range map[string]struct {
		request outputs.SliceRequest
		want    outputs.Span
		fails   string
	}{
		"the beginning": {outputs.SliceRequest{Length: 3}, outputs.Span{Text: "one", End: 3}, ""},
		"everything":    {outputs.SliceRequest{}, outputs.Span{Text: text, End: 24}, ""},
		"characters": {outputs.SliceRequest{Start: 8, Length: 2}, outputs.Span{Text: "日本", Start: 8,
			End: 10}, ""},
		"past the end": {outputs.SliceRequest{Start: 22, Length: 100}, outputs.Span{Text: "wo", Start: 22,
			End: 24}, ""},
		"huge": {outputs.SliceRequest{Start: 1, Length: 1 << 62}, outputs.Span{Text: text[1:], Start: 1,
			End: 24}, ""},
		"an anchor": {outputs.SliceRequest{Anchor: "two", Window: 4}, outputs.Span{Text: "e two 日",
			Start: 2, End: 9}, ""},
		"the third": {outputs.SliceRequest{Anchor: "two", Window: 2, Match: 2}, outputs.Span{Text: " two",
			Start: 20, End: 24}, ""},
		"an odd window": {outputs.SliceRequest{Anchor: "本", Window: 1}, outputs.Span{Text: "本 ", Start: 9,
			End: 11}, ""},
		"huge window": {outputs.SliceRequest{Anchor: "本", Window: 1 << 62}, outputs.Span{Text: text,
			End: 24}, ""},
		"no such anchor": {outputs.SliceRequest{Anchor: "four"}, outputs.Span{}, "Anchor not found in content"},
		"no such match": {outputs.SliceRequest{Anchor: "two", Match: 3}, outputs.Span{},
			"Anchor not found in content"},
		"a pattern is no one": {outputs.SliceRequest{Anchor: "t.o"}, outputs.Span{}, "Anchor not found in content"},
		"negative": {outputs.SliceRequest{Start: -1}, outputs.Span{},
			"start, length, window and match_index must not be negative"},
		"starts past the end": {outputs.SliceRequest{Start: 24}, outputs.Span{},
			"start 24 is past the end: there are 24 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outputs.Slice(t.Context(), outputs.Text(text), c.request)
			if (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
				t.Fatalf("error %v", err)
			}
			if c.fails == "" {
				c.want.Total = 24
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// An anchor is found across the parts in which a text is read, and matches do not overlap.
func TestAnchorsAcrossParts(t *testing.T) {
	const part = 1 << 16
	for _, at := range []int{0, part - 5, part - 1, part, part + 1, 3*part - 2} {
		text := strings.Repeat("ü", at) + "needle" + strings.Repeat("ü", 2*part)
		span, err := outputs.Slice(t.Context(), outputs.Text(text), outputs.SliceRequest{Anchor: "needle", Window: 1})
		if err != nil || span.Start != int64(at) || span.Text != "needleü" {
			t.Errorf("at %d: %+v, %v", at, span, err)
		}
	}
	text := strings.Repeat("a", part+3)
	for match, want := range map[int64]int64{0: 0, 1: 2, part / 2: part} {
		span, err := outputs.Slice(t.Context(), outputs.Text(text), outputs.SliceRequest{Anchor: "aa", Window: 1,
			Match: match})
		if err != nil || span.Start != want {
			t.Errorf("match %d: %d, %v", match, span.Start, err)
		}
	}
}

// TestDefaultsOfASlice checks how much a slice has that does not say so.
func TestDefaultsOfASlice(t *testing.T) {
	text := strings.Repeat("a", 3000) + "!" + strings.Repeat("b", 3000)
	for request, want := range map[outputs.SliceRequest]string{
		{Start: 10}:   text[10:1010],
		{Anchor: "!"}: text[2500:3501],
	} {
		span, err := outputs.Slice(t.Context(), outputs.Text(text), request)
		if err != nil || span.Text != want {
			t.Errorf("%+v: characters %d to %d, error %v", request, span.Start, span.End, err)
		}
	}
}
