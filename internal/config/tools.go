package config

import (
	"encoding/json"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// A Tool is a program that agents can use as a tool; without Command, it holds overrides for a built-in
// tool or one registered in Go.
type Tool struct {
	Name        string
	Description string `yaml:"description" check:"not empty"`
	// the program and its arguments; nil: not a program
	Command   []string          `yaml:"command" as:"command"`
	Arguments json.RawMessage   `yaml:"arguments" as:"schema" type:"mapping"` // JSON Schema; nil: no arguments
	Effect    turnkeeper.Effect `yaml:"effect" of:"none, keyed, once"`        // never empty
	Timeout   time.Duration     `yaml:"timeout" in:"0 to 24h"`                // 0: the turn's tool_timeout
	// calls run in separate jobs; requires Timeout
	Detached bool              `yaml:"detached"`
	Dir      string            `yaml:"dir" check:"not empty"`              // empty: the working directory
	Env      map[string]Secret `yaml:"env" names:"variable" as:"variable"` // complete environment; nil: empty
	Output   ProgramOutput
	ToolSwitches
}

// A ProgramOutput says what a program writes.
type ProgramOutput struct {
	MaxOutput int    `yaml:"max_output" in:"1 to 10000000"` // bytes; 0: turnkeeper.MaxOutputBytes
	MediaType string `yaml:"media_type" check:"not empty"`  // empty: text/plain
}

// ToolSwitches override how a tool is run. Unset fields leave the tool's own values.
type ToolSwitches struct {
	Freshness      *time.Duration `yaml:"freshness" in:"0 to 720h"`           // 0: equal calls always run
	Repeat         string         `yaml:"repeat" of:"allow, guard"`           // empty: unset
	MaxResultChars int            `yaml:"max_result_chars" in:"1 to 1000000"` // 0: unset
	Background     *bool          `yaml:"background"`                         // nil: unset
	Reads          ReadSwitches
	Approve        string `yaml:"approve" check:"not empty"` // always, never or a rule; empty: unset
	Flow
}

// ReadSwitches override how a tool of effect none is run. Unset fields leave the tool's own values.
type ReadSwitches struct {
	Early      *bool          `yaml:"early"`
	Cache      *time.Duration `yaml:"cache" in:"0 to 24h"`
	CacheScope string         `yaml:"cache_scope" of:"conversation, agent"` // empty: unset
}

// key returns the key of a switch that only a tool of effect none may have; empty: it has none.
func (s ReadSwitches) key() string {
	switch {
	case s.Early != nil && *s.Early:
		return "early"
	case s.Cache != nil && *s.Cache > 0:
		return "cache"
	default:
		return ""
	}
}

// refuseRead refuses the switches of reads for a tool with an effect, or one that may wait for something else.
func (r *fileReader) refuseRead(where string, v *strictyaml.Node, s ReadSwitches, effect turnkeeper.Effect,
	waits string) {
	line, key := v.Line, s.key()
	if own := v.Get(key); own != nil {
		line = own.Line
	}
	switch {
	case key == "":
	case effect != turnkeeper.EffectNone:
		r.Add(line, "%s%s is only for tools that read: it requires effect: none, and the effect is %s", where, key,
			effect)
	case waits != "":
		r.Add(line, "%s%s excludes %s", where, key, waits)
	}
}

// switchKeys are the keys of tools.NAME for a tool that is not a program.
var switchKeys = []string{"timeout", "freshness", "repeat", "early", "cache", "cache_scope", "max_result_chars",
	"background", "approve", "labels", "sinks", "destination", "destinations"}

// tool reads one tool of the config file.
func (r *fileReader) tool(where, name string, v *strictyaml.Node) Tool {
	t := Tool{Name: name, Effect: turnkeeper.EffectOnce}
	r.Decode(where, v, &t)
	isProgram := len(v.Fields) == 0 || slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool {
		return !slices.Contains(switchKeys, f.Key)
	})
	if v.Kind != strictyaml.Map || !isProgram {
		return t
	}
	for _, key := range []string{"description", "command"} {
		if v.Get(key) == nil {
			r.Add(v.Line, "%s%s is missing", where, key)
		}
	}
	if t.Detached && t.Timeout == 0 {
		r.Add(v.Line, "%sdetached requires a timeout: %stimeout is missing", where, where)
	}
	waits := ""
	if t.Detached {
		waits = "detached: true"
	}
	r.refuseRead(where, v, t.Reads, t.Effect, waits)
	return t
}
