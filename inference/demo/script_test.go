package demo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/demo"
)

// script parses a valid script.
func script(t testing.TB, source string) *demo.Script {
	t.Helper()
	s, err := demo.ParseScript("agents/mine.demo.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// with returns a provider with one script of a file.
func with(s *demo.Script) demo.Provider {
	return demo.Provider{Script: func(name string) (*demo.Script, bool) { return s, name == "mine" }}
}

// perform asks a script until it makes no more calls. results holds the results of each
// tool, in order.
func perform(t *testing.T, s *demo.Script, req inference.Request,
	results map[string][]string) (rounds [][]string, text string) {
	t.Helper()
	req.Model = "mine"
	given := map[string]int{}
	for range 20 {
		res, err := with(s).Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Calls) == 0 {
			return rounds, res.Text
		}
		var round []string
		req.Messages = append(req.Messages, inference.Message{Role: inference.RoleAssistant, Text: res.Text,
			Calls: res.Calls})
		for _, c := range res.Calls {
			round = append(round, c.Name+" "+c.Arguments)
			result := "(nothing)"
			if n := given[c.Name]; n < len(results[c.Name]) {
				result = results[c.Name][n]
				given[c.Name]++
			}
			req.Messages = append(req.Messages, inference.Message{Role: inference.RoleTool, CallID: c.ID, Tool: c.Name,
				Text: result})
		}
		rounds = append(rounds, round)
	}
	t.Fatal("the script never answers")
	return nil, ""
}

const signature = "[by the demo script mine, not by a language model]"

const shop = `
steps:
  - text: I look it up.
    calls:
      - name: read_file
        arguments: {path: prices.md, limit: 10, exact: true, more: [1, "{{ message | first 5 }}", {deep: null}]}
      - name: note_read
  - when: '{{ contains "no note" (result "note_read") }}'
    calls:
      - name: note_write
        arguments: {name: 'people/{{ match "<([^>]*)>" message }}', text: "new"}
  - when: '{{ and (match "(?i)tube" message) (not (contains "tube" (result "read_file"))) }}'
    text: There are no tubes.
  - text: '{{ result "read_file" | lines "tube" }}'
`

func TestAScriptAnswersWhatItSees(t *testing.T) {
	tools := declare("read_file", "note_read", "note_write")
	message := "From: Ann <ann@example.org>\n\nA tube?"
	first := []string{`read_file {"exact":true,"limit":10,"more":[1,"From…",{"deep":null}],"path":"prices.md"}`,
		`note_read {}`}
	for name, c := range map[string]struct {
		results map[string][]string
		rounds  [][]string
		text    string
	}{
		"a note is written where there is none": {
			map[string][]string{"read_file": {"# Prices\nInner tube: 6 EUR\nTyre: 20 EUR\n"},
				"note_read": {"There is no note"}},
			[][]string{first, {`note_write {"name":"people/ann@example.org","text":"new"}`}},
			"Inner tube: 6 EUR " + signature,
		},
		"a step is passed over": {
			map[string][]string{"read_file": {"tubes: 6\ntubes, blue: 7"}, "note_read": {"rides a tandem"}},
			[][]string{first}, "tubes: 6\ntubes, blue: 7\n\n" + signature,
		},
		"another end": {
			map[string][]string{"read_file": {"Tyre: 20 EUR"}, "note_read": {"rides a tandem"}},
			[][]string{first}, "There are no tubes. " + signature,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rounds, text := perform(t, script(t, shop), inference.Request{Tools: tools,
				Messages: []inference.Message{user(message)}}, c.results)
			if diff := cmp.Diff(c.rounds, rounds); diff != "" {
				t.Error(diff)
			}
			if text != c.text {
				t.Errorf("said %q, not %q", text, c.text)
			}
		})
	}
}

// Results that a condition refers to may have left the window: the script continues after
// the last step that asked for a call.
func TestAScriptGoesOnWhereItWas(t *testing.T) {
	s := script(t, `
steps:
  - calls: [{name: look}]
  - when: '{{ contains "red" (result "look") }}'
    calls: [{name: paint}]
  - text: 'Painted {{ count "paint" }} time.'
`)
	req := inference.Request{Model: "mine", Tools: declare("look", "paint"),
		Messages: []inference.Message{user("before"), {Role: inference.RoleAssistant, Text: "an answer"}, user("go")}}
	for _, result := range []string{"it is red", "done"} {
		res, err := with(s).Generate(t.Context(), req, nil)
		if err != nil || len(res.Calls) != 1 {
			t.Fatalf("asked %+v, %v", res.Calls, err)
		}
		req.Messages = append(req.Messages, inference.Message{Role: inference.RoleAssistant, Calls: res.Calls},
			inference.Message{Role: inference.RoleTool, CallID: res.Calls[0].ID, Tool: res.Calls[0].Name, Text: result})
	}
	for i := range req.Messages {
		if req.Messages[i].Text == "it is red" {
			req.Messages[i].Text = "[result of look dropped to fit the context window]"
		}
	}
	res, err := with(s).Generate(t.Context(), req, nil)
	if err != nil || res.Text != "Painted 1 time. "+signature {
		t.Errorf("said %q, asked %v, %v", res.Text, res.Calls, err)
	}
}

func TestWhatTemplatesCanAsk(t *testing.T) {
	const data = `{"items":[{"name":"<tube> \"8\"","n":12.50}],"ok":true}`
	for source, want := range map[string]string{
		`{{ field "items.0.name" (result "get") }}`:                              `<tube> "8"`,
		`{{ result "get" | field "items.0" }}`:                                   `{"n":12.50,"name":"\u003ctube\u003e \"8\""}`,
		`{{ field "items.0.n" (result "get") }}`:                                 "12.50",
		`{{ if eq (result "get" | field "ok") "true" }}yes{{ else }}no{{ end }}`: "yes",
		`a{{ field "items.1.name" (result "get") }}b`:                            "ab",
		`a{{ field "items.x" (result "get") }}b`:                                 "ab",
		`a{{ field "ok" "no JSON" }}b`:                                           "ab",
		`{{ result "twice" }}`:                                                   "second",
		`{{ result "twice" 1 }}`:                                                 "first",
		`a{{ result "twice" 3 }}{{ result "never" }}b`:                           "ab",
		`{{ results "twice" | oneline }}`:                                        "first second",
		`{{ count "twice" }}{{ count "never" }}`:                                 "20",
		`{{ match "tim." message }}`:                                             "time",
		`{{ match "What (\\w+) is" message }}`:                                   "time",
		`a{{ match "nothing" message }}b`:                                        "ab",
		`{{ message | lower | first 6 }}`:                                        "what …",
		`{{ json message }}`:                                                     `"What time is it?"`,
		`{{ or (match "x" message) "nobody" }}`:                                  "nobody",
		`{{ with match "t[a-z]*" message }}{{ . }}{{ end }}`:                     "t",
		`{{ $t := match "W[a-z]*" message }}{{ $t }}`:                            "What",
		`{{ if lt (count "twice") 3 }}few{{ end }}`:                              "few",
		`{{ contains "Ready (1)" notice }}`:                                      "true",
		`a{{ "  b " | trim }}`:                                                   "ab",
		"{{ \"x\\nyes 1\\nno\\nYES 2\" | lines \"yes\" }}":                       "yes 1\nYES 2",
		`a{{ lines "" message }}b`:                                               "ab",
	} {
		t.Run(source, func(t *testing.T) {
			quoted := "'" + strings.ReplaceAll(source, "'", "''") + "'"
			res, err := with(script(t, "steps: [{text: "+quoted+"}]")).Generate(t.Context(),
				inference.Request{Model: "mine", Messages: []inference.Message{
					user("What time is it?"),
					{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "a", Name: "get"},
						{ID: "b", Name: "twice"}, {ID: "c", Name: "twice"}}},
					{Role: inference.RoleTool, CallID: "a", Text: data},
					{Role: inference.RoleTool, CallID: "b", Text: "first"},
					{Role: inference.RoleTool, CallID: "c", Text: "second"},
					user("# System Notice\n\n### Ready (1)"),
				}}, nil)
			got := strings.TrimSpace(strings.TrimSuffix(res.Text, signature))
			if err != nil || got != want {
				t.Errorf("got %q, not %q, %v", got, want, err)
			}
		})
	}
}

func TestArgumentsAsOneTemplate(t *testing.T) {
	s := script(t, `
steps:
  - calls:
      - name: add
        arguments: '{ "n": {{ match "\\d+" message }}, "text": {{ json message }} }'
`)
	ask := func(message string) ([]inference.Call, error) {
		res, err := with(s).Generate(t.Context(), inference.Request{Model: "mine", Tools: declare("add"),
			Messages: []inference.Message{user(message)}}, nil)
		return res.Calls, err
	}
	if calls, err := ask(`add "12"`); err != nil || calls[0].Arguments != `{"n":12,"text":"add \"12\""}` {
		t.Errorf("asked %v, %v", calls, err)
	}
	_, err := ask("add nothing")
	const want = "the demo script mine cannot be played: steps.1.calls.1.arguments: the result is not a JSON object: use the function json for texts in it"
	if inference.ClassOf(err) != inference.ClassInvalid || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// If no tool may be called, and after the last step, the default answer is given.
func TestWhereAScriptHasNothingToSay(t *testing.T) {
	s := script(t, "steps: [{calls: [{name: look}]}]")
	ended := []inference.Message{user("go"), {Role: inference.RoleAssistant,
		Calls: []inference.Call{{ID: "demo_1_0_step_1", Name: "look"}}},
		{Role: inference.RoleTool, CallID: "demo_1_0_step_1", Text: "a cat"}}
	for name, req := range map[string]inference.Request{
		"no tools":    {Messages: []inference.Message{user("go")}},
		"none may be": {Messages: []inference.Message{user("go")}, Tools: all, ToolChoice: inference.ToolChoiceNone},
		"no more":     {Messages: ended, Tools: all},
	} {
		t.Run(name, func(t *testing.T) {
			req.Model = "mine"
			res, err := with(s).Generate(t.Context(), req, nil)
			if err != nil || len(res.Calls) > 0 || !strings.Contains(res.Text,
				"demo script, not from a language model") {
				t.Errorf("said %q, asked %v, %v", res.Text, res.Calls, err)
			}
			if name == "no more" && !strings.Contains(res.Text, "- look: a cat") {
				t.Errorf("said %q", res.Text)
			}
		})
	}
}

// A script of a file does not interpret a fenced script in a message.
func TestAFenceIsNoScriptBesideAFile(t *testing.T) {
	_, text := perform(t, script(t, "steps: [{text: Mine.}]"),
		inference.Request{Messages: []inference.Message{user("```demo\n[{\"text\":\"Yours.\"}]\n```")}}, nil)
	if text != "Mine. "+signature {
		t.Errorf("said %q", text)
	}
}

// A text that a program parses can stay unsigned.
func TestAnAnswerThatIsNotSigned(t *testing.T) {
	s := script(t,
		"steps: [{when: '{{ eq message \"go\" }}', text: Nothing., signed: false}, {text: Something., signed: true}]")
	for message, want := range map[string]string{"go": "Nothing.", "stay": "Something. " + signature} {
		if _, text := perform(t, s, inference.Request{Messages: []inference.Message{user(message)}},
			nil); text != want {
			t.Errorf("said %q, not %q", text, want)
		}
	}
}

func TestAScriptThatDoesNotExist(t *testing.T) {
	for _, p := range []demo.Provider{{}, with(nil)} {
		_, err := p.Generate(t.Context(), inference.Request{Model: "other", Messages: []inference.Message{user("hi")}},
			nil)
		if inference.ClassOf(err) != inference.ClassInvalid || !strings.Contains(err.Error(),
			`there is no demo script "other"`) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	s := script(t, "steps: [{text: '{{ message }}{{ message }}'}]")
	long := strings.Repeat("x", 200<<10)
	_, err := with(s).Generate(t.Context(), inference.Request{Model: "mine", Messages: []inference.Message{user(long)}},
		nil)
	if inference.ClassOf(err) != inference.ClassInvalid || !strings.Contains(err.Error(),
		"steps.1.text: it grows beyond 256 KiB") {
		t.Errorf("got %v", err)
	}
	s = script(t, "steps: [{text: '{{ message"+strings.Repeat(" | json", 10)+" | first 1 }}'}]")
	_, err = with(s).Generate(t.Context(), inference.Request{Model: "mine",
		Messages: []inference.Message{user(strings.Repeat(`"`, 1000))}}, nil)
	if inference.ClassOf(err) != inference.ClassInvalid || !strings.Contains(err.Error(), "it grows beyond 256 KiB") {
		t.Errorf("got %v", err)
	}
}

func TestScriptFilesThatCannotBeRead(t *testing.T) {
	step := func(text string) string { return "steps:\n  - text: " + text }
	for name, c := range map[string]struct{ path, source, want string }{
		"empty":         {"a.demo.yaml", "", "a.demo.yaml: the script is empty: give it steps"},
		"its name":      {"A B.demo.yaml", "steps: [{text: a}]", "the file's name must be the script's"},
		"the built-in":  {"script.demo.yaml", "steps: [{text: a}]", "built-in script"},
		"no YAML":       {"a.demo.yaml", "steps: [", "a.demo.yaml:1: invalid YAML"},
		"a list":        {"a.demo.yaml", "- text: a", "a.demo.yaml:1: the settings must be a mapping"},
		"another key":   {"a.demo.yaml", "step: [{text: a}]", `unknown key "step" (did you mean "steps"?)`},
		"no steps":      {"a.demo.yaml", "steps: []", "there are no steps: give a list of answers"},
		"steps in text": {"a.demo.yaml", "steps: no", "a.demo.yaml:1: steps must be a list, not text"},
		"too many steps": {"a.demo.yaml", "steps:\n" + strings.Repeat("  - text: a\n", 101),
			"steps has 101 entries: at most 100 are allowed"},
		"a step in text": {"a.demo.yaml", "steps: [no]", "steps.1 must be a mapping of keys to values, not text"},
		"a step's key":   {"a.demo.yaml", "steps:\n  - say: a", `a.demo.yaml:2: unknown key "steps.1.say"`},
		"an idle step": {"a.demo.yaml", "steps: [{when: a}]",
			"steps.1 has neither text nor calls: give it one of them"},
		"a number": {"a.demo.yaml", "steps: [{text: 1}]",
			"steps.1.text must be text, not a number: put it in quotes"},
		"a signature": {"a.demo.yaml", "steps: [{text: a, signed: never}]",
			"steps.1.signed must be true or false, not text"},
		"a signed nothing": {"a.demo.yaml", "steps: [{signed: false}]", "steps.1 has neither text nor calls"},
		"no name": {"a.demo.yaml", "steps: [{calls: [{arguments: {}}]}]",
			"steps.1.calls.1 has no name: give the name of the tool"},
		"an empty name": {"a.demo.yaml", "steps: [{calls: [{name: ''}]}]",
			"steps.1.calls.1.name must be the name of a tool"},
		"arguments": {"a.demo.yaml", "steps: [{calls: [{name: x, arguments: [1]}]}]",
			"steps.1.calls.1.arguments must be a mapping, or a text that renders a JSON object, not a list"},
		"twice": {"a.demo.yaml", "steps: [{calls: [{name: x, arguments: {a: 1, a: 2}}]}]",
			`key "steps.1.calls.1.arguments.a" is already set on line 1`},
		"an odd number": {"a.demo.yaml", "steps: [{calls: [{name: x, arguments: {a: 0x10}}]}]",
			"steps.1.calls.1.arguments.a must be a number"},
		"no template":      {"a.demo.yaml", step(`'{{ message'`), "a.demo.yaml:2: steps.1.text: unclosed action"},
		"no such function": {"a.demo.yaml", step(`'{{ massage }}'`), `steps.1.text: function "massage" not defined`},
		"a loop":           {"a.demo.yaml", step(`'{{ range 9 }}a{{ end }}'`), "they have no loops"},
		"another template": {"a.demo.yaml", step(`'{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}'`),
			"define and block are not allowed in scripts"},
		"its own template": {"a.demo.yaml", step(`'{{ if message }}{{ template "a" }}{{ end }}'`),
			"no nested templates"},
		"endless width": {"a.demo.yaml", step(`'{{ printf "%9999999d" 1 }}'`),
			`there is no function "printf"; there are contains, count,`},
		"a field": {"a.demo.yaml", step(`'{{ .Message }}'`),
			".Message: values have no fields; use field for those of a JSON text"},
		"a variable's":  {"a.demo.yaml", step(`'{{ $x := message }}{{ $x.Y }}'`), "$x.Y: values have no fields"},
		"its arguments": {"a.demo.yaml", step(`'{{ first "a" message }}'`), "expected integer"},
		"its values":    {"a.demo.yaml", step(`'{{ eq (count "x") "0" }}'`), "incompatible types for comparison"},
		"an expression": {"a.demo.yaml", step(`'{{ if message }}{{ match "(" message }}{{ end }}'`),
			"missing closing )"},
		"its length": {"a.demo.yaml", step(`'{{ first 0 message }}'`), "it must be 1 or more characters"},
		"its place":  {"a.demo.yaml", step(`'{{ result "x" 0 }}'`), "results are counted from 1"},
		"a later line": {"a.demo.yaml", "steps:\n  - text: |\n      Good\n      {{ nothing }}",
			"(line 2 of the text)"},
		"too large": {"a.demo.yaml", "steps:\n" + strings.Repeat("# and so on\n", 6000), "larger than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := demo.ParseScript(c.path, []byte(c.source))
			if s != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}

func TestScriptsOfAFolder(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]string{
		"good.demo.yaml": "\ufeffsteps:\r\n  - text: a\r\n", "bad.demo.yaml": "steps: no", ".hidden.demo.yaml": "no",
		".demo.yaml": "no",
		"good.md":    "no", "demo.yaml": "no",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"folder.demo.yaml", "sub"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "broken.demo.yaml")); err != nil {
		t.Fatal(err)
	}
	scripts, err := demo.Load(dir)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(),
		"bad.demo.yaml:1: steps must be a list") ||
		!strings.Contains(err.Error(), "broken.demo.yaml: the file cannot be read: no such file") {
		t.Errorf("the faults are %v", err)
	}
	if scripts["good"] == nil || len(scripts) != 3 {
		t.Errorf("the scripts are %v", scripts)
	}
	for model, want := range map[string]string{
		"script": "", "good": "", "bad": "", // a script with a fault has its own error
		"none": `the model "demo/none" wants the demo script ` + filepath.Join(dir, "none.demo.yaml") +
			", which does not exist; there are: script, bad, broken, good",
		"../x": `the model "demo/../x" does not name a demo script`,
	} {
		err := scripts.Check(model, dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", model, err)
		}
	}
	if scripts, err := demo.Load(filepath.Join(dir, "nowhere")); err != nil || len(scripts) != 0 {
		t.Errorf("a folder that does not exist has %v, %v", scripts, err)
	}
}

// Any file is either refused with its name, or can be played with a bounded answer or an
// error.
func FuzzScript(f *testing.F) {
	f.Add(shop, "A tube?", "tubes: 6")
	f.Add("steps: [{text: '{{ with result \"look\" }}{{ . | json | json }}{{ end }}'}]", "", `"\"`)
	f.Add("steps: [{text: '{{ match message (result \"look\") }}'}]", "(", "a")
	f.Add("steps: [{calls: [{name: x, arguments: '{\"a\": {{ message }}}'}]}]", "{}", "")
	f.Add("steps: [{text: '{{ range 9 }}{{ end }}{{ define \"\" }}{{ end }}'}]", "", "")
	f.Fuzz(func(t *testing.T, source, message, result string) {
		s, err := demo.ParseScript("a.demo.yaml", []byte(source))
		if err != nil {
			if s != nil || !strings.Contains(err.Error(), "a.demo.yaml") {
				t.Errorf("got %v, %v", s, err)
			}
			return
		}
		res, err := with(s).Generate(t.Context(), inference.Request{Model: "mine", Tools: all,
			Messages: []inference.Message{
				user(message),
				{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "a", Name: "look"}}},
				{Role: inference.RoleTool, CallID: "a", Text: result},
			}}, nil)
		if err != nil && inference.ClassOf(err) != inference.ClassInvalid {
			t.Errorf("failed with %v", err)
		}
		size := len(res.Text)
		for _, call := range res.Calls {
			size += len(call.Arguments)
		}
		if size > 8*(256<<10) { // JSON may encode a byte as six
			t.Errorf("the answer has %d bytes", size)
		}
	})
}
