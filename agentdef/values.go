package agentdef

import (
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// A reader fills a definition from the front matter and notes its faults.
type reader struct {
	*strictyaml.Problems
	def   *Definition
	start string // the folder a relative root starts at
}

// The functions below make readers of keys that need nothing but a bound. A
// value with a fault is noted and left unset.

func text(field func(*Definition) *string) func(*reader, string, *strictyaml.Node) {
	return func(r *reader, name string, v *strictyaml.Node) { *field(r.def) = r.text(name, v) }
}

func whole(field func(*Definition) *int, low, high int64) func(*reader, string, *strictyaml.Node) {
	return func(r *reader, name string, v *strictyaml.Node) {
		*field(r.def) = int(r.whole(name, v, low, high))
	}
}

func wholeP(field func(*Definition) **int, low, high int64) func(*reader, string, *strictyaml.Node) {
	return func(r *reader, name string, v *strictyaml.Node) {
		*field(r.def) = new(int(r.whole(name, v, low, high)))
	}
}

func boolP(field func(*Definition) **bool) func(*reader, string, *strictyaml.Node) {
	return func(r *reader, name string, v *strictyaml.Node) {
		value, err := v.AsBool()
		if err != nil {
			r.Add(v.Line, "%s %v", name, err)
		}
		*field(r.def) = &value
	}
}

func durationP(field func(*Definition) **time.Duration, low, high time.Duration) func(*reader, string, *strictyaml.Node) {
	return func(r *reader, name string, v *strictyaml.Node) {
		value, err := v.AsDuration()
		switch {
		case err != nil:
			r.Add(v.Line, "%s %v", name, err)
		case value < low || value > high:
			r.Add(v.Line, "%s is %s: it must be %s to %s", name, strictyaml.FormatDuration(value),
				strictyaml.FormatDuration(low), strictyaml.FormatDuration(high))
		}
		*field(r.def) = &value
	}
}

func (r *reader) text(name string, v *strictyaml.Node) string {
	value, err := v.AsText()
	if err != nil {
		r.Add(v.Line, "%s %v", name, err)
	}
	return value
}

func (r *reader) texts(name string, v *strictyaml.Node) []string {
	values, err := v.AsTexts()
	if err != nil {
		r.Add(v.Line, "%s %v", name, err)
	}
	return values
}

func (r *reader) whole(name string, v *strictyaml.Node, low, high int64) int64 {
	value, err := v.AsInt()
	switch {
	case err != nil:
		r.Add(v.Line, "%s %v", name, err)
	case value < low || value > high:
		r.Add(v.Line, "%s is %d: it must be %d to %d", name, value, low, high)
	}
	return value
}

// distinct reports each value of a list that stands there twice.
func (r *reader) distinct(name string, v *strictyaml.Node, values []string) {
	seen := map[string]bool{}
	for i, value := range values {
		if seen[value] {
			r.Add(v.Items[i].Line, "%s holds %q twice", name, value)
		}
		seen[value] = true
	}
}
