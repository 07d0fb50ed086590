package demo_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/demo"
	"turnkeeper/internal/golden"
)

// said returns everything that a provider says to a request: the deltas, and the response or the error.
func said(t *testing.T, p demo.Provider, req inference.Request) string {
	t.Helper()
	var deltas []string
	res, err := p.Generate(t.Context(), req, func(d inference.Delta) {
		if d.Done {
			d.Name = "is whole"
		}
		deltas = append(deltas, fmt.Sprintf("%s %d %s %q", d.Kind, d.Index, d.Name, d.Text))
	})
	if err != nil {
		return fmt.Sprintf("  %s, %v", inference.ClassOf(err), err)
	}
	quiet, err := p.Generate(t.Context(), req, nil)
	if fmt.Sprint(quiet) != fmt.Sprint(res) || err != nil {
		t.Errorf("without deltas it is %+v, %v, not %+v", quiet, err, res)
	}
	calls := ""
	for _, d := range deltas {
		if strings.HasPrefix(d, "tool") && len(res.Calls) < 10 {
			calls += "  " + d + "\n"
		}
	}
	data, _ := json.Marshal(res) //nolint:errchkjson // texts and numbers
	return fmt.Sprintf("%s  %d deltas, %s", calls, len(deltas), data)
}

// TestWhatTheBuiltInScriptSays compares whole answers to messages of every kind with testdata.
func TestWhatTheBuiltInScriptSays(t *testing.T) {
	t.Parallel()
	answer := func(calls ...inference.Call) inference.Message {
		return inference.Message{Role: inference.RoleAssistant, Calls: calls}
	}
	result := func(id, tool, text string) inference.Message {
		return inference.Message{Role: inference.RoleTool, CallID: id, Tool: tool, Text: text}
	}
	system := inference.Message{Role: inference.RoleSystem, Text: "Be brief."}
	looked := []inference.Message{
		system, user("hello"), answer(inference.Call{ID: "a", Name: "clock", Arguments: "{}"}, inference.Call{ID: "b",
			Name: "list_files"}),
		result("a", "", "noon"), result("b", "list_files", "docs/\n\t7\n main.go\t3\nb.go\t4\n"),
	}
	var lines []string
	for _, c := range []struct {
		tools    []inference.ToolDefinition
		messages []inference.Message
	}{
		{all, []inference.Message{system, user("hello")}}, {nil, []inference.Message{user("hello")}}, {all, nil},
		{all,
			[]inference.Message{
				user("get http://a.example/x?y=(1)! and 'https://b.example' and docs/guide.md, main.go")}},
		{all, []inference.Message{user("save " + strings.Repeat("ü", 999) + "!")}},
		{all, []inference.Message{user("NOTE THAT " + strings.Repeat("ü", 989) + "!")}},
		{all, []inference.Message{user("what do you recall?")}}, {declare("note_read"),
			[]inference.Message{user("remember notes")}}, {declare("read_file"),
			[]inference.Message{user("a.b.c1 x.toolongextension 1.5")}},
		{all, looked}, {declare("list_files", "clock"), looked}, {declare("read_file"), looked[:4]},
		{all, append(looked, answer(inference.Call{ID: "c", Name: "read_file"}), result("c", "read_file",
			strings.Repeat("w ", 101)), user("# System Notice\nlast round"))},
		{nil, append(looked, user(strings.Repeat("q", 201)))}, {nil, append(looked, user(strings.Repeat("q", 200)),
			answer())}, {nil, []inference.Message{user("# System Notice")}},
		{all, append(looked, answer(), user("again"))}, {all, append(looked[:4:4], result("none", "", "of no call"))},
		{all,
			[]inference.Message{
				user(
					"```demo \t\n[{\"text\":\" kept \",\"calls\":[{\"name\":\"clock\",\"arguments\":{ \"b\" : [1, 2] , \"a\":null}},{\"name\":\"x\"}]}]\n``` rest")}},
		{nil, []inference.Message{user("before ```demo\r\n[{\"calls\":[{\"name\":\"clock\"}]}]``` after")}},
		{all, []inference.Message{system, {Role: inference.RoleSystem,
			Text: "```demo\n[{\"text\":\"of the system\"}]\n```"},
			user("```demo\n[{\"text\":\"of the message\"}]\n```")}},
		{all,
			[]inference.Message{
				user(
					"```demo\n[{\"text\":\"a\"},{\"text\":\"b\"},{\"calls\":[{\"name\":\"x\"},{\"arguments\":{}}]}]\n```")}}, {all, []inference.Message{user("```demo\n[] x\n```")}},
		{all, []inference.Message{user("```demo\n{}\n```")}},
		{all, []inference.Message{user("```demo\n[{\"say\":1}]\n```")}},
		{all, []inference.Message{user("```demo\n[{\"calls\":[{\"name\":\"x\",\"arguments\":[1]}]}]\n```")}},
	} {
		var names []string
		for _, tool := range c.tools {
			names = append(names, tool.Name)
		}
		last := ""
		if len(c.messages) > 0 {
			last = c.messages[len(c.messages)-1].Text
		}
		req := inference.Request{Messages: c.messages, Tools: c.tools}
		lines = append(lines, fmt.Sprintf("%.80q of %d, tools %v\n%s", last, len(c.messages), names,
			said(t, demo.Provider{}, req)))
	}
	for _, p := range []demo.Provider{{}, {Script: func(string) (*demo.Script, bool) { return nil, true }}} {
		for _, model := range []string{"", "script", "other"} {
			lines = append(lines, fmt.Sprintf("model %q\n%s", model,
				said(t, p, inference.Request{Model: model, Messages: []inference.Message{user("x")}})))
		}
	}
	golden.File(t, "testdata/built_in.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhatIsSaidOfScripts compares the faults of scripts with testdata, each with its line, and what is played of
// others.
func TestWhatIsSaidOfScripts(t *testing.T) {
	t.Parallel()
	calls := func(n int) string { return "steps:\n- calls: [" + strings.Repeat("{name: a}, ", n-1) + "{name: a}]" }
	var lines []string
	for _, c := range [][2]string{
		{"mine", ""}, {"mine", "# nothing"}, {"mine", "steps:"}, {"mine", "steps: []"}, {"mine", "steps: x"},
		{"mine", "steps: {}"}, {"mine", "other: 1"}, {"mine", "[]"}, {"mine", "steps: [\n"},
		{"mine", "steps: [{text: a}]\nsteps: []"},
		{"script", "steps: [{text: a}]"}, {"Mine", "steps: [{text: a}]"}, {"-mine", "steps: [{text: a}]"},
		{strings.Repeat("m", 63), "steps: [{text: a}]"}, {strings.Repeat("m", 64), "steps: [{text: a}]"},
		{"mine", "steps:" + strings.Repeat("\n- text: a", 100)}, {"mine", "steps:" + strings.Repeat("\n- text: a",
			101)}, {"mine", calls(32)}, {"mine", calls(33)},
		{"mine", "steps: [x, 1, null]"}, {"mine", "steps: [{}]"}, {"mine", "steps: [{when: a, signed: true}]"},
		{"mine", "steps:\n- text: 1\n  when: [a]\n  signed: maybe\n  calls: a\n  other: b"},
		{"mine",
			"steps:\n- calls:\n  - x\n  - {}\n  - name: ''\n  - name: 7\n  - name: [a]\n  - name: a\n    arguments: [1]\n  - name: a\n    arguments: 7\n  - name: a\n    other: 1"},
		{"mine", "steps:\n- calls:\n  - name: a\n    arguments: {a: 1, a: 2, b: [{c: 1, c: 2}]}"},
		{"mine", "steps:\n- calls:\n  - name: a\n    arguments: {a: 1e999}"},
		{"mine",
			"steps:\n- when: '{{ nothing }}'\n  text: '{{ if }}'\n  calls: [{name: a, arguments: '{{ json 1'}, {name: b, arguments: {x: ['{{ end }}']}}]"},
		{"mine", "\ufeffsteps:\r\n- text: 'a  '\r\n"}, {"mine", "steps: [{text: \"a\\nb\"}]"},
		{"mine", "steps: [{text: ' ', calls: []}]"}, {"mine", "steps: [{text: a, signed: false}]"},
		{"mine", "steps: [{when: 'no', text: a}, {when: '', text: b}, {when: '0', text: c}]"},
		{"mine", "steps: [{when: 'false', text: a}, {text: b}]"},
		{"mine", "steps: [{when: '{{ match \"(\" message }}', text: a}]"},
		{"mine", "steps: [{text: '{{ match \"(\" message }}'}]"},
		{"mine",
			"steps: [{text: t, calls: [{name: a, arguments: {n: 1, t: 'x {{ message }}', l: [true, null, [], {}], o: {z: 1.50, y: no}}}, {name: b}, {name: c, arguments: '{ \"q\" : {{ json message }} }'}]}]"},
		{"mine", "steps: [{calls: [{name: a}, {name: a, arguments: '[1]'}]}]"},
		{"mine", "steps: [{calls: [{name: a, arguments: 'null'}]}]"},
		{"mine",
			"steps: [{calls: [{name: a, arguments: {x: ['{{ match message message }}', '{{ match \"[\" message }}']}}]}]"},
	} {
		s, err := demo.ParseScript("agents/"+c[0]+demo.Extension, []byte(c[1]))
		what := fmt.Sprintf("  fault: %v", err)
		if err == nil {
			req := inference.Request{Model: "mine", Tools: all, Messages: []inference.Message{user("a (message)")}}
			what = said(t, with(s), req)
			req.Tools = nil
			what += "\n" + said(t, with(s), req)
		}
		lines = append(lines, fmt.Sprintf("%.70s: %.200q\n%s", c[0], c[1], what))
	}
	golden.File(t, "testdata/scripts.txt", strings.Join(lines, "\n")+"\n")
}

// TestWhichFilesAreScripts loads a folder with files of every kind.
func TestWhichFilesAreScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.demo.yaml": "steps: [{text: a}]", "bad.demo.yaml": "steps: x", ".hidden.demo.yaml": "x",
		"other.yaml": "x", ".demo.yaml": "x", "large.demo.yaml": strings.Repeat("# x\n", 20_000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.demo.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "good.demo.yaml", "to-folder": "folder.demo.yaml",
		"nowhere": "none"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, name+demo.Extension)); err != nil {
			t.Fatal(err)
		}
	}
	scripts, err := demo.Load(dir)
	var lines []string
	for _, name := range []string{"good", "link", "bad", "large", "nowhere", "to-folder", "folder", ".hidden",
		"", "other"} {
		script, known := scripts[name]
		lines = append(lines, fmt.Sprintf("%q: known %t, valid %t", name, known, script != nil))
	}
	lines = append(lines, fmt.Sprint(err), fmt.Sprint(scripts.Check("good", dir), scripts.Check("bad", dir),
		scripts.Check("script", dir)))
	for _, model := range []string{"new", "", "New", "folder"} {
		lines = append(lines, fmt.Sprint(scripts.Check(model, dir)),
			fmt.Sprint(demo.Scripts(nil).Check(model, "agents")))
	}
	none, err := demo.Load(filepath.Join(dir, "none"))
	lines = append(lines, fmt.Sprint(len(none), err))
	_, err = demo.Load(filepath.Join(dir, "good.demo.yaml"))
	lines = append(lines, fmt.Sprint(err))
	golden.File(t, "testdata/folder.txt", strings.ReplaceAll(strings.Join(lines, "\n"), dir, "DIR")+"\n")
}
