package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"turnkeeper/inference"
)

// twentyTools returns definitions that share no memory with those of another call.
func twentyTools() (definitions []inference.ToolDefinition) {
	for n := range 20 {
		definitions = append(definitions, inference.ToolDefinition{
			Name: fmt.Sprint("tool_", n), Description: "Reads a file. Returns its text.",
			Parameters: json.RawMessage(
				`{"type":"object","required":["path"],"properties":{"path":{"type":"string","minLength":1}}}`),
		})
	}
	return definitions
}

func TestToolsetsAreKept(t *testing.T) {
	kept := &toolsets{}
	first, again := kept.of(twentyTools()), kept.of(twentyTools())
	changed := twentyTools()
	changed[19].Description = "Writes a file."
	counts := NewCounts(HeuristicTokens{}, "", nil)
	if &first.definitions[0] != &again.definitions[0] || first.tokens(counts) != again.tokens(counts) {
		t.Error("the same definitions were encoded twice")
	}
	for name, definitions := range map[string][]inference.ToolDefinition{"same": twentyTools(), "changed": changed,
		"fewer": twentyTools()[1:], "none": nil} {
		for range 2 {
			got, want := kept.of(definitions), newToolset(definitions)
			if got.part != want.part || got.tokens(counts) != want.tokens(counts) || !slices.EqualFunc(got.definitions,
				want.definitions, equalDefinitions) {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
	}
}

// BenchmarkToolset makes the toolset of a turn with 20 tools.
func BenchmarkToolset(b *testing.B) {
	counts, definitions := NewCounts(HeuristicTokens{}, "", nil), twentyTools()
	for name, kept := range map[string]*toolsets{"kept": {}, "new": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kept.of(definitions).tokens(counts)
			}
		})
	}
}
