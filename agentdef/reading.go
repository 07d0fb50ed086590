package agentdef

import (
	"cmp"
	"errors"
	"slices"

	"turnkeeper/internal/config/strictyaml"
)

// A Reading is an agent's file as it was read: for those who check more than its
// form, and want to tell of all faults at once.
type Reading struct {
	Path       string
	Definition *Definition // what could be read of it; nil: nothing
	Faults     []error     // in the order of lines, each a *Problem; none: the definition is good

	settings *strictyaml.Node
	form     []int // the lines that have a fault of form
}

func (r *Reading) definition() (*Definition, error) {
	if len(r.Faults) > 0 {
		return nil, errors.Join(r.Faults...)
	}
	return r.Definition, nil
}

// took notes the faults of form.
func (r *Reading) took(faults []error) {
	r.Faults = faults
	for _, fault := range faults {
		r.form = append(r.form, lineOf(fault))
	}
}

// Add adds a fault of what stands on the line; 0: of the file as a whole. A line that
// has a fault of form gets no other: it would be what follows from that.
func (r *Reading) Add(line int, text string) {
	if line > 0 && slices.Contains(r.form, line) {
		return
	}
	r.Faults = append(r.Faults, &Problem{Path: r.Path, Line: line, Text: text})
	slices.SortStableFunc(r.Faults, func(a, b error) int { return cmp.Compare(lineOf(a), lineOf(b)) })
}

func lineOf(fault error) int {
	if p, ok := errors.AsType[*Problem](fault); ok {
		return p.Line
	}
	return 0
}

// Line is the line of a key or, where its value is a list or a mapping that has the
// item, of that; 0: the file does not have the key.
func (r *Reading) Line(key, item string) int {
	if r.settings == nil {
		return 0
	}
	for _, field := range r.settings.Fields {
		if field.Key == key {
			return lineWithin(field, item)
		}
	}
	return 0
}

func lineWithin(field strictyaml.Field, item string) int {
	for _, within := range field.Value.Fields {
		if within.Key == item {
			return within.Line
		}
	}
	for _, v := range field.Value.Items {
		if text, err := v.AsText(); err == nil && text == item {
			return v.Line
		}
	}
	return field.Line
}
