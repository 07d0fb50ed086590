package outputs_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper/outputs"
)

// clusters are single characters to a reader, of several code points and bytes. A page may
// end in a cluster, but not in a code point.
var clusters = map[string]string{
	"letters":         "x",
	"two bytes":       "é",
	"three bytes":     "日",
	"four bytes":      "😀",
	"a family":        "👩‍👩‍👧‍👦",
	"a flag":          "🏳️‍🌈",
	"combining marks": "e\u0301\u0323",
	"Hangul, apart":   "\u1112\u1161\u11ab",
	"right to left":   "ש\u05c1\u05b8",
	"Arabic":          "م\u064e",
	"bidi controls":   "\u202eab\u202c",
}

// The exact texts of the contract, at every limit within a cluster.
func TestExactFirstPages(t *testing.T) {
	for name, cluster := range clusters {
		width := utf8.RuneCountInString(cluster)
		for _, limit := range []int{4000, 6000} {
			for shift := range width {
				text := strings.Repeat("-", shift) + strings.Repeat(cluster, limit/width+2)
				chars := []rune(text)
				for _, n := range []int{limit - 1, limit, limit + 1, len(chars)} {
					text := string(chars[:n])
					paged := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{MaxChars: limit,
						CallID: "call_abc123"})
					plain := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{MaxChars: limit})
					wantPaged, wantPlain := text, text
					if n > limit {
						wantPaged = string(chars[:limit]) +
							fmt.Sprintf(
								"\n\n[truncated — showing %d/%d chars. Call get_continuation with tool_call_id=\"call_abc123\" to read more]", limit, n)
						wantPlain = string(chars[:limit]) +
							fmt.Sprintf("\n\n[... truncated: showing first %d of %d chars]", limit, n)
					}
					if paged.Shown != wantPaged || plain.Shown != wantPlain {
						t.Fatalf("%s, %d of %d, shifted by %d: shown\n…%q and\n…%q", name, limit, n, shift,
							tail(paged.Shown), tail(plain.Shown))
					}
					if paged.Output.Text != text || paged.Output.Chars != int64(n) || !utf8.ValidString(paged.Shown) {
						t.Fatalf("%s, %d of %d: %d characters are stored", name, limit, n, paged.Output.Chars)
					}
				}
			}
		}
	}
}

func tail(text string) string { return text[max(0, len(text)-120):] }

// The case of the contract: 24,591 characters, with a cap of 4000.
func TestExactTextsOfTheContract(t *testing.T) {
	text := strings.Repeat("0123456789", 2460)[:24591]
	first := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{MaxChars: 4000, CallID: "call_abc123"}).Shown
	if want := text[:4000] + "\n\n" +
		`[truncated — showing 4000/24591 chars. Call get_continuation with tool_call_id="call_abc123" to read more]`; first != want {
		t.Errorf("the first page ends %q", tail(first))
	}
	for offset, want := range map[int64]string{
		4000: "\n\n" +
			`[truncated — showing 4000-8000/24591 chars. 16591 chars remaining. Call get_continuation with tool_call_id="call_abc123" offset=8000 to read more]`,
		16591: "\n\n" +
			`[truncated — showing 16591-20591/24591 chars. 4000 chars remaining. Call get_continuation with tool_call_id="call_abc123" offset=20591 to read more]`,
		20590: "\n\n" +
			`[truncated — showing 20590-24590/24591 chars. 1 chars remaining. Call get_continuation with tool_call_id="call_abc123" offset=24590 to read more]`,
		20591: "",
		24590: "",
	} {
		page, err := outputs.PageAt(t.Context(), outputs.Text(text), offset, 4000)
		if got := page.Render("call_abc123"); err != nil || got != text[offset:min(offset+4000, 24591)]+want {
			t.Errorf("from %d: …%q, error %v", offset, tail(got), err)
		}
	}
	cut := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{MaxChars: 6000}).Shown
	if want := text[:6000] + "\n\n[... truncated: showing first 6000 of 24591 chars]"; cut != want {
		t.Errorf("without paging it ends %q", tail(cut))
	}
}

// Offsets in the forms that models write.
func TestParseContinuation(t *testing.T) {
	const notWhole = "offset must be a whole number of characters, 0 or more"
	for arguments, c := range map[string]struct {
		id     string
		offset int64 // -99: none
		err    string
	}{
		`{"tool_call_id":"a"}`:                     {"a", -99, ""},
		`{"tool_call_id":" a "}`:                   {" a ", -99, ""},
		`{"id":1234567}`:                           {"1234567", -99, ""},
		`{"id":"a","tool_call_id":""}`:             {"a", -99, ""},
		`{"id":7,"offset":0}`:                      {"7", 0, ""},
		`{"id":"a","offset":null}`:                 {"a", -99, ""},
		`{"id":"a","offset":"12"}`:                 {"a", 12, ""},
		`{"id":"a","offset":" 12 "}`:               {"a", 12, ""},
		`{"id":"a","offset":-5}`:                   {"a", -5, ""},
		`{"id":"a","offset":9223372036854775807}`:  {"a", 1<<63 - 1, ""},
		`{"id":"a","offset":9223372036854775808}`:  {"", 0, notWhole},
		`{"id":"a","offset":-9223372036854775809}`: {"", 0, notWhole},
		`{"id":"a","offset":1e400}`:                {"", 0, "the arguments are not a JSON object"},
		`{"id":"a","offset":1.5}`:                  {"", 0, notWhole},
		`{"id":"a","offset":"1.0"}`:                {"", 0, notWhole},
		`{"id":"a","offset":"0x10"}`:               {"", 0, notWhole},
		`{"id":"a","offset":"１２"}`:                 {"", 0, notWhole},
		`{"id":"a","offset":""}`:                   {"", 0, notWhole},
		`{"id":"a","offset":"end"}`:                {"", 0, notWhole},
		`{"id":"a","offset":true}`:                 {"", 0, notWhole},
		`{"id":"a","offset":[1]}`:                  {"", 0, notWhole},
		`{"id":"a","offset":{"from":1}}`:           {"", 0, notWhole},
		`{"offset":1}`: {"", 0,
			"tool_call_id is missing: give the id from the marker at the end of the result"},
		`{"id":["a"]}`: {"", 0,
			"tool_call_id is missing: give the id from the marker at the end of the result"},
		`{"id":"` + strings.Repeat("9", 100) + `"}`: {strings.Repeat("9", 100), -99, ""},
		`[]`: {"", 0, "the arguments are not a JSON object"},
		`{"id":"a","offset":"` + strings.Repeat("9", 40) + `"}`: {"", 0, notWhole},
	} {
		got, err := outputs.ParseContinuation([]byte(arguments))
		offset := int64(-99)
		if got.Offset != nil {
			offset = *got.Offset
		}
		if (err != nil) != (c.err != "") || err != nil && err.Error() != c.err || err == nil &&
			(got.ID != c.id || offset != c.offset) {
			t.Errorf("%s: %q from %d, error %v", arguments, got.ID, offset, err)
		}
	}
}
