package config

import (
	"fmt"
	"slices"

	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/policy"
)

// Flow says which labels the results of tools have, and what their calls can do with labelled content. nil: unset.
type Flow struct {
	Labels       []string `yaml:"labels" once:"yes" check:"label"`
	Sinks        []string `yaml:"sinks" once:"yes" check:"sink"`
	Destination  []string `yaml:"destination" as:"arguments" type:"text or list"` // the arguments with destinations
	Destinations []string `yaml:"destinations" once:"yes" check:"destination"`
}

// Policy returns the flow as packages of behaviour use it.
func (f Flow) Policy() policy.Flow {
	return policy.Flow{Labels: wordsOf[policy.Label](f.Labels), Sinks: wordsOf[policy.Sink](f.Sinks),
		Destination: f.Destination, Destinations: f.Destinations}
}

// arguments reads the name of an argument, or a list of names.
func (r *fileReader) arguments(at strictyaml.Place, v *strictyaml.Node, to any) {
	names := to.(*[]string)
	if v.Kind == strictyaml.List {
		r.Value(at, v, names, `once:"yes" check:"not empty"`)
		return
	}
	name := ""
	r.Value(at, v, &name, `check:"not empty"`)
	*names = []string{name}
}

// wordsOf converts a list, and keeps nil.
func wordsOf[T ~string](texts []string) (list []T) {
	if texts != nil {
		list = []T{}
	}
	for _, text := range texts {
		list = append(list, T(text))
	}
	return list
}

func checkLabel(text string) string {
	if slices.Contains(policy.Labels, policy.Label(text)) {
		return ""
	}
	return fmt.Sprintf(" holds %q: a label is %s or %s", text, policy.Untrusted, policy.Private)
}

func checkSink(text string) string {
	if slices.Contains(policy.Sinks, policy.Sink(text)) {
		return ""
	}
	return fmt.Sprintf(" holds %q: a sink is %s or %s", text, policy.Changes, policy.Sends)
}

func checkDestination(text string) string {
	if fault := policy.CheckDestination(text); fault != "" {
		return fmt.Sprintf(" holds %q: %s", text, fault)
	}
	return ""
}
