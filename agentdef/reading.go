package agentdef

import (
	"cmp"
	"errors"
	"slices"

	"turnkeeper/internal/config/strictyaml"
)

// A Reading is the result of reading an agent's file. Callers that check more than its syntax
// can add faults, and report all of them together.
type Reading struct {
	Path       string
	Definition *Definition // may be incomplete if there are Faults; nil: nothing could be read
	Faults     []error     // in the order of lines, each a *Problem

	settings *strictyaml.Node
	lines    []int // with faults of the file itself
}

func (r *Reading) definition() (*Definition, error) {
	if len(r.Faults) > 0 {
		return nil, errors.Join(r.Faults...)
	}
	return r.Definition, nil
}

// setFaults sets the faults that were found while reading.
func (r *Reading) setFaults(faults []error) {
	r.Faults = faults
	for _, fault := range faults {
		r.lines = append(r.lines, lineOf(fault))
	}
}

// Add adds a fault of a line, or of the whole file if line is 0. It ignores faults of a line
// that already had one when it was read, because they would be consequences of that.
func (r *Reading) Add(line int, text string) {
	if line > 0 && slices.Contains(r.lines, line) {
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

// Line returns the line of an item in the list or mapping of a key, else the line of the key,
// or 0 if the file does not have the key.
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
