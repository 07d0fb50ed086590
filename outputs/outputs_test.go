package outputs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/outputs"
)

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestTake(t *testing.T) {
	png := "\x89PNG\x00\x01"
	tests := []struct {
		name   string
		raw    outputs.Raw
		limits outputs.Limits
		want   outputs.Taken
	}{
		{
			name: "prose",
			raw:  outputs.Raw{Text: "héllo\nworld"},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "text/plain", Text: "héllo\nworld", SizeBytes: 12, RawBytes: 12,
					Chars: 11, Tokens: 4, SHA256: sum("héllo\nworld")},
				Shown: "héllo\nworld", Preview: "héllo world",
			},
		},
		{
			name: "nothing",
			want: outputs.Taken{Output: turnkeeper.Output{MediaType: "text/plain", SHA256: sum("")}},
		},
		{
			name: "JSON by its type",
			raw:  outputs.Raw{Text: `"0123456789ab"`, MediaType: "application/problem+json; charset=utf-8"},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "application/problem+json; charset=utf-8", Text: `"0123456789ab"`,
					SizeBytes: 14, RawBytes: 14, Chars: 14, Tokens: 5, SHA256: sum(`"0123456789ab"`)},
				Shown: `"0123456789ab"`, Preview: `"0123456789ab"`,
			},
		},
		{
			name: "JSON by its look",
			raw:  outputs.Raw{Text: `{"a":[1,2,3]} `},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "text/plain", Text: `{"a":[1,2,3]} `, SizeBytes: 14, RawBytes: 14,
					Chars: 14, Tokens: 5, SHA256: sum(`{"a":[1,2,3]} `)},
				Shown: `{"a":[1,2,3]} `, Preview: `{"a":[1,2,3]}`,
			},
		},
		{
			name: "broken text",
			raw:  outputs.Raw{Text: "a\xff\xfe\x00b\xed\xa0\x80", MediaType: "text/\x00x\n\xff"},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "text/x \uFFFD", Text: "a\uFFFDb\uFFFD", SizeBytes: 8, RawBytes: 8,
					Chars: 4, Tokens: 2, SHA256: sum("a\uFFFDb\uFFFD")},
				Shown: "a\uFFFDb\uFFFD", Preview: "a\uFFFDb\uFFFD",
			},
		},
		{
			name:   "cut where a character ends",
			raw:    outputs.Raw{Text: "ab😀cd"},
			limits: outputs.Limits{MaxBytes: 5},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "text/plain", Text: "ab", SizeBytes: 2, RawBytes: 8, Chars: 2,
					Tokens: 1, SHA256: sum("ab"), Incomplete: true},
				Shown: "ab\n\n[cut: the result had 8 bytes; what is missing at its end was not kept]", Preview: "ab",
			},
		},
		{
			name: "binary",
			raw:  outputs.Raw{Text: "not used", Bytes: []byte(png), MediaType: "image/png"},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "image/png", Bytes: []byte(png), SizeBytes: 6, RawBytes: 6,
					Tokens: 34, SHA256: sum(png),
					Description: "[binary result: image/png, 6 bytes, sha256 " + sum(png) + "]"},
				Shown:   "[binary result: image/png, 6 bytes, sha256 " + sum(png) + "]",
				Preview: "[binary result: image/png, 6 bytes, sha256 " + sum(png) + "]",
			},
		},
		{
			name:   "binary, cut",
			raw:    outputs.Raw{Bytes: []byte(png)},
			limits: outputs.Limits{MaxBytes: 4},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "application/octet-stream", Bytes: []byte(png[:4]), SizeBytes: 4,
					RawBytes: 6, Tokens: 42, SHA256: sum(png[:4]), Incomplete: true,
					Description: "[binary result: application/octet-stream, first 4 of 6 bytes, sha256 " +
						sum(png[:4]) + "]"},
				Shown:   "[binary result: application/octet-stream, first 4 of 6 bytes, sha256 " + sum(png[:4]) + "]",
				Preview: "[binary result: application/octet-stream, first 4 of 6 bytes, sha256 " + sum(png[:4]) + "]",
			},
		},
		{
			name: "empty binary",
			raw:  outputs.Raw{Bytes: []byte{}, MediaType: "image/gif"},
			want: outputs.Taken{
				Output: turnkeeper.Output{MediaType: "image/gif", Bytes: []byte{}, Tokens: 34, SHA256: sum(""),
					Description: "[binary result: image/gif, 0 bytes, sha256 " + sum("") + "]"},
				Shown:   "[binary result: image/gif, 0 bytes, sha256 " + sum("") + "]",
				Preview: "[binary result: image/gif, 0 bytes, sha256 " + sum("") + "]",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, outputs.Take(tt.raw, tt.limits)); diff != "" {
				t.Errorf("Take (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShown(t *testing.T) {
	tests := []struct {
		name     string
		text     string
		maxChars int
		want     string
	}{
		{"at the cap", strings.Repeat("x", 6000), 0, strings.Repeat("x", 6000)},
		{"one over it", strings.Repeat("x", 6001), 0,
			strings.Repeat("x", 6000) + "\n\n[... truncated: showing first 6000 of 6001 chars]"},
		{"another cap", strings.Repeat("x", 24591), 4000,
			strings.Repeat("x", 4000) + "\n\n[... truncated: showing first 4000 of 24591 chars]"},
		{"characters, not bytes, at the cap", strings.Repeat("😀", 10), 10, strings.Repeat("😀", 10)},
		{"characters, not bytes, over it", strings.Repeat("😀", 11), 10,
			strings.Repeat("😀", 10) + "\n\n[... truncated: showing first 10 of 11 chars]"},
		{"right to left", "שלום עולם", 4, "שלום\n\n[... truncated: showing first 4 of 9 chars]"},
		{"counted after cleaning", "a\x00\xff\xffb\x00", 2, "a\uFFFD\n\n[... truncated: showing first 2 of 3 chars]"},
		{"cap of one", "日本", 1, "日\n\n[... truncated: showing first 1 of 2 chars]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := outputs.Take(outputs.Raw{Text: tt.text}, outputs.Limits{MaxChars: tt.maxChars}).Shown
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Shown (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTakeCutsHugeResults(t *testing.T) {
	taken := outputs.Take(outputs.Raw{Text: strings.Repeat("é", 6_000_000)}, outputs.Limits{})
	out := taken.Output
	if out.SizeBytes != 10_000_000 || out.RawBytes != 12_000_000 || out.Chars != 5_000_000 || !out.Incomplete {
		t.Errorf("size %d, raw %d, chars %d, incomplete %v", out.SizeBytes, out.RawBytes, out.Chars, out.Incomplete)
	}
	if !strings.HasSuffix(taken.Shown, "\n\n[... truncated: showing first 6000 of 5000000 chars]"+
		"\n\n[cut: the result had 12000000 bytes; what is missing at its end was not kept]") {
		t.Errorf("Shown ends with %q", taken.Shown[len(taken.Shown)-80:])
	}
	endless := outputs.Take(outputs.Raw{Text: "y", Incomplete: true}, outputs.Limits{})
	if want := "y\n\n[cut: the result was larger than this; the rest was not kept]"; endless.Shown != want ||
		!endless.Output.Incomplete {
		t.Errorf("Shown = %q, incomplete %v", endless.Shown, endless.Output.Incomplete)
	}
	binary := outputs.Take(outputs.Raw{Bytes: bytes.Repeat([]byte{0}, 10_000_001)}, outputs.Limits{}).Output
	if binary.SizeBytes != 10_000_000 || !binary.Incomplete {
		t.Errorf("binary: size %d, incomplete %v", binary.SizeBytes, binary.Incomplete)
	}
}

func TestPreview(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", ""},
		{"only blanks", " \n\t ", ""},
		{"folded", "  a\r\n\n b\t\u00a0c\u2028d  ", "a b c d"},
		{"control characters", "\x1b[31mred\x00\x07 alert", "[31mred alert"},
		{"at the cap", strings.Repeat("é", 220), strings.Repeat("é", 220)},
		{"at the cap with blanks after it", strings.Repeat("é", 220) + "  \n", strings.Repeat("é", 220)},
		{"over it", strings.Repeat("é", 221), strings.Repeat("é", 219) + "…"},
		{"cut before a blank", strings.Repeat("x", 218) + " yyy", strings.Repeat("x", 218) + "…"},
		{"word after the cap", strings.Repeat("x", 220) + " y", strings.Repeat("x", 219) + "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := outputs.Preview(tt.text)
			if got != tt.want || utf8.RuneCountInString(got) > outputs.MaxPreviewChars {
				t.Errorf("Preview = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNewID(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]{12}$`)
	seen := map[turnkeeper.OutputID]bool{}
	for range 1000 {
		id := outputs.NewID()
		if !form.MatchString(string(id)) || seen[id] {
			t.Fatalf("id %q, seen before: %v", id, seen[id])
		}
		seen[id] = true
	}
}

func FuzzTake(f *testing.F) {
	f.Add("plain", 3, 2)
	f.Add("a\xff\xfe\x00b\xed\xa0\x80", 5, 1)
	f.Add("😀é\x00\xf0\x9f", 6, 9)
	f.Add("\xf0\x9f\x98", 2, 1)
	f.Fuzz(func(t *testing.T, text string, maxBytes, maxChars int) {
		clean := outputs.Clean(text)
		if !utf8.ValidString(clean) || strings.Contains(clean, "\x00") || outputs.Clean(clean) != clean {
			t.Fatalf("Clean(%q) = %q", text, clean)
		}
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") && clean != text {
			t.Fatalf("clean text was changed: %q became %q", text, clean)
		}
		if maxBytes < 1 || maxChars < 1 {
			return
		}
		taken := outputs.Take(outputs.Raw{Text: text, MediaType: text}, outputs.Limits{MaxBytes: maxBytes,
			MaxChars: maxChars})
		out := taken.Output
		if !strings.HasPrefix(clean, strings.TrimSuffix(out.Text, "\uFFFD")) {
			t.Fatalf("stored %q of %q", out.Text, clean)
		}
		for _, s := range []string{out.Text, out.MediaType, taken.Shown, taken.Preview} {
			if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
				t.Fatalf("unfit for the store: %q", s)
			}
		}
		whole, note, _ := strings.Cut(taken.Shown, "\n\n[cut: ")
		if out.Incomplete != (note != "") && !strings.Contains(text, "[cut: ") {
			t.Fatalf("incomplete %v, and Shown = %q", out.Incomplete, taken.Shown)
		}
		if int(out.Chars) <= maxChars && whole != out.Text && !strings.Contains(text, "[cut: ") {
			t.Fatalf("changed: %q shown for %q", taken.Shown, out.Text)
		}
		if shown, marker, _ := strings.Cut(taken.Shown, "\n\n[... truncated"); int(out.Chars) > maxChars &&
			(marker == "" || !strings.HasPrefix(out.Text, shown[:min(len(shown), len(out.Text))])) {
			t.Fatalf("Shown = %q of %q", taken.Shown, out.Text)
		}
		if n := utf8.RuneCountInString(taken.Preview); n > outputs.MaxPreviewChars ||
			strings.Contains(taken.Preview, "\n") {
			t.Fatalf("Preview = %q", taken.Preview)
		}
	})
}
