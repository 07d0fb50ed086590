package strictyaml_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/config/strictyaml"
)

type part struct {
	Calls int64 `yaml:"calls" in:"0, or 10 to 20"`
}

type inner struct {
	Mode string `yaml:"mode" of:"slow, fast"`
}

type document struct {
	Name   string `yaml:"name" check:"short" needs:": say who it is"`
	Inner  inner
	Fast   bool            `yaml:"speed" of:"slow, fast"`
	Count  *int            `yaml:"count" in:"1 to 20"`
	Ratio  *float64        `yaml:"ratio" in:"0 to 2"`
	Wait   time.Duration   `yaml:"wait" in:"1s to 5m"`
	On     bool            `yaml:"on"`
	List   []string        `yaml:"list" once:"yes" check:"short"`
	Parts  map[string]part `yaml:"parts" names:"short"`
	Part   part            `yaml:"part"`
	Key    string          `yaml:"key,key_env" as:"upper"`
	Schema strictyaml.JSON `yaml:"schema"`
}

func decode(t *testing.T, source string) (document, string) {
	t.Helper()
	node, err := strictyaml.Parse(source, 1)
	if err != nil {
		t.Fatal(err)
	}
	d := strictyaml.Decoder{Problems: &strictyaml.Problems{Path: "f"}}
	d.Checks = map[string]func(string) string{"short": func(text string) string {
		if len(text) > 5 {
			return " is too long"
		}
		return ""
	}}
	d.Readers = map[string]func(strictyaml.Place, *strictyaml.Node, any){"upper": func(at strictyaml.Place,
		v *strictyaml.Node, to any) {
		*to.(*string) = at.Key + "=" + strings.ToUpper(v.Value)
	}}
	var doc document
	d.Decode("", node, &doc)
	if err := d.Err(); err != nil {
		return doc, err.Error()
	}
	return doc, ""
}

func TestDecode(t *testing.T) {
	got, faults := decode(t, `name: bob
mode: fast
speed: fast
count: 20
ratio: 0.5
wait: 5m
on: true
list: [a, b]
parts: {a: {calls: 0}, b: {calls: 20}}
part: {calls: 10}
key_env: x
schema: {n: [1, ~]}
`)
	want := document{
		Name: "bob", Inner: inner{Mode: "fast"}, Fast: true, Count: new(20), Ratio: new(0.5),
		Wait: 5 * time.Minute, On: true,
		List: []string{"a", "b"}, Parts: map[string]part{"a": {}, "b": {Calls: 20}}, Part: part{Calls: 10},
		Key: "key_env=X", Schema: strictyaml.JSON(`{"n":[1,null]}`),
	}
	if diff := cmp.Diff(want, got); diff != "" || faults != "" {
		t.Error(faults, diff)
	}
}

func TestDecodeNamesEveryFault(t *testing.T) {
	_, faults := decode(t, `mode: quick
speed: 3
count: 21
ratio: 2.5
wait: 10m
on: yes
list: [a, a, longer]
parts: {longer: {}, b: {calls: 5, cals: 6}}
part: [1]
key: a
key_env: b
nam: x
`)
	want := `f:1: mode is "quick": it must be one of slow, fast
f:1: name is missing: say who it is
f:1: the settings has key and key_env: set only one of them
f:2: speed must be text, not a number: put it in quotes
f:3: count is 21: it must be 1 to 20
f:4: ratio is 2.5: it must be 0 to 2
f:5: wait is 600s: it must be 1s to 5m
f:6: on must be true or false, not text
f:7: list has "a" twice
f:7: list is too long
f:8: parts is too long
f:8: parts.b.calls is 5: it must be 0, or 10 to 20
f:8: unknown key "parts.b.cals" (did you mean "calls"?)
f:9: part must be a mapping of keys to values, not a list
f:12: unknown key "nam" (did you mean "name"?)`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(faults, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestReference(t *testing.T) {
	got := strictyaml.Reference(document{}, [][4]string{
		{"name", "short", "none", "Who."}, {"mode", "", "slow", "How."}, {"speed", "", "slow", "How."},
		{"count", " things", "1", "Many."},
		{"wait", "", "1s", "Long."}, {"list", "", "none", "Which."}, {"part.calls", "", "0", "Calls."},
		{"key_env", "", "none", "Key."},
	})
	want := []strictyaml.Key{
		{Name: "name", Type: "text", Bounds: "short", Default: "none", Doc: "Who."},
		{Name: "mode", Type: "text", Bounds: "slow or fast", Default: "slow", Doc: "How."},
		{Name: "speed", Type: "text", Bounds: "slow or fast", Default: "slow", Doc: "How."},
		{Name: "count", Type: "whole number", Bounds: "1 to 20 things", Default: "1", Doc: "Many."},
		{Name: "wait", Type: "duration", Bounds: "1s to 5m", Default: "1s", Doc: "Long."},
		{Name: "list", Type: "list of text", Default: "none", Doc: "Which."},
		{Name: "part.calls", Type: "whole number", Bounds: "0, or 10 to 20", Default: "0", Doc: "Calls."},
		{Name: "key_env", Type: "text", Default: "none", Doc: "Key."},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestProblems checks the order of faults, what of a whole file they say, and how joined errors are split.
func TestProblems(t *testing.T) {
	problems := &strictyaml.Problems{Path: "f"}
	if problems.Any() || problems.Err() != nil || len(strictyaml.Split(problems.Err())) != 0 {
		t.Error("there is a problem without any")
	}
	problems.Add(7, "last %d", 1)
	problems.AddSyntax(&strictyaml.SyntaxError{Line: 3, Text: "100%d"})
	problems.AddSyntax(errors.New("of the file"))
	problems.Add(3, "after it")
	want := "f: of the file\nf:3: 100%d\nf:3: after it\nf:7: last 1"
	if err := problems.Err(); !problems.Any() || err == nil || err.Error() != want || len(strictyaml.Split(err)) != 4 {
		t.Errorf("%v", err)
	}
	alone := errors.New("alone")
	if got := strictyaml.Split(alone); len(got) != 1 || !errors.Is(got[0], alone) {
		t.Errorf("an error that is not joined is split into %v", got)
	}
}

// TestEveryTypeInTheReference checks the word for each type of a key, and that nested keys and those of lists are
// described.
func TestEveryTypeInTheReference(t *testing.T) {
	type item struct {
		Size int64 `yaml:"size" in:"1 to 2"`
	}
	type all struct {
		Document document
		Items    []item            `yaml:"items"`
		Words    map[string]string `yaml:"words"`
		Own      string            `yaml:"own" type:"a word" of:"one"`
	}
	var given float64
	names := []string{"name", "count", "ratio", "wait", "on", "list", "parts", "part", "part.calls", "schema", "items",
		"items.size", "words", "own", "extra", "none"}
	var rows [][4]string
	for _, name := range names {
		rows = append(rows, [4]string{name, ", more", "", ""})
	}
	var got []string
	for _, key := range strictyaml.Reference(all{}, rows, strictyaml.OwnKey{Key: "extra", Tag: `in:"0 to 9"`,
		To: &given}) {
		got = append(got, key.Name+": "+key.Type+key.Bounds)
	}
	want := []string{
		"name: text, more", "count: whole number1 to 20, more", "ratio: number0 to 2, more",
		"wait: duration1s to 5m, more", "on: true or false, more", "list: list of text, more",
		"parts: mapping, more", "part: mapping, more", "part.calls: whole number0, or 10 to 20, more",
		"schema: list of text, more", "items: list of text, more", "items.size: whole number1 to 2, more",
		"words: mapping, more", "own: a wordone, more", "extra: number0 to 9, more", "none: , more",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTheDecoderOfTheLibrary records why Decode exists: the library's strict decoding accepts the wrong types below,
// reports only the first error, and prints the next line, which may hold a secret. If this test fails, Decode may be
// removable.
func TestTheDecoderOfTheLibrary(t *testing.T) {
	type settings struct {
		N int    `yaml:"n"`
		T string `yaml:"t"`
	}
	for _, accepted := range []string{"t: 5", `n: "3"`, "n: 010", "n: 0x10", "n: 2.0", "<<: {t: b}",
		"t: a\n---\nt: b"} {
		if err := yaml.UnmarshalWithOptions([]byte(accepted), &settings{}, yaml.Strict()); err != nil {
			t.Errorf("%q is refused: %v", accepted, err)
		}
	}
	err := yaml.UnmarshalWithOptions([]byte("n: x\nt: [1]\npassword: hush"), &settings{}, yaml.Strict())
	if err == nil || strings.Count(err.Error(), "unmarshal") != 1 || !strings.Contains(err.Error(), "hush") {
		t.Errorf("more than the first fault, or no secret of the next line: %v", err)
	}
}
