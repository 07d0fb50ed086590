package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"turnkeeper"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
)

// A document holds the parts of openapi.json that the tests read.
type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string                `json:"operationId"`
		Responses   map[string]described  `json:"responses"`
		Security    []map[string][]string `json:"security"`
	} `json:"paths"`
	Components struct {
		Responses map[string]described      `json:"responses"`
		Schemas   map[string]map[string]any `json:"schemas"`
	} `json:"components"`
}

type described struct {
	Ref     string         `json:"$ref"`
	Headers map[string]any `json:"headers"`
	Content map[string]struct {
		Schema map[string]any `json:"schema"`
	} `json:"content"`
}

func readDocument(t *testing.T, text []byte) (d document) {
	t.Helper()
	// JSON Schema expects definitions under $defs.
	text = []byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/"))
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	for _, schema := range d.Components.Schemas {
		if schema["type"] == "object" { // undescribed fields are errors
			schema["additionalProperties"] = false
		}
	}
	return d
}

// check validates a response against the document.
func (d document) check(t *testing.T, method, path string, a answer) {
	t.Helper()
	op, there := d.Paths[path][strings.ToLower(method)]
	if !there {
		t.Errorf("%s %s is not described", method, path)
		return
	}
	response, there := op.Responses[fmt.Sprint(a.status)]
	if !there {
		response = op.Responses[fmt.Sprint(a.status/100, "XX")]
	}
	if name, is := strings.CutPrefix(response.Ref, "#/components/responses/"); is {
		response = d.Components.Responses[name]
	}
	for _, name := range []string{"Location", "Retry-After", "WWW-Authenticate", "X-Should-Retry",
		"Content-Disposition"} {
		if _, there := response.Headers[name]; a.header.Get(name) != "" && !there {
			t.Errorf("%s %s: the header %s of answer %d is not described", method, path, name, a.status)
		}
	}
	if a.status == http.StatusNoContent {
		return
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content, there := response.Content[kind]
	if !there {
		t.Errorf("%s %s: the type %s of answer %d is not described", method, path, kind, a.status)
		return
	}
	events := kind == "text/event-stream" && content.Schema["type"] != "string"
	if !strings.HasSuffix(kind, "json") && !events {
		return
	}
	root := map[string]any{"$defs": d.Components.Schemas}
	for name, value := range content.Schema {
		root[name] = value
	}
	text, _ := json.Marshal(root)
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	bodies := [][]byte{a.body}
	if events {
		bodies = nil
		for line := range bytes.Lines(a.body) {
			if data, is := bytes.CutPrefix(line, []byte("data: ")); is {
				bodies = append(bodies, data)
			}
		}
	}
	for _, body := range bodies {
		if err := resolved.Validate(decode[any](t, answer{body: body})); err != nil {
			t.Errorf("%s %s answered %d, and it is not as described: %v\n%s", method, path, a.status, err, body)
		}
	}
}

func TestTheDescriptionHasEveryRoute(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d := readDocument(t, text)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("the version is %q", d.OpenAPI)
	}
	var has, ids []string
	for path, ops := range d.Paths {
		for method, op := range ops {
			has = append(has, strings.ToUpper(method)+" "+path)
			ids = append(ids, op.OperationID)
		}
	}
	want := patterns()
	slices.Sort(has)
	slices.Sort(want)
	if diff := cmp.Diff(want, has); diff != "" {
		t.Error(diff)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(has) {
		t.Errorf("operation ids are missing or repeated: %v", ids)
	}
}

// TestTheDescriptionSuitsGenerators checks the rules that public linters recommend, and that client generators
// need to generate named types.
func TestTheDescriptionSuitsGenerators(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Info struct {
			License struct{ Name, Identifier string }
		}
		Servers []struct{ URL string }
		Tags    []struct{ Name string }
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Tags        []string
			Parameters  []struct{ Name, In string }
			Responses   map[string]any
			Security    []any
		}
		Components map[string]map[string]any
	}
	var whole any
	for _, to := range []any{&d, &whole} {
		if err := json.Unmarshal(text, to); err != nil {
			t.Fatal(err)
		}
	}
	if d.Info.License.Name == "" || d.Info.License.Identifier == "" || len(d.Servers) == 0 {
		t.Error("a license and a server are missing")
	}
	var tags []string
	for _, tag := range d.Tags {
		tags = append(tags, tag.Name)
	}
	for path, operations := range d.Paths {
		for method, op := range operations {
			at := method + " " + path
			if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 || !slices.Contains(tags, op.Tags[0]) ||
				op.Security == nil {
				t.Errorf("%s: operationId, summary, one of the tags, or security are missing", at)
			}
			statuses := slices.Sorted(maps.Keys(op.Responses))
			if !slices.Contains(statuses, "4XX") || !slices.Contains(statuses, "5XX") ||
				!strings.HasPrefix(statuses[0], "2") {
				t.Errorf("%s: answered with %v; 2.., 4XX and 5XX are wanted", at, statuses)
			}
			var inPath []string
			for _, p := range op.Parameters {
				if p.In == "path" {
					inPath = append(inPath, "{"+p.Name+"}")
				}
			}
			if want := regexp.MustCompile(`\{\w+\}`).FindAllString(path, -1); !slices.Equal(want, inPath) {
				t.Errorf("%s: describes %v of its path", at, inPath)
			}
		}
	}
	used := map[string]bool{}
	walk(whole, "", func(at string, node map[string]any) {
		if ref, is := node["$ref"].(string); is {
			kind, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
			if used[kind+"/"+name] = true; d.Components[kind][name] == nil {
				t.Errorf("%s: there is no %s", at, ref)
			}
		}
		kinds, _ := node["type"].([]any)
		if node["type"] == "integer" || slices.Contains(kinds, any("integer")) {
			if node["format"] != "int32" && node["format"] != "int64" {
				t.Errorf("%s: an integer of no size", at)
			}
		}
		if regexp.MustCompile(`[/_]id$`).MatchString(at) && node["type"] == "integer" && node["format"] != "int64" {
			t.Errorf("%s: an id has 64 bits", at)
		}
		if (node["enum"] != nil || node["const"] != nil) && node["type"] == nil {
			t.Errorf("%s: a constant of no type", at)
		}
		if state := regexp.MustCompile(`/(state|outcome|effect|trigger|\w*stop_reason)$`).MatchString(at); state &&
			node["type"] == "string" && node["enum"] == nil && !strings.Contains(at, "/ResponseTurn/") {
			t.Errorf("%s: any string; say which", at)
		}
	})
	for _, kind := range []string{"schemas", "responses"} {
		for name := range d.Components[kind] {
			if !used[kind+"/"+name] {
				t.Errorf("nothing refers to %s of %s", name, kind)
			}
		}
	}
}

// walk visits the objects of a JSON text.
func walk(value any, at string, visit func(at string, node map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		visit(at, v)
		for name, child := range v {
			walk(child, at+"/"+name, visit)
		}
	case []any:
		for i, child := range v {
			walk(child, fmt.Sprint(at, "/", i), visit)
		}
	}
}

func TestAnswersAreAsDescribed(t *testing.T) {
	h := newEnv(t, withMetrics)
	d := readDocument(t, h.ask("GET", "/openapi.json", "").body)
	call := turnkeeper.CallKey{Round: 1, Ordinal: 1}
	turn := h.turn("clerk", "work")
	turn.write(turnlog.Entry{
		Round: &turnkeeper.Round{
			Number: 1, Charged: true, Provider: "p", Model: "m", Attempts: 1, FinishReason: "tool_calls",
			Text:   "I look.",
			Usage:  turnkeeper.Usage{InputTokens: 3, OutputTokens: 4},
			Recipe: &turnkeeper.Recipe{Provider: "p", Model: "m", Window: turnkeeper.Window{Size: 100, Factor: 1.5}},
			Calls: []turnkeeper.ToolCall{{
				Key: call, WireID: "c1", Name: "look", Arguments: "{}", ArgsHash: "h", Effect: turnkeeper.EffectNone,
				State: turnkeeper.CallPlanned,
			}},
		},
		Starts: []turnlog.CallStart{{Key: call, Nonce: "n", Attempt: 1, Effect: turnkeeper.EffectNone}},
		Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 1, Data: []byte(`{"of":3}`)}},
	}, turnlog.Consequence{})
	turn.write(turnlog.Entry{Results: []turnlog.CallResult{{
		Key: call, Nonce: "n", State: turnkeeper.CallSucceeded, Shown: "grüße", Preview: "grüße", Ran: true,
		Output: &turnkeeper.Output{ID: "out-1", TurnID: turn.id, Call: call, MediaType: "text/plain", Text: "grüße",
			SizeBytes: 7, RawBytes: 7, Chars: 5, Tokens: 2, SHA256: strings.Repeat("a", 64)},
	}}}, turnlog.Consequence{})

	checked := map[string]bool{}
	response, conversation := "", ""
	ask := func(method, path, query, body string, status int, headers ...string) answer {
		t.Helper()
		checked[method+" "+path] = true
		real := strings.NewReplacer("/v1/turns/{id}", fmt.Sprintf("/v1/turns/%d", turn.id), "/v1/messages/{id}",
			"/v1/messages/1",
			"/v1/responses/{id}", "/v1/responses/"+response, "/v1/conversations/{id}", "/v1/conversations/"+
				conversation, "/v1/models/{id}", "/v1/models/clerk", "/v1/asks/{id}", "/v1/asks/1", "{agent}/{name}",
			"clerk/daily", "/v1/agents/{name}", "/v1/agents/clerk", "{name}", "shop", "{id}", "out-1").Replace(path)
		a := h.ask(method, real+query, body, headers...)
		a.want(t, status, "")
		d.check(t, method, path, a)
		return a
	}
	ask("POST", "/v1/turns/{id}/retry", "", "", 409)
	ask("POST", "/v1/turns/{id}/finish", "", `{"reason":"enough"}`, 202)
	ask("POST", "/v1/messages/{id}/finish", "", "", 202)
	ask("POST", "/v1/turns/{id}/cancel", "", `{"reason":"a look"}`, 202)
	running := ask("GET", "/v1/turns/{id}", "", "", 200)
	running.want(t, 200, `"correction_factor":1.5`)
	running.want(t, 200, `"requested_end":{"how":"cancel","turn_id":1,"reason":"a look"`)
	ask("GET", "/v1/lanes", "", "", 200)
	h.opens(turn, approval("acme"))
	ask("GET", "/v1/asks", "?state=open", "", 200).want(t, 200, `"amount":900`)
	opened := decode[askView](t, ask("GET", "/v1/asks/{id}", "", "", 200))
	ask("POST", "/v1/asks/{id}/answer", "", `{"decision":"approved","answered_by":"ann"}`, 400)
	ask("POST", "/v1/asks/{id}/answer", "", `{"decision":"approved","answered_by":"ann","hash":"x"}`, 409)
	ask("POST", "/v1/asks/{id}/answer", "", `{"decision":"approved","answered_by":"ann","hash":"`+opened.Hash+`"}`, 200)
	webhook := outbox.Webhook{Name: "shop", Origin: "https://shop.example", Agents: []string{"clerk"}}
	if err := h.RegisterWebhook(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	turn.finish("done")
	message := `{"agent":"clerk","body":"hello"}`
	ask("POST", "/v1/messages", "", message, 201, "Idempotency-Key", "k")
	ask("POST", "/v1/messages", "", message, 200, "Idempotency-Key", "k")
	ask("POST", "/v1/messages", "?wait=1ms", message, 202)
	ask("POST", "/v1/messages", "", `{}`, 422)
	ask("GET", "/v1/messages/{id}", "", "", 200)
	ask("GET", "/v1/messages", "?agent=clerk&conversation=main&text=hello&since=2026-01-01&limit=1", "", 200).want(t,
		200, `"body":"hello"`)
	ask("GET", "/v1/messages", "?conversation=main", "", 400)
	ask("GET", "/v1/transcript", "?agent=clerk&conversation=main", "", 200).want(t, 200, `"name":"look"`)
	ask("GET", "/v1/transcript", "?agent=clerk", "", 400)
	ask("POST", "/v1/messages/{id}/cancel", "", "", 409)
	ask("POST", "/v1/messages/{id}/finish", "", "", 409)
	ask("POST", "/v1/schedules/{agent}/{name}/run", "", "", 201)
	ask("POST", "/v1/schedules/{agent}/{name}/run", "", "", 200)
	ask("GET", "/v1/workers", "", "", 200)
	ask("GET", "/v1/turns", "?agent=clerk&state=succeeded&limit=1", "", 200)
	ask("GET", "/v1/turns", "?limit=0", "", 400)
	ask("GET", "/v1/turns/{id}", "", "", 200)
	ask("GET", "/v1/turns/{id}/events", "", "", 200)
	ask("GET", "/v1/turns/{id}/events", "", "", 200, "Accept", "text/event-stream")
	ask("GET", "/v1/turns/{id}/events", fmt.Sprintf("?after=%d",
		one[int64](h, "select last_seq from turnkeeper.turns_now")), "", 204, "Accept", "text/event-stream")
	closed := ask("GET", "/v1/messages/{id}/events", "", "", 200)
	closed.want(t, 200, "message_closed")
	ask("GET", "/v1/messages/{id}/events", "?after=end", "", 204)
	ask("GET", "/v1/messages/{id}/events", "?after=x", "", 400)
	ask("POST", "/v1/turns/{id}/cancel", "", "", 409)
	ask("POST", "/v1/turns/{id}/finish", "", "", 409)
	ask("GET", "/v1/outbox", "", "", 200)
	if part := ask("GET", "/v1/outputs/{id}", "?from=2&to=4", "", 200); string(part.body) != "üß" {
		t.Errorf("characters 2 to 4 are %q", part.body)
	}
	ask("GET", "/v1/outputs/{id}", "?from=3&to=2", "", 400)
	ask("GET", "/v1/lanes", "", "", 200)
	ask("GET", "/v1/schedules", "", "", 200)
	ask("GET", "/v1/agents", "", "", 200)
	ask("GET", "/v1/agents/{name}", "", "", 200)
	ask("GET", "/v1/doctor", "", "", 200)
	if got := decode[struct{ Items []map[string]any }](t, ask("GET", "/v1/webhooks", "", "", 200)); len(
		got.Items) != 1 || got.Items[0]["pending"] != 1.0 {
		t.Errorf("the webhooks are %v", got)
	}
	if got := decode[struct{ Items []map[string]any }](t, ask("GET", "/v1/webhooks/{name}/deliveries", "?state=pending",
		"", 200)); len(got.Items) != 1 || got.Items[0]["webhook_id"] != "reply_1" {
		t.Errorf("the deliveries are %v", got)
	}
	ask("POST", "/v1/scheduler/pause", "", `{"reason":"a look"}`, 200)
	ask("POST", "/v1/scheduler/pause", "", `{"reason":" "}`, 422)
	if paused := ask("GET", "/v1/scheduler", "", "", 200); !strings.Contains(string(paused.body), "a look") {
		t.Errorf("the scheduler is not paused: %s", paused.body)
	}
	ask("POST", "/v1/scheduler/resume", "", "", 200)
	turn = h.dispatch("clerk") // grants a message sent above
	turn.failForGood()
	ask("POST", "/v1/turns/{id}/retry", "", `{"anyway":false}`, 201)
	ask("POST", "/v1/turns/{id}/retry", "", "", 200)
	ask("POST", "/v1/messages/retry", "", `{"state":"failed","since":"1h","agent":"clerk","error_class":"auth"}`, 200)
	ask("POST", "/v1/messages/retry", "", `{"state":"succeeded"}`, 422)
	ask("POST", "/v1/messages/retry", "", `{"state":"failed","since":"yesterday"}`, 422)
	one[string](h, `insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error)
		values ('p/m', now(), now(), 1, 'auth', 'who are you?') returning model`)
	ask("GET", "/v1/model-health", "", "", 200).want(t, 200, `"state":"unused"`)
	one[string](h, `update turnkeeper.agents set models = '{p/m,p/other}' where name = 'clerk' returning name`)
	ask("GET", "/v1/model-health", "", "", 200).want(t, 200, `"state":"down"`)
	ask("GET", "/v1/model-health", "", "", 200).want(t, 200, `"state":"unknown"`)
	one[string](h, `update turnkeeper.agents set models = '{}' where name = 'clerk' returning name`)
	ask("GET", "/v1/levels", "", "", 200).want(t, 200, `"agents":[]`)
	ask("POST", "/v1/levels/pin", "", `{"level":"low","for_seconds":60,"reason":"costs","by":"ada"}`, 200).want(t,
		200, `"by":"ada"`)
	ask("POST", "/v1/levels/pin", "", `{"agent":"clerk","level":"critical"}`, 200).want(t, 200, `"by":"operator"`)
	ask("POST", "/v1/levels/pin", "", `{"level":"high"}`, 422)
	ask("POST", "/v1/levels/pin", "", `{"level":"low","for_seconds":-1}`, 422)
	ask("POST", "/v1/levels/pin", "", `{"agent":"nobody","level":"low"}`, 404)
	ask("GET", "/v1/levels", "", "", 200).want(t, 200, `"level":"critical"`)
	ask("POST", "/v1/levels/unpin", "", `{"agent":"clerk"}`, 200)
	ask("POST", "/v1/levels/unpin", "", `{"agent":"nobody"}`, 404)
	ask("POST", "/v1/levels/unpin", "", `{}`, 200).want(t, 200, `"all":null`)
	var created struct{ ID string }
	if err := json.Unmarshal(ask("POST", "/v1/responses", "",
		`{"model":"clerk","input":"hello","background":true,"metadata":{"a":"b"}}`, 200).body, &created); err != nil {
		t.Fatal(err)
	}
	response = created.ID
	ask("POST", "/v1/responses", "", `{"model":"clerk"}`, 400)
	ask("GET", "/v1/responses/{id}", "", "", 200)
	ask("GET", "/v1/responses/{id}/input_items", "", "", 200)
	ask("POST", "/v1/responses/{id}/cancel", "", "", 200)
	ask("GET", "/v1/responses/{id}", "?stream=true", "", 200)
	ask("GET", "/v1/responses/{id}", "?starting_after=1", "", 400)
	if err := json.Unmarshal(ask("POST", "/v1/conversations", "",
		`{"metadata":{"a":"b"},"items":[{"role":"user","content":"x"}]}`, 200).body, &created); err != nil {
		t.Fatal(err)
	}
	conversation = created.ID
	ask("POST", "/v1/conversations", "", `{"items":1}`, 400)
	ask("GET", "/v1/conversations/{id}", "", "", 200)
	ask("GET", "/v1/models", "", "", 200)
	ask("GET", "/v1/models/{id}", "", "", 200)
	ask("GET", "/metrics", "", "", 200)
	ask("GET", "/openapi.json", "", "", 200)
	ask("GET", "/healthz", "", "", 200)
	ask("GET", "/readyz", "", "", 200)
	for _, pattern := range patterns() {
		if !checked[pattern] {
			t.Errorf("no answer of %s was held against its description", pattern)
		}
	}
}

// TestNamesForGenerators checks what generators need of every schema: a field with a default is not required, and its
// default stands in its description alone, because some make it a field that must be given; and each enumeration has
// a name that says of what, of two words or more: that of its component, or a title.
func TestNamesForGenerators(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	titles := map[string]string{}
	for name, schema := range d.Components.Schemas {
		named, _ := schema.(map[string]any)
		if named["enum"] != nil {
			named["title"] = name
		}
		checkForGenerators(t, name, schema, titles)
	}
	if len(titles) < 10 {
		t.Errorf("there are only the enumerations %v", titles)
	}
	planted := map[string]any{"properties": map[string]any{"n": map[string]any{"default": 1.0},
		"kind": map[string]any{"enum": []any{"a"}}}}
	if faults := faultsForGenerators("planted", planted, map[string]string{}); len(faults) != 2 {
		t.Errorf("planted faults are found as %q", faults)
	}
}

func checkForGenerators(t *testing.T, at string, schema any, titles map[string]string) {
	t.Helper()
	for _, fault := range faultsForGenerators(at, schema, titles) {
		t.Error(fault)
	}
}

var twoWords = regexp.MustCompile(`^[A-Z][a-z]+([A-Z][a-z]+)+$`)

// faultsForGenerators searches a schema and those in it. titles collects the names of enumerations and where they are.
func faultsForGenerators(at string, schema any, titles map[string]string) (faults []string) {
	switch schema := schema.(type) {
	case []any:
		for i, item := range schema {
			faults = append(faults, faultsForGenerators(fmt.Sprint(at, "/", i), item, titles)...)
		}
	case map[string]any:
		if _, is := schema["enum"].([]any); is {
			title, _ := schema["title"].(string)
			if other, used := titles[title]; used || !twoWords.MatchString(title) {
				faults = append(faults, fmt.Sprintf("the enumeration at %s is named %q, as is that at %q", at,
					title, other))
			}
			titles[title] = at
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			if keywords, _ := property.(map[string]any); keywords["default"] != nil {
				faults = append(faults, fmt.Sprintf("%s/%s has a default: say it in its description", at, name))
			}
		}
		for name, value := range schema {
			faults = append(faults, faultsForGenerators(at+"/"+name, value, titles)...)
		}
	}
	return faults
}
