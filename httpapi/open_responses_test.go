package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// nullable and list shorten the schemas below.
func nullable(schema string) string { return `{"anyOf":[` + schema + `,{"type":"null"}]}` }

func objectOf(fields map[string]string, optional map[string]string) string {
	properties, required := map[string]json.RawMessage{}, []string{}
	for name, schema := range fields {
		properties[name], required = json.RawMessage(schema), append(required, name)
	}
	for name, schema := range optional {
		properties[name] = json.RawMessage(schema)
	}
	text, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func listOf(schema string) string { return `{"type":"array","items":` + schema + `}` }

func only(values ...string) string {
	text, err := json.Marshal(map[string]any{"enum": values})
	if err != nil {
		panic(err)
	}
	return string(text)
}

const (
	aText, aNumber, aWhole, aBoolean = `{"type":"string"}`, `{"type":"number"}`, `{"type":"integer"}`,
		`{"type":"boolean"}`
	aCode = `{"type":"string","minLength":1}`
)

// What Open Responses (2026-04-24) requires of the objects that this API sends: https://www.openresponses.org. Every
// field is required there unless it is the second argument's.
func openSchemas() (response string, events map[string]string) {
	part := objectOf(map[string]string{"type": only("output_text"), "text": aText, "annotations": listOf("{}")},
		map[string]string{"logprobs": listOf("{}")})
	item := objectOf(map[string]string{
		"type": only("message"), "id": aCode, "status": only("in_progress", "completed", "incomplete"),
		"role": only("assistant"), "content": listOf(part),
	}, map[string]string{"phase": only("commentary", "final_answer")})
	usage := objectOf(map[string]string{
		"input_tokens": aWhole, "output_tokens": aWhole, "total_tokens": aWhole,
		"input_tokens_details":  objectOf(map[string]string{"cached_tokens": aWhole}, nil),
		"output_tokens_details": objectOf(map[string]string{"reasoning_tokens": aWhole}, nil),
	}, nil)
	response = objectOf(map[string]string{
		"id": aCode, "object": only("response"), "created_at": aWhole, "completed_at": nullable(aWhole),
		"status":             aCode,
		"incomplete_details": nullable(objectOf(map[string]string{"reason": aText}, nil)), "model": aCode,
		"previous_response_id": nullable(aCode),
		"instructions":         nullable(aText), "output": listOf(item),
		"error": nullable(objectOf(map[string]string{"code": aCode, "message": aCode}, nil)),
		"tools": listOf("{}"), "tool_choice": only("none", "auto", "required"), "truncation": only("auto", "disabled"),
		"parallel_tool_calls": aBoolean,
		"text": objectOf(map[string]string{"format": objectOf(map[string]string{"type": only("text", "json_object",
			"json_schema")}, nil)}, nil),
		"top_p": aNumber, "presence_penalty": aNumber, "frequency_penalty": aNumber, "top_logprobs": aWhole,
		"temperature": aNumber,
		"reasoning": nullable(objectOf(map[string]string{"effort": nullable(aText), "summary": nullable(aText)},
			nil)),
		"usage": nullable(usage), "max_output_tokens": nullable(aWhole), "max_tool_calls": nullable(aWhole),
		"store": aBoolean, "background": aBoolean,
		"service_tier": aText, "metadata": `{"type":"object"}`, "safety_identifier": nullable(aText),
		"prompt_cache_key": nullable(aText),
		"user":             nullable(aText), // until 2026-01
	}, nil)
	lifecycle := func(name string) string {
		return objectOf(map[string]string{"type": only("response." + name), "sequence_number": aWhole,
			"response": response}, nil)
	}
	ofItem := func(name string) string {
		return objectOf(map[string]string{"type": only("response." + name), "sequence_number": aWhole,
			"output_index": aWhole, "item": item}, nil)
	}
	ofPart := func(name, field, schema string) string {
		return objectOf(map[string]string{
			"type": only("response." + name), "sequence_number": aWhole, "item_id": aCode, "output_index": aWhole,
			"content_index": aWhole, field: schema,
		}, map[string]string{"logprobs": listOf("{}")})
	}
	events = map[string]string{
		"output_item.added": ofItem("output_item.added"), "output_item.done": ofItem("output_item.done"),
		"content_part.added": ofPart("content_part.added", "part", part),
		"content_part.done":  ofPart("content_part.done", "part", part),
		"output_text.delta":  ofPart("output_text.delta", "delta", aText),
		"output_text.done": ofPart("output_text.done",
			"text", aText),
	}
	for _, name := range []string{"created", "queued", "in_progress", "completed", "failed", "incomplete"} {
		events[name] = lifecycle(name)
	}
	return response, events
}

func resolved(t *testing.T, text string) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}
	r, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fits fails the test unless a JSON text fits the schema.
func fits(t *testing.T, schema, text string) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := resolved(t, schema).Validate(value); err != nil {
		t.Errorf("%s\ndoes not fit Open Responses: %v", text, err)
	}
}

// fitAll checks the events of a stream.
func fitAll(t *testing.T, all []sent) {
	t.Helper()
	_, schemas := openSchemas()
	for _, e := range all {
		schema, known := schemas[strings.TrimPrefix(e.Type, "response.")]
		if !known {
			t.Errorf("Open Responses has no event %q", e.Type)
			continue
		}
		fits(t, schema, e.raw)
	}
}

// TestOpenResponses sends what the acceptance tests of Open Responses for text send, and checks the answers as they do:
// a response that fits the schema, is completed and has an output, and a stream whose every event fits its schema.
func TestOpenResponses(t *testing.T) {
	h := newEnv(t)
	schema, _ := openSchemas()
	for name, input := range map[string]string{
		"a message":             `[{"type":"message","role":"user","content":"Say hello in three words."}]`,
		"a system message":      `[{"type":"message","role":"system","content":"Talk like a pirate."},{"type":"message","role":"user","content":"Say hello."}]`,
		"a developer message":   `[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},{"type":"message","role":"user","content":"Hello."}]`,
		"a history":             `[{"type":"message","role":"user","content":"I am Alice."},{"type":"message","role":"assistant","content":"Hello Alice!"},{"type":"message","role":"user","content":"Who am I?"}]`,
		"a history with phases": `[{"type":"message","role":"user","content":"I am Eve."},{"type":"message","role":"assistant","phase":"commentary","content":"I look it up."},{"type":"message","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"Hello Eve!","annotations":[]}]},{"type":"message","role":"user","content":"Who am I?"}]`,
	} {
		for _, stream := range []bool{false, true} {
			what := fmt.Sprintf("%s, stream %t", name, stream)
			body := fmt.Sprintf(
				`{"model":"clerk","input":%s,"stream":%t,"temperature":0.7,"top_p":0.9,"presence_penalty":0.1,"frequency_penalty":0.1,"top_logprobs":0,
				"max_output_tokens":100,"tool_choice":"auto","tools":[],"truncation":"disabled","parallel_tool_calls":true,"service_tier":"auto",
				"reasoning":{"effort":null},"text":{"format":{"type":"text"},"verbosity":"low"},"safety_identifier":"s","prompt_cache_key":"p","include":[]}`, input, stream)
			got := make(chan answer, 1)
			go func() { got <- h.ask("POST", "/v1/responses", body) }()
			h.answerNext("Hello to you.")
			a := <-got
			a.want(t, 200, "Hello to you.")
			if !stream {
				fits(t, schema, string(a.body))
				r := decode[response](t, a)
				if r.Status != "completed" || len(r.Output) == 0 {
					t.Errorf("%s: the response is %s", what, a.body)
				}
				continue
			}
			all := parseEvents(t, string(a.body))
			fitAll(t, all)
			if last := all[len(all)-1]; last.Type != "response.completed" || last.Response.text() != "Hello to you." {
				t.Errorf("%s: the stream ends with %s", what, last.raw)
			}
		}
	}
}

// answerNext waits for a message that has no turn, and answers it.
func (h *env) answerNext(reply string) {
	h.t.Helper()
	for one[int](h, "select count(*) from turnkeeper.messages where state = 'waiting'") == 0 {
		<-time.After(time.Millisecond)
	}
	h.dispatch("clerk").finish(reply)
}

func parseEvents(t *testing.T, stream string) (all []sent) {
	t.Helper()
	for line := range strings.Lines(stream) {
		data, is := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !is {
			continue
		}
		e := sent{raw: data}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}
