package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/golden"
)

// TestClasses compares the class of each status, and of each known code with some of them, with testdata. A line says
// whether the error is transient, and whether the request may have caused it.
func TestClasses(t *testing.T) {
	show := func(e *inference.Error) string {
		text := string(e.Class)
		if e.Transient() {
			text += ", transient"
		}
		if e.ByRequest {
			text += ", by the request"
		}
		return text
	}
	var lines []string
	before := ""
	for status := 300; status <= 600; status++ {
		if now := show(openai.Classify(status, nil, nil)); now != before {
			lines = append(lines, fmt.Sprintf("from %d: %s", status, now))
			before = now
		}
	}
	for _, code := range openai.Codes() {
		for _, status := range []int{200, 400, 402, 429, 500, 503} {
			for _, member := range []string{"code", "type"} {
				body := fmt.Sprintf(`{"error":{%q:%q,"message":"no"}}`, member, code)
				lines = append(lines, fmt.Sprintf("%s %s, %d: %s", member, code, status,
					show(openai.Classify(status, http.Header{}, []byte(body)))))
			}
		}
	}
	golden.File(t, "testdata/classes.txt", strings.Join(lines, "\n")+"\n")
}

// TestDeclarationsAreThoseOfTheRequest checks that no request declares a tool as another request did: of the same name
// with another description or other parameters, and after the caller has changed its own copy. The memory for
// declarations is bounded.
func TestDeclarationsAreThoseOfTheRequest(t *testing.T) {
	declare := func(tool inference.ToolDefinition) string {
		w := &wire{contentType: "application/json"}
		_, _ = wired(t, w, openai.Profile{}).Generate(t.Context(), inference.Request{
			Model: "m", Tools: []inference.ToolDefinition{tool},
			Messages: []inference.Message{{Role: inference.RoleUser, Text: "hi"}},
		}, nil)
		return string(w.sent)
	}
	parameters := []byte(`{"type":"object","title":"first"}`)
	for i, tool := range []inference.ToolDefinition{
		{Name: "cached", Description: "one", Parameters: parameters}, {Name: "cached", Description: "two",
			Parameters: parameters},
		{Name: "cached", Description: "two", Parameters: []byte(`{"type":"object","title":"other"}`)}, {Name: "cached"},
		{Name: "cached2"},
	} {
		for range 2 {
			sent := declare(tool)
			title := "first"
			if i == 2 {
				title = "other"
			}
			if !strings.Contains(sent, `"name":"`+tool.Name+`"`) || tool.Description != "" && !strings.Contains(sent,
				tool.Description) ||
				tool.Description == "" && strings.Contains(sent, `"description"`) || strings.Contains(sent,
				title) != (tool.Parameters != nil) {
				t.Errorf("%d: %s", i, sent)
			}
		}
	}
	own := []byte(`{"type":"object","title":"first"}`)
	declare(inference.ToolDefinition{Name: "changed", Parameters: own})
	copy(own, strings.Replace(string(own), "first", "fifth", 1))
	if sent := declare(inference.ToolDefinition{Name: "changed", Parameters: own}); !strings.Contains(sent, "fifth") {
		t.Errorf("after a change in place: %s", sent)
	}
	for i := range 1001 {
		declare(inference.ToolDefinition{Name: fmt.Sprint("many", i)})
		if n := openai.Declarations(); n > 1000 {
			t.Fatalf("%d declarations are kept", n)
		}
	}
}
