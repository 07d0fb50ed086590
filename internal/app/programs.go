package app

import (
	"maps"
	"slices"

	"turnkeeper/internal/config"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
)

// Programs are the tools that the settings make of programs, sorted by name.
func Programs(cfg *config.Config) []tools.Tool {
	var all []tools.Tool
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools)) {
		t := cfg.Tools[name]
		var env []string
		for _, variable := range slices.Sorted(maps.Keys(t.Env)) {
			env = append(env, variable+"="+t.Env[variable].Reveal())
		}
		all = append(all, program.Tool(tools.Spec{
			Name: t.Name, Description: t.Description, Parameters: t.Arguments, Effect: t.Effect, Timeout: t.Timeout,
			Detached: t.Detached,
		}, program.Program{
			Argv: t.Command, Dir: t.Dir, Env: env, MaxOutput: t.MaxOutput, MediaType: t.MediaType,
		}))
	}
	return all
}
