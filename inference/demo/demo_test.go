package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference"
	"turnkeeper/inference/demo"
)

func declare(names ...string) []inference.ToolDefinition {
	var tools []inference.ToolDefinition
	for _, name := range names {
		tools = append(tools, inference.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)})
	}
	return tools
}

var all = declare("clock", "list_files", "read_file", "http_get", "note_write", "note_read")

func user(text string) inference.Message {
	return inference.Message{Role: inference.RoleUser, Text: text}
}

// play answers every call with the result for its tool until the script answers with a text.
// It returns the calls of each round and the text.
func play(t *testing.T, req inference.Request, results map[string]string) (rounds [][]string, text string) {
	t.Helper()
	for range 10 {
		var streamed strings.Builder
		res, err := demo.Provider{}.Generate(t.Context(), req, func(d inference.Delta) {
			if d.Kind == inference.DeltaText {
				streamed.WriteString(d.Text)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if streamed.String() != res.Text {
			t.Errorf("streamed %q of %q", streamed.String(), res.Text)
		}
		if res.Usage.InputTokens == 0 || res.Usage.OutputTokens == 0 || res.Usage.Estimated {
			t.Errorf("usage is %+v", res.Usage)
		}
		if len(res.Calls) == 0 {
			return rounds, res.Text
		}
		var round []string
		req.Messages = append(req.Messages, inference.Message{Role: inference.RoleAssistant, Text: res.Text,
			Calls: res.Calls})
		for _, c := range res.Calls {
			if !json.Valid([]byte(c.Arguments)) {
				t.Errorf("arguments %q of %s", c.Arguments, c.Name)
			}
			round = append(round, c.Name+" "+c.Arguments)
			req.Messages = append(req.Messages, inference.Message{Role: inference.RoleTool, CallID: c.ID, Tool: c.Name,
				Text: results[c.Name]})
		}
		rounds = append(rounds, round)
	}
	t.Fatal("the script never answers")
	return nil, ""
}

func TestTheScriptCallsWhatFits(t *testing.T) {
	results := map[string]string{"clock": "2026-01-02 15:04", "list_files": "docs/\nREADME.md\t120\nmain.go\t3",
		"read_file": "# Title", "note_read": "no notes"}
	for name, tc := range map[string]struct {
		message string
		tools   []inference.ToolDefinition
		want    [][]string
	}{
		"no tools":      {"hello", nil, nil},
		"unknown tools": {"hello", declare("launch"), nil},
		"clock":         {"what time is it?", declare("clock"), [][]string{{"clock {}"}}},
		"files": {"what is here?", declare("list_files", "read_file"), [][]string{{"list_files {}"},
			{`read_file {"path":"README.md"}`}}},
		"only a list": {"what is here?", declare("list_files"), [][]string{{"list_files {}"}}},
		"a file by name": {"read docs/guide.md, please", declare("list_files", "read_file"),
			[][]string{{`read_file {"path":"docs/guide.md"}`}}},
		"an address": {"get https://example.com/a?b=c.", declare("http_get"),
			[][]string{{`http_get {"url":"https://example.com/a?b=c"}`}}},
		"something to do": {"Remember the milk", declare("note_write", "note_read"),
			[][]string{{`note_write {"name":"demo","text":"Remember the milk"}`}}},
		"what was noted": {"Which notes are there?", declare("note_write", "note_read"),
			[][]string{{"note_read {}"}}},
		"everything there": {"hello", all, [][]string{{"clock {}", "list_files {}"},
			{`read_file {"path":"README.md"}`}}},
	} {
		t.Run(name, func(t *testing.T) {
			rounds, text := play(t, inference.Request{Messages: []inference.Message{user(tc.message)},
				Tools: tc.tools}, results)
			if diff := cmp.Diff(tc.want, rounds); diff != "" {
				t.Error(diff)
			}
			for _, part := range []string{"demo script, not from a language model", "OPENAI_API_KEY"} {
				if !strings.Contains(text, part) {
					t.Errorf("the answer does not say %q:\n%s", part, text)
				}
			}
			for _, round := range rounds {
				for _, call := range round {
					name, _, _ := strings.Cut(call, " ")
					if want := "- " + name + ": " + strings.Join(strings.Fields(results[name]),
						" "); !strings.Contains(text, want) {
						t.Errorf("the answer does not tell %q:\n%s", want, text)
					}
				}
			}
		})
	}
}

func TestNoToolsWhereNoneMayBeCalled(t *testing.T) {
	for name, message := range map[string]string{"usual": "time?",
		"own": "```demo\n[{\"calls\":[{\"name\":\"clock\"}]}]\n```"} {
		t.Run(name, func(t *testing.T) {
			rounds, text := play(t, inference.Request{Messages: []inference.Message{user(message)}, Tools: all,
				ToolChoice: inference.ToolChoiceNone}, nil)
			if rounds != nil || text == "" {
				t.Errorf("called %v, said %q", rounds, text)
			}
		})
	}
}

func TestANoticeAfterResultsIsNoNewMessage(t *testing.T) {
	rounds, text := play(t, inference.Request{ToolChoice: inference.ToolChoiceNone, Tools: all,
		Messages: []inference.Message{
			user("what time is it?"),
			{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "a", Name: "clock", Arguments: "{}"}}},
			{Role: inference.RoleTool, CallID: "a", Text: "noon"},
			user("# System Notice\n\nThis is the last round."),
		}}, nil)
	if rounds != nil || !strings.Contains(text, "what time is it?") || !strings.Contains(text, "- clock: noon") {
		t.Errorf("called %v, said %q", rounds, text)
	}
}

func TestScriptsOfOnesOwn(t *testing.T) {
	const steps = "```demo\n" +
		`[{"text":"First.","calls":[{"name":"launch","arguments":{ "n": 1 }}]},{"calls":[{"name":"land"}]},{"text":"Landed."}]` + "\n```"
	want := [][]string{{`launch {"n":1}`}, {"land {}"}}
	earlier := inference.Message{Role: inference.RoleAssistant, Text: "an earlier answer"}
	for name, messages := range map[string][]inference.Message{
		"in the system prompt": {{Role: inference.RoleSystem, Text: "You fly.\n" + steps}, user("go")},
		"in the message":       {user("go\n" + steps)},
		"after other turns": {{Role: inference.RoleSystem, Text: steps}, user("before"), earlier,
			earlier, user("go")},
	} {
		t.Run(name, func(t *testing.T) {
			rounds, text := play(t, inference.Request{Messages: messages, Tools: declare("launch", "land")}, nil)
			if diff := cmp.Diff(want, rounds); diff != "" {
				t.Error(diff)
			}
			if text != "Landed." {
				t.Errorf("said %q", text)
			}
		})
	}
	t.Run("after its last step", func(t *testing.T) {
		_, text := play(t, inference.Request{Messages: []inference.Message{user("```demo\n[]\n```")}}, nil)
		if !strings.Contains(text, "demo script") {
			t.Errorf("said %q", text)
		}
	})
}

func TestScriptsThatCannotBeRead(t *testing.T) {
	for name, block := range map[string]string{
		"not JSON": "calls: []", "not an array": `{"text":"a"}`, "unknown member": `[{"say":"a"}]`,
		"a call without a name": `[{"calls":[{"arguments":{}}]}]`, "something after it": `[] []`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := demo.Provider{}.Generate(t.Context(),
				inference.Request{Messages: []inference.Message{user("```demo\n" + block + "\n```")}}, nil)
			if inference.ClassOf(err) != inference.ClassInvalid {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTheEndOfTheContextEndsTheScript(t *testing.T) {
	cause := errors.New("shutdown")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := demo.Provider{}.Generate(ctx, inference.Request{Messages: []inference.Message{user("hello")}},
		func(inference.Delta) { cancel(cause) })
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
