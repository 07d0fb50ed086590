package agentturn

import (
	"encoding/json"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
)

// A toolset is what a request declares, as it is stored, sent and counted.
type toolset struct {
	definitions []inference.ToolDefinition // nil: none
	part        turnkeeper.RequestPart     // zero for none
	count       map[*tokenMemo]int         // tokens, by who counts
}

// tools are the agent's tools, and those of the readers that have something to
// read; where rereading is true, also those that read results again which are not
// shown. Each set is made once a turn.
func (t *turn) tools(rereading bool) *toolset {
	var useful []string
	for _, reader := range readers {
		_, known := t.offered.Get(reader)
		if known && (t.useful(reader) || rereading && reader != turnkeeper.ToolWaitForToolOutput) {
			useful = append(useful, reader)
		}
	}
	key := strings.Join(useful, " ")
	if t.toolsets[key] == nil {
		t.toolsets[key] = newToolset(t.toolDefinitions(useful))
	}
	return t.toolsets[key]
}

func newToolset(definitions []inference.ToolDefinition) *toolset {
	set := &toolset{count: map[*tokenMemo]int{}}
	if definitions == nil {
		return set
	}
	set.part = turnkeeper.NewRequestPart(string(encode(definitions)))
	set.definitions, _ = toolsOf(set.part.Content) // what was just written
	return set
}

// toolsOf reads the part that a toolset is stored as. What is sent is what was
// read from it, so that nothing is lost on the way.
func toolsOf(content string) (definitions []inference.ToolDefinition, err error) {
	err = json.Unmarshal([]byte(content), &definitions)
	return definitions, err
}

// toolDefinitions declare the agent's tools, and the readers that are of use; nil
// when there are none.
func (t *turn) toolDefinitions(useful []string) []inference.ToolDefinition {
	var definitions []inference.ToolDefinition
	for _, spec := range t.offered.Specs() {
		if slices.Contains(readers, spec.Name) && !slices.Contains(useful, spec.Name) {
			continue
		}
		definitions = append(definitions, inference.ToolDefinition{
			Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters,
		})
	}
	return definitions
}

// tokens is what declaring the tools takes, as they are offered.
func (s *toolset) tokens(m *tokenMemo) int {
	n, known := s.count[m]
	if known {
		return n
	}
	for _, tool := range s.definitions {
		n += messageTokens + m.json(string(encode(tool)))
	}
	s.count[m] = n
	return n
}
