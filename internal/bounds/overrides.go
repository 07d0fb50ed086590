package bounds

import (
	"reflect"

	"turnkeeper"
)

// Overrides are bounds that an agent's file sets, by name: an int, a time.Duration or a bool each. nil: none.
type Overrides map[string]any

// Given returns the values of those bounds of an agent's file that are given.
func Given(values turnkeeper.Bounds, given func(name string) bool) Overrides {
	var o Overrides
	for _, r := range table {
		if !r.Agent || !given(r.Name) {
			continue
		}
		if o == nil {
			o = Overrides{}
		}
		o[r.Name] = reflect.ValueOf(r.field(&values)).Elem().Interface()
	}
	return o
}

// Over returns b with the overrides in place of its values.
func (o Overrides) Over(b turnkeeper.Bounds) turnkeeper.Bounds {
	for _, r := range table {
		if value, ok := o[r.Name]; ok {
			set(r.field(&b), value)
		}
	}
	return b
}
