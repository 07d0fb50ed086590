package tools_test

import (
	"encoding/json"
	"testing"

	"turnkeeper/tools"
)

// BenchmarkCompileSchema compiles a schema again, as each turn does for tools of MCP servers.
func BenchmarkCompileSchema(b *testing.B) {
	schema := json.RawMessage(
		`{"type":"object","required":["path"],"properties":{"path":{"type":"string","minLength":1},
		"lines":{"type":"array","items":{"type":"integer","minimum":1}},"mode":{"type":"string","enum":["raw","text"]}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tools.CompileSchema(schema); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSchemasAreCompiledOnce(t *testing.T) {
	var compiled []*tools.Schema
	for _, text := range []string{`{"type":"object","title":"once"}`, `{"type":"object","title":"once"}`,
		`{"type":"object","title":"twice"}`} {
		schema, err := tools.CompileSchema(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, schema)
	}
	if compiled[0] != compiled[1] || compiled[0] == compiled[2] {
		t.Errorf("compiled %p, %p and %p", compiled[0], compiled[1], compiled[2])
	}
	for range 2 {
		if _, err := tools.CompileSchema(json.RawMessage(`{"type":"text"}`)); err == nil {
			t.Error("a wrong schema was compiled")
		}
	}
}
