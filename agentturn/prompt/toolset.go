package prompt

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"

	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A toolset holds the tool definitions of a request.
type toolset struct {
	definitions []inference.ToolDefinition // nil: none
	part        turnlog.RequestPart        // as stored; zero if there are no definitions
	texts       []string                   // of the definitions, as JSON
	count       map[*Counts]int            // tokens
}

// tools returns the tools that this process declares in a new epoch.
func (s *State) tools() *toolset {
	if s.toolset == nil {
		s.toolset = s.memory.toolsets.of(s.definitions())
	}
	return s.toolset
}

func newToolset(definitions []inference.ToolDefinition) *toolset {
	set := &toolset{count: map[*Counts]int{}}
	if definitions == nil {
		return set
	}
	set.part = turnlog.NewRequestPart(string(Canonical(definitions)))
	set.definitions, _ = toolsOf(set.part.Content) // cannot fail: it was just encoded
	for _, tool := range set.definitions {
		set.texts = append(set.texts, string(Canonical(tool)))
	}
	return set
}

// maxToolsets is the maximum number of entries of toolsets.
const maxToolsets = 1000

// toolsets keeps the encoded tool definitions of a process, because the turns of an agent offer
// the same. nil keeps none. It is safe for concurrent use.
type toolsets struct {
	mu   sync.Mutex
	seed maphash.Seed
	sets map[uint64]keptToolset
}

type keptToolset struct {
	from []inference.ToolDefinition // before they were encoded
	toolset
}

// of returns a toolset of the definitions.
func (t *toolsets) of(definitions []inference.ToolDefinition) *toolset {
	if t == nil || definitions == nil {
		return newToolset(definitions)
	}
	t.mu.Lock()
	if t.sets == nil || len(t.sets) >= maxToolsets {
		t.seed, t.sets = maphash.MakeSeed(), map[uint64]keptToolset{}
	}
	hash := hashOf(t.seed, definitions)
	kept, known := t.sets[hash]
	t.mu.Unlock()
	if known && slices.EqualFunc(kept.from, definitions, equalDefinitions) {
		set := kept.toolset
		set.count = map[*Counts]int{} // belongs to the turn
		return &set
	}
	set := newToolset(definitions)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sets[hash] = keptToolset{definitions, toolset{definitions: set.definitions, part: set.part, texts: set.texts}}
	return set
}

func hashOf(seed maphash.Seed, definitions []inference.ToolDefinition) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, d := range definitions {
		_, _ = h.WriteString(d.Name)
		_, _ = h.WriteString(d.Description)
		_, _ = h.Write(d.Parameters)
	}
	return h.Sum64()
}

func equalDefinitions(a, b inference.ToolDefinition) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Parameters, b.Parameters)
}

// toolsOf decodes the stored part of a toolset. newToolset uses it too, so that a request
// and its rebuilt copy have the same definitions.
func toolsOf(content string) (definitions []inference.ToolDefinition, err error) {
	err = json.Unmarshal([]byte(content), &definitions)
	return definitions, err
}

// definitions returns the definitions of the agent's tools and of the readers, or nil if there
// are none. An agent without tools of its own has nothing to read.
func (o Offer) definitions() []inference.ToolDefinition {
	var definitions []inference.ToolDefinition
	readers := 0
	for _, spec := range o.Specs() {
		if slices.Contains(Readers, spec.Name) {
			if !o.Stored {
				continue
			}
			readers++
		}
		definitions = append(definitions, inference.ToolDefinition{
			Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters,
		})
	}
	if len(definitions) == readers {
		return nil
	}
	return definitions
}

// toolTokens returns the size of the tool definitions of the request.
func (p *plan) toolTokens() int {
	if own := p.s.tools(); own.part.SHA256 == p.epoch.Tools {
		return own.tokens(p.Counts)
	}
	n := 0
	for _, tool := range p.epoch.head.tools {
		n += messageTokens + p.json(string(Canonical(tool)))
	}
	return n
}

// tokens returns the size of the definitions.
func (s *toolset) tokens(m *Counts) int {
	n, known := s.count[m]
	if known {
		return n
	}
	for _, text := range s.texts {
		n += messageTokens + m.json(text)
	}
	s.count[m] = n
	return n
}
