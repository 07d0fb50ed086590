package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"turnkeeper/internal/config/strictyaml"
)

// Extension is the end of the file name of a script.
const Extension = ".demo.yaml"

// Limits of a script, in addition to those of its YAML (64 KiB, 2000 lines).
const (
	maxSteps = 100
	maxCalls = 32 // of one step
)

// A Script is a sequence of answers from a file. It is immutable and safe for concurrent use.
type Script struct {
	name  string
	steps []scriptStep
}

// A scriptStep is one answer, with its condition.
type scriptStep struct {
	when     pattern
	asks     bool // the step has a condition
	text     pattern
	unsigned bool // the answer does not say that a script made it
	calls    []scriptCall
}

type scriptCall struct {
	name      string
	arguments value
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ParseScript parses the text of a script's file. It does not open the file. The script's name
// is the file's name without Extension: 1 to 63 of a-z 0-9 _ -, starting with a letter or
// digit, and not Model. The error joins all faults, each a *strictyaml.Problem with its line.
func ParseScript(path string, source []byte) (*Script, error) {
	s := &Script{name: strings.TrimSuffix(filepath.Base(path), Extension)}
	r := &scriptReader{&strictyaml.Problems{Path: path}}
	switch {
	case !nameForm.MatchString(s.name):
		r.Add(0,
			"the file's name must be the script's name and %s: a script's name is at most 63 of a-z, 0-9, _ and -, starting with a letter or digit", Extension)
	case s.name == Model:
		r.Add(0, "the name %s is that of the built-in script: choose another", Model)
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(source), "\ufeff"), "\r\n", "\n")
	switch document, err := strictyaml.Parse(text, 1); {
	case err != nil:
		r.AddSyntax(err)
	case document == nil:
		r.Add(0, "the script is empty: give it steps")
	default:
		s.steps = r.script(document)
	}
	if r.Any() {
		return nil, r.Err()
	}
	return s, nil
}

// A scriptReader decodes the nodes of one file.
type scriptReader struct{ *strictyaml.Problems }

func (r *scriptReader) script(document *strictyaml.Node) (steps []scriptStep) {
	r.Fields("", document, []string{"steps"}, func(f strictyaml.Field) {
		for i, item := range r.items("steps", f.Value, maxSteps) {
			steps = append(steps, r.step(fmt.Sprintf("steps.%d", i+1), item))
		}
	})
	if len(steps) == 0 && !r.Any() {
		r.Add(document.Line, "there are no steps: give a list of answers")
	}
	return steps
}

// items returns the items of a list of at most limit items.
func (r *scriptReader) items(where string, v *strictyaml.Node, limit int) []*strictyaml.Node {
	switch {
	case v.Kind != strictyaml.List:
		r.Add(v.Line, "%s must be a list, not %s", where, v.Kind)
		return nil
	case len(v.Items) > limit:
		r.Add(v.Line, "%s has %d entries: at most %d are allowed", where, len(v.Items), limit)
		return nil
	}
	return v.Items
}

func (r *scriptReader) step(where string, v *strictyaml.Node) (s scriptStep) {
	r.Fields(where+".", v, []string{"when", "text", "signed", "calls"}, func(f strictyaml.Field) {
		switch v := f.Value; f.Key {
		case "when":
			s.when, s.asks = r.pattern(where+".when", v), true
		case "text":
			s.text = r.pattern(where+".text", v)
		case "signed":
			signed, err := v.AsBool()
			if err != nil {
				r.Add(v.Line, "%s.signed %v", where, err)
			}
			s.unsigned = !signed
		case "calls":
			for i, item := range r.items(where+".calls", v, maxCalls) {
				s.calls = append(s.calls, r.call(fmt.Sprintf("%s.calls.%d", where, i+1), item))
			}
		}
	})
	other := func(f strictyaml.Field) bool { return f.Key != "when" && f.Key != "signed" }
	if v.Kind == strictyaml.Map && !slices.ContainsFunc(v.Fields, other) {
		r.Add(v.Line, "%s has neither text nor calls: give it one of them", where)
	}
	return s
}

func (r *scriptReader) call(where string, v *strictyaml.Node) (c scriptCall) {
	c.arguments = value{fields: []member{}}
	named := false
	r.Fields(where+".", v, []string{"name", "arguments"}, func(f strictyaml.Field) {
		switch v := f.Value; {
		case f.Key == "name":
			named = true
			text, err := v.AsText()
			if err == nil && strings.TrimSpace(text) == "" {
				err = errors.New("must be the name of a tool")
			}
			if err != nil {
				r.Add(v.Line, "%s.name %v", where, err)
			}
			c.name = text
		case v.Kind == strictyaml.Text:
			c.arguments = value{whole: true, text: r.pattern(where+".arguments", v)}
		case v.Kind == strictyaml.Map:
			c.arguments = r.value(where+".arguments", v)
		default:
			r.Add(v.Line, "%s.arguments must be a mapping, or a text that renders a JSON object, not %s", where, v.Kind)
		}
	})
	if !named && v.Kind == strictyaml.Map {
		r.Add(v.Line, "%s has no name: give the name of the tool", where)
	}
	return c
}

func (r *scriptReader) pattern(where string, v *strictyaml.Node) pattern {
	text, err := v.AsText()
	if err != nil {
		r.Add(v.Line, "%s %v", where, err)
		return pattern{}
	}
	p, err := compile(text)
	if err != nil {
		r.Add(v.Line, "%s: %v", where, err)
	}
	return p
}

// A value is an argument of a call in a script. Texts are templates.
type value struct {
	whole   bool // the text renders all arguments, as a JSON object
	text    pattern
	literal json.RawMessage // number, true, false or null
	items   []value         // not nil: a list
	fields  []member        // not nil: an object
}

type member struct {
	key   string
	value value
}

func (r *scriptReader) value(where string, v *strictyaml.Node) value {
	switch v.Kind {
	case strictyaml.List:
		items := []value{}
		for i, item := range v.Items {
			items = append(items, r.value(fmt.Sprintf("%s.%d", where, i+1), item))
		}
		return value{items: items}
	case strictyaml.Map:
		return value{fields: r.members(where, v)}
	case strictyaml.Number:
		if _, err := v.AsFloat(); err != nil {
			r.Add(v.Line, "%s %v", where, err)
		}
		return value{literal: json.RawMessage(v.Value)}
	case strictyaml.Bool:
		return value{literal: json.RawMessage(v.Value)}
	case strictyaml.Null:
		return value{literal: json.RawMessage("null")}
	}
	return value{text: r.pattern(where, v)}
}

func (r *scriptReader) members(where string, v *strictyaml.Node) []member {
	members, first := []member{}, map[string]int{}
	for _, f := range v.Fields {
		if line, repeated := first[f.Key]; repeated {
			r.Add(f.Line, "key %q is already set on line %d", where+"."+f.Key, line)
			continue
		}
		first[f.Key] = f.Line
		members = append(members, member{f.Key, r.value(where+"."+f.Key, f.Value)})
	}
	return members
}
