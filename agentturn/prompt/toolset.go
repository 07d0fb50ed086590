package prompt

import (
	"encoding/json"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A toolset holds the tool definitions of a request.
type toolset struct {
	definitions []inference.ToolDefinition // nil: none
	part        turnlog.RequestPart        // as stored; zero if there are no definitions
	count       map[*Counts]int            // tokens
}

// tools returns the agent's tools, and the readers that have something to read. With
// rereading, it includes the readers of results that are not shown. Sets are reused.
func (s *State) tools(rounds []turnkeeper.Round, rereading bool) *toolset {
	var useful []string
	for _, reader := range Readers {
		_, known := s.Get(reader)
		if known && (s.useful(reader, rounds) || rereading && reader != turnkeeper.ToolWaitForToolOutput) {
			useful = append(useful, reader)
		}
	}
	key := strings.Join(useful, " ")
	if s.toolsets[key] == nil {
		s.toolsets[key] = newToolset(s.definitions(useful))
	}
	return s.toolsets[key]
}

func newToolset(definitions []inference.ToolDefinition) *toolset {
	set := &toolset{count: map[*Counts]int{}}
	if definitions == nil {
		return set
	}
	set.part = turnlog.NewRequestPart(string(Canonical(definitions)))
	set.definitions, _ = toolsOf(set.part.Content) // cannot fail: it was just encoded
	return set
}

// toolsOf decodes the stored part of a toolset. newToolset uses it too, so that a request
// and its rebuilt copy have the same definitions.
func toolsOf(content string) (definitions []inference.ToolDefinition, err error) {
	err = json.Unmarshal([]byte(content), &definitions)
	return definitions, err
}

// definitions returns the definitions of the agent's tools and of the useful readers, or
// nil if there are none.
func (o Offer) definitions(useful []string) []inference.ToolDefinition {
	var definitions []inference.ToolDefinition
	for _, spec := range o.Specs() {
		if slices.Contains(Readers, spec.Name) && !slices.Contains(useful, spec.Name) {
			continue
		}
		definitions = append(definitions, inference.ToolDefinition{
			Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters,
		})
	}
	return definitions
}

// tokens returns the size of the definitions.
func (s *toolset) tokens(m *Counts) int {
	n, known := s.count[m]
	if known {
		return n
	}
	for _, tool := range s.definitions {
		n += messageTokens + m.json(string(Canonical(tool)))
	}
	s.count[m] = n
	return n
}
