package agentdef

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/config/strictyaml"
)

// A Set holds agents by name. It is immutable and safe for concurrent use; a reload makes a
// new one. The zero value and nil are empty sets.
type Set struct {
	byName map[string]*Definition
}

// NewSet returns a set of the definitions. If two have the same name, it keeps the later one.
func NewSet(defs []*Definition) *Set {
	byName := make(map[string]*Definition, len(defs))
	for _, def := range defs {
		byName[def.Name] = def
	}
	return &Set{byName: byName}
}

// Get returns the agent with a name.
func (s *Set) Get(name string) (*Definition, bool) {
	if s == nil {
		return nil, false
	}
	def, ok := s.byName[name]
	return def, ok
}

// Names returns the agents' names, sorted.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.byName))
}

// Len returns the number of agents.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.byName)
}

// All returns the agents in the order of their names.
func (s *Set) All() iter.Seq[*Definition] {
	return func(yield func(*Definition) bool) {
		for _, name := range s.Names() {
			if !yield(s.byName[name]) {
				return
			}
		}
	}
}

// Check checks whether the agent can run under the process's bounds: base with the agent's
// overrides must be valid, and its budget must allow one call. The error joins a *Problem for
// each fault.
func (d *Definition) Check(base turnkeeper.Bounds) error {
	var faults []error
	if err := bounds.Check(d.Bounds(base)); err != nil {
		for _, fault := range strictyaml.Split(err) {
			faults = append(faults, &Problem{Path: d.label(), Text: fault.Error()})
		}
	}
	for _, bound := range []struct {
		name   string
		tokens int64
	}{{"turn_tokens", d.Budget.TurnTokens}, {"day_tokens", d.Budget.DayTokens}, {"tree_tokens", d.Budget.TreeTokens}} {
		if answer := d.OutputTokens(); bound.tokens > 0 && bound.tokens <= int64(answer) {
			faults = append(faults, &Problem{Path: d.label(), Text: fmt.Sprintf(
				"budget.%s is %d: it must be more than the %d tokens reserved for each answer (max_output_tokens), or no turn can run",
				bound.name, bound.tokens, answer)})
		}
	}
	return errors.Join(faults...)
}

// label returns the name of the file for messages.
func (d *Definition) label() string {
	if d.Path != "" {
		return d.Path
	}
	return d.Name + ".md (as recorded)"
}
