package inferencetest_test

import (
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

func TestResponsesViolations(t *testing.T) {
	const tool = `{"type":"function","name":"f","parameters":{},"strict":false}`
	body := func(input string) string {
		return `{"store":false,"include":["reasoning.encrypted_content"],"tools":[` + tool + `],"input":[` + input + `]}`
	}
	const (
		hi        = `{"type":"message","role":"user","content":"hi"}`
		reasoning = `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"e"}`
		call      = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
		output    = `{"type":"function_call_output","call_id":"c","output":"x"}`
		said      = `{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text"}]}`
	)
	for input, says := range map[string]string{
		hi: "", hi + "," + reasoning + "," + said + "," + call + "," + output + "," + hi: "",
		"": "there is no input", `7`: "is not an object",
		reasoning:                        "directly after reasoning",
		reasoning + "," + hi:             "without its required following item",
		call:                             "is not answered before the end",
		call + "," + hi + "," + output:   "is not answered before input[1]",
		output:                           "which is not open",
		call + "," + output + "," + call: "used before",
		said + "," + said:                "used before",
		`{"type":"message","role":"assistant","content":[{"type":"output_text"}]}`:       "not an answer with id and status",
		`{"type":"message","role":"user","content":""}`:                                  "is an empty text",
		`{"type":"message","role":"tool","content":"x"}`:                                 "unknown role",
		`{"type":"reasoning","summary":[],"encrypted_content":""},` + said:               "reasoning without",
		`{"type":"reasoning","summary":[],"encrypted_content":"e","status":"x"},` + said: "with a status",
		`{"type":"function_call","call_id":"c","name":"f","arguments":"[]"},` + output:   "not a JSON object in a text",
		`{"type":"function_call","call_id":"c","name":"a b","arguments":"{}"},` + output: "its id is wrong",
		`{"type":"function_call","call_id":"c","name":"f","arguments":null},` + output:   "has a null as arguments",
		`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`:               "which a client cannot send",
	} {
		found := strings.Join(inferencetest.ResponsesViolations([]byte(body(input))), "; ")
		if says == "" && found != "" || !strings.Contains(found, says) {
			t.Errorf("%s: %q, want %q", input, found, says)
		}
	}
	for text, says := range map[string]string{
		`{`: "cannot be read", `{"store":true,"input":[]}`: "is not stateless",
		`{"store":false,"input":[` + reasoning + `]}`:                "is not asked for",
		strings.Replace(body(hi), tool, "", 1):                       "tools is empty",
		strings.Replace(body(hi), `"strict":false`, `"strict":1`, 1): "not a function with its own name",
		strings.Replace(body(hi), tool, tool+","+tool, 1):            "not a function with its own name",
	} {
		found := strings.Join(inferencetest.ResponsesViolations([]byte(text)), "; ")
		if !strings.Contains(found, says) {
			t.Errorf("%s: %q, want %q", text, found, says)
		}
	}
}
