package inferencetest_test

import (
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// TestMessagesViolations gives the check of the Messages API one fault after the other.
func TestMessagesViolations(t *testing.T) {
	const tools = `"tools":[{"name":"clock","input_schema":{"type":"object"}}],`
	const question, call = `{"role":"user","content":[{"type":"text","text":"hi"}]}`,
		`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"clock","input":{}}]}`
	const result = `{"type":"tool_result","tool_use_id":"a","content":"noon"}`
	answer := func(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }
	for name, tc := range map[string]struct{ head, messages, says string }{
		"nothing wrong": {tools, question + "," + call + "," + answer(result+`,{"type":"text","text":"and?"}`), ""},
		"an answer with blocks of its own": {"", question +
			`,{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"text","text":""},{"type":"x"}]}`, ""},
		"no message":       {"", "", "there is no message"},
		"an answer first":  {"", `{"role":"assistant","content":[{"type":"text","text":"hi"}]}`, "is not the user's"},
		"two questions":    {"", question + "," + question, "has the role of the message before"},
		"a system message": {"", question + `,{"role":"system","content":[{"type":"text","text":"x"}]}`, "unknown role"},
		"no block":         {"", `{"role":"user","content":[]}`, "has no block"},
		"a blank text":     {"", `{"role":"user","content":[{"type":"text","text":" "}]}`, "is blank"},
		"no result":        {tools, question + "," + call, "is not answered before"},
		"a result after a text": {tools,
			question + "," + call + "," + answer(`{"type":"text","text":"x"},`+result), "after another block"},
		"a result of no call": {tools, question + "," + call + "," + answer(result+","+result),
			"which is not open"},
		"a call without tools": {"", question + "," + call + "," + answer(result), "no tools are declared"},
		"a call of the user":   {tools, answer(`{"type":"tool_use","id":"a","name":"clock","input":{}}`), "which the role user cannot have"},
		"an id that is not allowed": {tools, question + "," + strings.Replace(call, `"a"`, `"a.b"`, 1),
			"is invalid or used before"},
		"an input that is a text": {tools, question + "," + strings.Replace(call, `{}`, `"x"`, 1), "not an object"},
		"no tools":                {`"tools":[],`, question, "tools is empty"},
		"a tool without a schema": {`"tools":[{"name":"clock"}],`, question, "no schema of an object"},
		"a choice without tools":  {`"tool_choice":{"type":"none"},`, question, "tool_choice without tools"},
		"a mark on thinking": {"", question +
			`,{"role":"assistant","content":[{"type":"thinking","thinking":"x","cache_control":{}}]}`, "must not have a cache mark"},
		"five marks": {"", answer(strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x","cache_control":{}},`, 5), ",")),
			"there are 5 cache marks"},
	} {
		body := `{"max_tokens":1,` + tc.head + `"messages":[` + tc.messages + `]}`
		got := inferencetest.MessagesViolations([]byte(body))
		if all := strings.Join(got, "; "); !strings.Contains(all, tc.says) || tc.says == "" && all != "" {
			t.Errorf("%s: %q, want %q", name, all, tc.says)
		}
	}
	if got := inferencetest.MessagesViolations([]byte(`{"messages":[` + question + `]}`)); len(got) != 1 {
		t.Errorf("without max_tokens: %q", got)
	}
}
