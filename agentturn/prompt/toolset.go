package prompt

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
	count       map[*Counts]int            // tokens, by who counts
}

// tools returns the agent's tools, and those of the readers that have something to
// read; where rereading is true, also those that read results again which are not
// shown. Each set is made once.
func (s *State) tools(rounds []turnkeeper.Round, rereading bool) *toolset {
	calls := CallsOf(rounds)
	var useful []string
	for _, reader := range Readers {
		_, known := s.Get(reader)
		if known && (s.useful(reader, calls) || rereading && reader != turnkeeper.ToolWaitForToolOutput) {
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
	set.part = turnkeeper.NewRequestPart(string(Canonical(definitions)))
	set.definitions, _ = toolsOf(set.part.Content) // what was just written
	return set
}

// toolsOf reads the part that a toolset is stored as. What is sent is what was
// read from it, so that nothing is lost on the way.
func toolsOf(content string) (definitions []inference.ToolDefinition, err error) {
	err = json.Unmarshal([]byte(content), &definitions)
	return definitions, err
}

// definitions declares the agent's tools, and the readers that are of use; nil
// when there are none.
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

// tokens is what declaring the tools takes, as they are offered.
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
