package inference_test

import (
	"testing"

	"turnkeeper/inference"
)

// TestBareJSONIsACallIfEachPartIs checks which texts without any sign of markup are calls: those whose objects all name
// a declared tool and its arguments.
func TestBareJSONIsACallIfEachPartIs(t *testing.T) {
	const call, other = `{"name":"clock","arguments":{}}`, `{"name":"look","parameters":{"at":1}}`
	tools := []inference.ToolDefinition{{Name: "clock"}, {Name: "look"}}
	for text, want := range map[string]bool{
		call: true, other: true, "[" + call + "," + other + "]": true, " " + call + "\n": true, "[clock()]": true,
		"[clock(a=1)]": true,
		"[" + call + `,{"name":"Ann","arguments":{}}]`: false,
		`[{"name":"Ann","arguments":{}},` + call + "]": false,
		`{"name":"clock"}`:                  false,
		`{"name":"clock","arguments":"{}"}`: false,
		`{"name":"clock2","arguments":{}}`:  false,
		"[]":                                false,
		"[clocks()]":                        false,
		call + " is how to call it":         false,
		`{"calls":` + call + `}`:            false,
	} {
		if _, _, got := inference.FindMarkup(text, tools, false); got != want {
			t.Errorf("%s is a call: %t", text, got)
		}
	}
}

// TestTheAdviceNamesTheParsers checks which parser is named for which server.
func TestTheAdviceNamesTheParsers(t *testing.T) {
	err := inference.Markup{Name: "Hermes", VLLM: "hermes", SGLang: "qwen25"}.Unparsed()
	want := "the model wrote a tool call as text (Hermes format), which its server did not parse. " +
		"vLLM: --enable-auto-tool-choice --tool-call-parser hermes; SGLang: --tool-call-parser qwen25; llama.cpp: --jinja; " +
		"Ollama: a model whose template has tools"
	if err.Detail != want || err.Class != inference.ClassBadOutput || err.Code != inference.CodeMarkup || !err.NoRetry {
		t.Errorf("got %+v", err)
	}
}
