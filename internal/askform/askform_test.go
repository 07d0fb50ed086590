package askform

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if got, err := Arguments(`{"type":"object","properties":{"b":{"type":"integer"}}}`, `{"b": 2, "a": "x"}`); err != nil || got != `{"a":"x","b":2}` {
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
		`{"type":"boolean"}`:                         {Input: Choice, Options: []Option{{"true", "yes"}, {"false", "no"}}},
		`{"enum":["blue", 7]}`:                       {Input: Choice, Options: []Option{{`"blue"`, "blue"}, {"7", "7"}}},
		`{"type":"object"}`:                          {Input: JSON},
		`{"type":["string","null"]}`:                 {Input: JSON},
		"":                                           {Input: JSON},
		"true":                                       {Input: JSON},
	} {
		if diff := cmp.Diff(want, FieldOf(schema)); diff != "" {
			t.Errorf("%s:\n%s", schema, diff)
		}
	}
	for _, test := range []struct {
		input         Input
		entered, want string
	}{
		{Text, `say "hi"`, `"say \"hi\""`}, {Number, " 1.5 ", "1.5"}, {Number, "many", ""}, {Number, "0x10", ""}, {Number, "", ""},
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
	if diff := cmp.Diff(want, strings.Join(Diff("{\"to\":\"ac\u200bme <x>\"}", `{"to":"acme <x>"}`), "\n")); diff != "" {
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
	if diff := cmp.Diff(want, strings.Join(Diff(`{"to":"acme","amount":900}`, `{"amount":90,"to":"acme"}`), "\n")); diff != "" {
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
	long := slices.Repeat([]string{"x"}, 2001)
	if got := diffLines(long, []string{"x"}); len(got) != 2002 {
		t.Errorf("%d lines", len(got))
	}
}
