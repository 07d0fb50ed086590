package config

import (
	"encoding/json"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
)

// A Tool is a program that agents can have as a tool; or, without a Command, the
// switches of a tool that is built in or registered in Go.
type Tool struct {
	Name        string
	Description string            `yaml:"description" check:"not empty"`
	Command     []string          `yaml:"command" as:"command"`                 // the program and its arguments; nil: the tool is another's
	Arguments   json.RawMessage   `yaml:"arguments" as:"schema" type:"mapping"` // JSON Schema; nil: it takes none
	Effect      turnkeeper.Effect `yaml:"effect" of:"none, keyed, once"`        // never empty
	Timeout     time.Duration     `yaml:"timeout" in:"0 to 24h"`                // 0: tool_timeout of the turn
	Detached    bool              `yaml:"detached"`                             // a call runs in a job of its own; Timeout is not 0
	Dir         string            `yaml:"dir" check:"not empty"`                // empty: the working directory
	Env         map[string]Secret `yaml:"env" names:"variable" as:"variable"`   // all of its environment; nil: none
	MaxOutput   int               `yaml:"max_output" in:"1 to 10000000"`        // bytes; 0: turnkeeper.MaxOutputBytes
	MediaType   string            `yaml:"media_type" check:"not empty"`         // of its output; empty: text/plain
	ToolSwitches
}

// ToolSwitches are what the settings say of how a tool is run. Unset: as the tool
// itself says.
type ToolSwitches struct {
	Freshness      *time.Duration `yaml:"freshness" in:"0 to 720h"`           // 0: equal calls are run, however fresh they are
	Repeat         string         `yaml:"repeat" of:"allow, guard"`           // empty: unset
	MaxResultChars int            `yaml:"max_result_chars" in:"1 to 1000000"` // 0: unset
	Background     *bool          `yaml:"background"`                         // nil: unset
}

// switchKeys are the keys of tools.NAME that a tool may have which is no program.
var switchKeys = []string{"timeout", "freshness", "repeat", "max_result_chars", "background"}

// tool reads one tool of the config file.
func (r *fileReader) tool(where, name string, v *strictyaml.Node) Tool {
	t := Tool{Name: name, Effect: turnkeeper.EffectOnce}
	r.Decode(where, v, &t)
	isProgram := len(v.Fields) == 0 || slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool { return !slices.Contains(switchKeys, f.Key) })
	if v.Kind != strictyaml.Map || !isProgram {
		return t
	}
	for _, key := range []string{"description", "command"} {
		if v.Get(key) == nil {
			r.Add(v.Line, "%s%s is missing", where, key)
		}
	}
	if t.Detached && t.Timeout == 0 {
		r.Add(v.Line, "%sdetached needs a timeout: %stimeout is missing", where, where)
	}
	return t
}
