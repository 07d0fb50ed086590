package mcp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"turnkeeper/internal/golden"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedStrings(all []string) []string { slices.Sort(all); return all }

// TestWhatAnAnswerBecomes records the result that each kind of content becomes: alone, beside others, and of a call
// that failed.
func TestWhatAnAnswerBecomes(t *testing.T) {
	t.Parallel()
	const (
		text  = `{"type":"text","text":"a text"}`
		image = `{"type":"image","mimeType":"image/png","data":"AAE="}`
		value = `{"type":"text","text":"{\"b\":1.0,\"a\":\"<é>\"}"}`
	)
	answers := map[string]string{
		"nothing":                `{"content":[]}`,
		"nothing, failed":        `{"content":[],"isError":true}`,
		"an empty text":          `{"content":[{"type":"text","text":""}]}`,
		"a text":                 `{"content":[` + text + `]}`,
		"a text, failed":         `{"content":[` + text + `],"isError":true}`,
		"two texts":              `{"content":[` + text + `,` + text + `]}`,
		"an image":               `{"content":[` + image + `]}`,
		"an image, failed":       `{"content":[` + image + `],"isError":true}`,
		"two images":             `{"content":[` + image + `,` + image + `]}`,
		"an image without bytes": `{"content":[{"type":"image","mimeType":"image/png","data":""}]}`,
		"audio and a text": `{"content":[{"type":"audio","mimeType":"audio/wav","data":"AAEC"},` +
			text + `]}`,
		"a link":               `{"content":[{"type":"resource_link","uri":"file:///x","name":"x","description":"an x","mimeType":"text/x"}]}`,
		"a link with a name":   `{"content":[{"type":"resource_link","uri":"file:///x","name":"x"}]}`,
		"a resource of text":   `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/x","text":"of a"}}]}`,
		"a resource of bytes":  `{"content":[{"type":"resource","resource":{"uri":"file:///b","mimeType":"application/x","blob":"AAE="}}]}`,
		"a value":              `{"content":[],"structuredContent":{"b":[1,"<x>"],"a":null}}`,
		"a value and its text": `{"content":[` + value + `],"structuredContent":{"a":"<é>","b":1}}`,
		"a value and two texts, one is it": `{"content":[` + text + `,` + value +
			`],"structuredContent":{"a":"<é>","b":1}}`,
		"a value and another text":          `{"content":[` + text + `],"structuredContent":{"a":"<é>","b":1}}`,
		"a value and the text of another":   `{"content":[` + value + `],"structuredContent":{"a":"<é>","b":2}}`,
		"a value and an image":              `{"content":[` + image + `],"structuredContent":{"a":1}}`,
		"a value, failed":                   `{"content":[],"structuredContent":{"a":1},"isError":true}`,
		"the largest exact number":          `{"content":[],"structuredContent":{"a":9007199254740991}}`,
		"a rounded number":                  `{"content":[],"structuredContent":{"a":9007199254740993}}`,
		"a rounded number below zero":       `{"content":[],"structuredContent":{"a":[{"b":-9007199254740992}]}}`,
		"a rounded number and another text": `{"content":[` + text + `],"structuredContent":{"a":9007199254740993}}`,
	}
	var said strings.Builder
	for _, name := range sortedKeys(answers) {
		var r sdk.CallToolResult
		if err := json.Unmarshal([]byte(answers[name]), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := resultOf(&r)
		fmt.Fprintf(&said, "%s\n  text %q, type %q, error %t", name, got.Text, got.MediaType, got.IsError)
		if got.Bytes != nil {
			fmt.Fprintf(&said, ", bytes %v", got.Bytes)
		}
		for _, file := range got.Attached {
			fmt.Fprintf(&said, "\n  attached %q, type %q, bytes %v, nil %t", file.Name, file.MediaType, file.Bytes,
				file.Bytes == nil)
		}
		said.WriteString("\n")
	}
	golden.File(t, "testdata/results.txt", said.String())
	if got := resultOf(&sdk.CallToolResult{Content: []sdk.Content{
		&sdk.EmbeddedResource{}}}); got.Text != "The server answered with nothing." {
		t.Errorf("a resource without contents: %+v", got)
	}
	if got := resultOf(&sdk.CallToolResult{Content: []sdk.Content{nil}}); !strings.Contains(got.Text,
		"of a kind that is not known here") {
		t.Errorf("unknown content: %+v", got)
	}
}

// TestDefinitions records what is kept of a tool as its server describes it, and checks that the hash depends on all of
// that.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	whole :=
		`{"name":"n","title":"T","description":"D","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"idempotentHint":true}}`
	described := map[string]string{
		"whole":                  whole,
		"without a description":  strings.Replace(whole, `"description":"D",`, "", 1),
		"with blanks and zeroes": strings.Replace(whole, `"D"`, `" \n a\u0000b\t "`, 1),
		"without any text":       `{"name":"n","inputSchema":{"type":"object"}}`,
		"with another name":      strings.Replace(whole, `"n"`, `"m"`, 1),
		"with another text":      strings.Replace(whole, `"D"`, `"E"`, 1),
		"with another schema": strings.Replace(whole, `{"type":"object"}`,
			`{"type":"object","title":"<é>","properties":{"b":{"const":1.50},"a":{}}}`, 1),
		"that changes things":    strings.Replace(whole, `"readOnlyHint":true`, `"readOnlyHint":false`, 1),
		"that is not idempotent": strings.Replace(whole, `"idempotentHint":true`, `"idempotentHint":false`, 1),
	}
	var said strings.Builder
	hashes := map[string]string{}
	for _, name := range sortedKeys(described) {
		var tool sdk.Tool
		if err := json.Unmarshal([]byte(described[name]), &tool); err != nil {
			t.Fatal(err)
		}
		d := definitionOf(&tool)
		fmt.Fprintf(&said, "%s: %q %s, reads only %t, idempotent %t, hash %.12s\n", name, d.Description, d.Schema,
			d.ReadOnly, d.Idempotent, d.Hash)
		if other, known := hashes[d.Hash]; known || len(d.Hash) != 64 {
			t.Errorf("%s and %s have the hash %s", name, other, d.Hash)
		}
		hashes[d.Hash] = name
	}
	golden.File(t, "testdata/definitions.txt", said.String())
	if d := definitionOf(&sdk.Tool{Name: "n"}); d.Schema != emptySchema {
		t.Errorf("without a schema: %s", d.Schema)
	}
	if got := canonical([]byte(`{"a":`)); got != emptySchema {
		t.Errorf("a schema that is no JSON: %s", got)
	}
}
