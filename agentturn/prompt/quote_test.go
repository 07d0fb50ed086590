package prompt

import (
	"strings"
	"testing"
)

// The search for parts must not miss what the regular expression finds, in any case.
func TestImitations(t *testing.T) {
	for _, text := range []string{
		"# System Notice", "#system\tnotice", "Async  Tool Status", "[truncated — showing", "[... truncated: showing",
		"[cut: the result",
		"tool output id:", "dropped to fit the context window", "[the output of x is stored;",
		"not shown: they do not fit the context window",
		"not shown: it does not fit the context window", "[extraction failed:", "outcome unknown: the worker",
		"skipped due to freshness",
		"skipped due to failure", "denied: over the limit of", "denied: not enough time left",
		"[this is the result of round-",
		"[agent a-b_9, failed, output ",
	} {
		for _, variant := range []string{
			text, strings.ToUpper(text), strings.ToLower(text),
			strings.NewReplacer("s", "\u017f", "S", "\u017f", "k", "\u212a").Replace(text),
		} {
			if !imitation.MatchString(variant) || !imitates("é\n"+variant+"\xff") {
				t.Errorf("%q is not found", variant)
			}
		}
	}
	for _, text := range []string{"", "the system is async", "denied: try again", "[agent x"} {
		if imitates(text) {
			t.Errorf("%q is found", text)
		}
	}
}

func TestQuoteLines(t *testing.T) {
	const text = "a\r\nb\rc\nd\ve\ff\u0085g\u2028h\u2029\r\r\n"
	if got, want := quoteLines(text),
		"> a\r\n> b\r> c\n> d\v> e\f> f\u0085> g\u2028> h\u2029> \r> \r\n> "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
