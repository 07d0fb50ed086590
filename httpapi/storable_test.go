package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"turnkeeper/httpapi"
)

// An operation is what openapi.json says of the texts that a route takes.
type operation struct {
	Parameters []struct{ Name, In string }
	Body       struct {
		Content map[string]struct{ Schema map[string]any }
	} `json:"requestBody"`
}

// withText returns values of a schema that have the text in one of their strings, or names of objects: one value for
// each.
func withText(schemas map[string]map[string]any, schema map[string]any, text string, depth int) (all []any) {
	if ref, is := schema["$ref"].(string); is {
		schema = schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		for _, value := range withText(schemas, properties[name].(map[string]any), text, depth) {
			all = append(all, map[string]any{name: value})
		}
	}
	kinds := fmt.Sprint(schema["type"])
	anything := schema["type"] == nil && properties == nil && schema["enum"] == nil && depth < 3
	if strings.Contains(kinds, "string") || anything {
		all = append(all, text)
	}
	if more, is := schema["additionalProperties"].(map[string]any); is || anything {
		for _, value := range withText(schemas, more, text, depth+1) {
			all = append(all, map[string]any{"name": value})
		}
		all = append(all, map[string]any{text: "value"})
	}
	if items, is := schema["items"].(map[string]any); is || anything {
		for _, value := range withText(schemas, items, text, depth+1) {
			all = append(all, []any{value})
		}
	}
	return all
}

// TestTextsThatPostgresCannotStore checks that every text of every route is refused if it has a NUL character or is not
// UTF-8, before it reaches a query.
func TestTextsThatPostgresCannotStore(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.MaxMessageBytes = 10_000 })
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	ask := h.opens(h.turn("clerk", "work"), approval("acme"))
	turn := one[int64](h, "select turn_id from turnkeeper.asks where id = $1", ask)
	message := one[int64](h, "select message_id from turnkeeper.turns where id = $1", turn)
	filled := func(path string) string {
		id := map[string]any{"messages": message, "turns": turn, "asks": ask}[strings.Split(path,
			"/")[2%len(strings.Split(path, "/"))]]
		return strings.NewReplacer("{id}", fmt.Sprint(id), "{agent}", "clerk", "{name}", "daily").Replace(path)
	}
	asked := map[string]int{}
	for path, methods := range document.Paths {
		for method, o := range methods {
			method = strings.ToUpper(method)
			whole := filled(path)
			refused := func(a answer, what, why string, statuses ...int) {
				if !slices.Contains(statuses, a.status) || !strings.Contains(string(a.body), why) {
					t.Errorf("%s %s with %s: %d %s", method, path, what, a.status, a.body)
				}
				asked[why]++
			}
			for _, bad := range []string{"a\x00", "a\xff"} {
				for _, p := range o.Parameters {
					what := fmt.Sprintf("%s %q", p.Name, bad)
					switch {
					case p.In == "query":
						refused(h.ask(method, whole+"?"+url.Values{p.Name: {bad}}.Encode(), ""), what,
							"query string is invalid", http.StatusBadRequest)
					case p.In == "path":
						at := strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(bad))
						refused(h.ask(method, filled(at), ""), what, "path is not valid", http.StatusNotFound)
					// net/http refuses NUL in headers
					case p.In == "header" && bad == "a\xff" && p.Name != "traceparent":
						if a := h.ask(method, whole,
							`{"agent":"clerk","body":"x","model":"clerk","input":"x","background":true}`, p.Name,
							bad); a.status >= 500 {
							t.Errorf("%s %s with %s: %d %s", method, path, what, a.status, a.body)
						}
					}
				}
			}
			for _, content := range o.Body.Content {
				for _, value := range withText(document.Components.Schemas, content.Schema, "a\x00", 0) {
					body, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					refused(h.ask(method, whole, string(body)), string(body), "NUL character", http.StatusBadRequest)
					half := strings.ReplaceAll(string(body), `\u0000`, `\ud800`)
					refused(h.ask(method, whole, half), half, "unpaired surrogate", http.StatusBadRequest)
				}
			}
		}
	}
	if len(asked) != 4 || asked["NUL character"] < 50 {
		t.Errorf("it has asked %v", asked)
	}
	// What is stored as JSON has other limits too: of numbers.
	h.ask("POST", "/v1/conversations",
		`{"items":[{"role":"user","content":[{"type":"input_text","text":"x","n":1e999999}],"n":1e999999}]}`).want(t,
		http.StatusOK, "conv_")
}
