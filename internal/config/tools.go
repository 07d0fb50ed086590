package config

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// A Tool is a program that agents can have as a tool; or, without a Command, the
// switches of a tool that is built in or registered in Go.
type Tool struct {
	Name        string
	Description string
	Command     []string          // the program and its arguments; nil: the tool is another's
	Arguments   json.RawMessage   // JSON Schema; nil: it takes none
	Effect      turnkeeper.Effect // never empty
	Timeout     time.Duration     // 0: tool_timeout of the turn
	Detached    bool              // a call runs in a job of its own; Timeout is not 0
	Dir         string            // empty: the working directory
	Env         map[string]Secret // all of its environment; nil: none
	MaxOutput   int               // bytes; 0: turnkeeper.MaxOutputBytes
	MediaType   string            // of its output; empty: text/plain
	ToolSwitches

	secretValues []string // of Env, that the masker must know
}

var toolForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func (l *loader) readTools(problems *strictyaml.Problems, v *strictyaml.Node) {
	eachEntry(problems, "tools", v, func(name string, line int, v *strictyaml.Node) {
		if !toolForm.MatchString(name) {
			problems.Add(line, "tools has the name %q: it must be 1 to 64 of a-z A-Z 0-9 _ -", name)
			return
		}
		r := &toolReader{
			mappingReader: mappingReader{loader: l, Problems: problems, where: "tools." + name + "."},
			tool:          Tool{Name: name, Effect: turnkeeper.EffectOnce},
		}
		l.config.Tools[name] = r.read(v)
	})
}

// toolReader reads one tool of the config file.
type toolReader struct {
	mappingReader
	tool Tool
}

func (r *toolReader) read(v *strictyaml.Node) Tool {
	r.Fields(r.where, v, keyNames(ToolKeys), r.key)
	if onlySwitches(v) {
		return r.tool
	}
	for _, key := range []string{"description", "command"} {
		given := slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool { return f.Key == key })
		if !given && v.Kind == strictyaml.Map {
			r.Add(v.Line, "%s%s is missing", r.where, key)
		}
	}
	if r.tool.Detached && r.tool.Timeout == 0 {
		r.Add(v.Line, "%sdetached needs a timeout: %stimeout is missing", r.where, r.where)
	}
	return r.tool
}

func (r *toolReader) key(key string, v *strictyaml.Node) {
	t := &r.tool
	switch key {
	case "description":
		t.Description = r.notEmpty(key, v)
	case "command":
		t.Command = r.command(key, v)
	case "arguments":
		t.Arguments = r.schema(key, v)
	case "effect":
		t.Effect = turnkeeper.Effect(r.choice(key, v, string(turnkeeper.EffectNone), string(turnkeeper.EffectKeyed), string(turnkeeper.EffectOnce)))
	case "timeout":
		t.Timeout = r.timeout(key, v)
	case "freshness", "repeat", "max_result_chars", "background":
		r.toolSwitch(&t.ToolSwitches, key, key, v)
	case "detached":
		t.Detached = *r.boolean(key, v)
	case "dir":
		t.Dir = r.notEmpty(key, v)
	case "env":
		r.env(key, v)
	case "max_output":
		t.MaxOutput = r.maxOutput(key, v)
	case "media_type":
		t.MediaType = r.notEmpty(key, v)
	}
}

func (r *toolReader) notEmpty(key string, v *strictyaml.Node) string {
	text, err := v.AsText()
	if err != nil {
		r.fault(v, key, err)
	} else if err := notEmpty(text); err != nil {
		r.Add(v.Line, "%s%s: %v", r.where, key, err)
	}
	return text
}

func (r *toolReader) command(key string, v *strictyaml.Node) []string {
	words, err := v.AsTexts()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case len(words) == 0 || words[0] == "":
		r.Add(v.Line, "%s%s must begin with a program", r.where, key)
	}
	return words
}

// schema takes a mapping for a JSON Schema. Whether it is one is found when the
// tool is registered.
func (r *toolReader) schema(key string, v *strictyaml.Node) json.RawMessage {
	if v.Kind != strictyaml.Map {
		r.Add(v.Line, "%s%s must be a JSON Schema, written as a mapping, not %s", r.where, key, v.Kind)
		return nil
	}
	schema, err := json.Marshal(v.Plain())
	if err != nil {
		r.fault(v, key, errors.New("cannot be written as JSON"))
	}
	return schema
}

func (r *toolReader) maxOutput(key string, v *strictyaml.Node) int {
	n, err := v.AsInt()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case n < 1 || n > turnkeeper.MaxOutputBytes:
		r.Add(v.Line, "%s%s is %d: it must be 1 to %d", r.where, key, n, turnkeeper.MaxOutputBytes)
	}
	return int(n)
}

// env reads the variables of the program. One that is read from elsewhere, or
// looks like it by its name, is a secret.
func (r *toolReader) env(key string, v *strictyaml.Node) {
	r.tool.Env = map[string]Secret{}
	eachEntry(r.Problems, r.where+key, v, func(name string, line int, v *strictyaml.Node) {
		label := key + "." + name
		switch {
		case !variableForm.MatchString(name):
			r.Add(line, "%s%s has the name %q, which is none for a variable", r.where, key, name)
		case strings.HasPrefix(name, "TURNKEEPER_"):
			r.Add(line, "%s%s: names that begin with TURNKEEPER_ are the call's own", r.where, label)
		case v.Kind == strictyaml.Map:
			r.reference(label, v, func(value Secret) { r.variable(name, value, true) })
		default:
			text, err := v.AsText()
			if err != nil {
				r.fault(v, label, err)
			}
			r.variable(name, NewSecret(text), secretHeader.MatchString(name))
		}
	})
}

func (r *toolReader) variable(name string, value Secret, secret bool) {
	r.tool.Env[name] = value
	if secret {
		r.tool.secretValues = append(r.tool.secretValues, value.Reveal())
	}
}
