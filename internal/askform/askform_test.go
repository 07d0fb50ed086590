package askform

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/limittest"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ schema, text, want string }{
		{`{"type":"string"}`, ` "blue" `, `"blue"`},
		{`{"type":"string"}`, `7`, ""},
		{`{"enum":["happened","unknown"]}`, `"unknown"`, `"unknown"`},
		{`{"enum":["happened","unknown"]}`, `"perhaps"`, ""},
		{"", `{ "any": [1, 2] }`, `{"any":[1,2]}`},
		{"", `{`, ""},
	} {
		got, err := Answer(test.schema, test.text)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s by %s: %s, %v", test.text, test.schema, got, err)
		}
	}
	if got, err := Arguments(`{"type":"object","properties":{"b":{"type":"integer"}}}`,
		`{"b": 2, "a": "x"}`); err != nil || got != `{"a":"x","b":2}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"[]", "", " \n"} {
		if got, err := Arguments("", text); err == nil {
			t.Errorf("%q is arguments: %s", text, got)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]Field{
		`{"type":"string"}`:                          {Input: Text},
		`{"type":"string","title":"Colour"}`:         {Input: Text, Label: "Colour"},
		`{"type":"integer"}`:                         {Input: Number, Whole: true},
		`{"type":"number","description":"how many"}`: {Input: Number, Label: "how many"},
		`{"type":"boolean"}`: {Input: Choice, Options: []Option{{"true", "yes"},
			{"false", "no"}}},
		`{"enum":["blue", 7]}`: {Input: Choice,
			Options: []Option{{`"blue"`, "blue"}, {"7", "7"}}},
		`{"type":"object"}`:          {Input: JSON},
		`{"type":["string","null"]}`: {Input: JSON},
		"":                           {Input: JSON},
		"true":                       {Input: JSON},
	} {
		if diff := cmp.Diff(want, FieldOf(schema)); diff != "" {
			t.Errorf("%s:\n%s", schema, diff)
		}
	}
	for _, test := range []struct {
		input         Input
		entered, want string
	}{
		{Text, `say "hi"`, `"say \"hi\""`}, {Number, " 1.5 ", "1.5"}, {Number, "many", ""}, {Number, "0x10", ""},
		{Number, "", ""},
		{Choice, `"blue"`, `"blue"`}, {JSON, `{"a":1}`, `{"a":1}`},
	} {
		got, err := Field{Input: test.input}.Value(test.entered)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s %q: %s, %v", test.input, test.entered, got, err)
		}
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\u3164 \u115f\u1160\uffa0": `\u3164 \u115f\u1160\uffa0`, // letters that are blank
		"a\ufe0fb\U000e0101":        `a\ufe0fb\udb40\udd01`,      // variation selectors
		"\U000e0061\U000e007f":      `\udb40\udc61\udb40\udc7f`,  // tags
		"a\u00a0b\u2800c\u034fd":    `a\u00a0b\u2800c\u034fd`,
		"one two  three   four":     `one two \u0020three \u0020\u0020four`,
		`say \"a  b\"`:              `say \"a \u0020b\"`,
		"Grüße, 日本語 👪 é":            "Grüße, 日本語 👪 é",
	} {
		got := Visible(`{"k":"` + text + `"}`)
		if got != "{\n  \"k\": \""+want+"\"\n}" {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
		var one, other any
		if json.Unmarshal([]byte(`{"k":"`+text+`"}`), &one) != nil || json.Unmarshal([]byte(got), &other) != nil ||
			!cmp.Equal(one, other) {
			t.Errorf("%q has become another value: %v", text, other)
		}
	}
	const want = "{\n  \"a\": \"ß\\u202e\\udb40\\udc01\"\n}"
	if got := Visible("{\"a\":\"ß\u202e\U000e0001\"}"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A person sees what differs, even if it is invisible.
func TestDiffOfInvisibleCharacters(t *testing.T) {
	t.Parallel()
	want := `  {
-   "to": "ac\u200bme <x>"
+   "to": "acme <x>"
  }`
	if diff := cmp.Diff(want, strings.Join(Diff("{\"to\":\"ac\u200bme <x>\"}", `{"to":"acme <x>"}`),
		"\n")); diff != "" {
		t.Error(diff)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	want := `  {
-   "amount": 900,
+   "amount": 90,
    "to": "acme"
  }`
	if diff := cmp.Diff(want, strings.Join(Diff(`{"to":"acme","amount":900}`, `{"amount":90,"to":"acme"}`),
		"\n")); diff != "" {
		t.Error(diff)
	}
}

func TestDiffLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{"a b c", "a b c", "  a|  b|  c"},
		{"a b c", "a x c", "  a|- b|+ x|  c"},
		{"a b", "b c", "- a|  b|+ c"},
		{"", "a", "- |+ a"},
	} {
		if got := diffLines(strings.Split(c.from, " "), strings.Split(c.to, " ")); strings.Join(got, "|") != c.want {
			t.Errorf("%q to %q: %q", c.from, c.to, got)
		}
	}
	for n, changed := range map[int]bool{1999: false, 2000: false, 2001: true} { // lines; of more, all count as changed
		long, one := slices.Repeat([]string{"x"}, n), []string{"x"}
		for _, got := range [][]string{diffLines(long, one), diffLines(one, long)} {
			if changed != (len(got) == n+1) || !changed && len(got) != n {
				t.Errorf("%d lines differ from one in %d", n, len(got))
			}
		}
	}
}

func TestDoubts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"to":"pаypal","again":"pаypal"}`: `"pаypal" mixes Latin and Cyrillic`,
		"pay to Αlice":                     `"Αlice" mixes Latin and Greek`,
		"ｐａｙ":                              `"ｐａｙ" has full-width letters`,
		"𝐩𝐚𝐲 him":                          "\"𝐩𝐚𝐲\" has mathematical letters",
		"x𝐚":                               "\"x𝐚\" mixes Latin and mathematical letters",
		"Привет, world; Αθήνα é 日本語 abc123": "",
		strings.Repeat("a", 70) + "а":        `"` + strings.Repeat("a", 60) + `…" mixes Latin and Cyrillic`,
	} {
		if got := strings.Join(Doubts(text), "; "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestLimits tries each limit of what is shown.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"maxDoubts": {At: 20, Takes: func(t *testing.T, words int) bool {
			var all, want []string
			for i := range words {
				all, want = append(all, fmt.Sprintf("a%dа", i)), append(want, fmt.Sprintf("%q mixes Latin and Cyrillic",
					fmt.Sprintf("a%dа", i)))
			}
			got := Doubts(strings.Join(all, " "))
			if !slices.Equal(got, want[:len(got)]) || len(got) > 20 {
				t.Errorf("%d words: %q", words, got)
			}
			return len(got) == words
		}},
		"maxWord": {At: 60, Takes: func(_ *testing.T, characters int) bool {
			word := strings.Repeat("а", characters-1) + "b" // Cyrillic, and a Latin letter
			return strings.Contains(strings.Join(Doubts(word), ""), word)
		}},
	})
}
