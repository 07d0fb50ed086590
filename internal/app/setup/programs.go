package setup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"turnkeeper/internal/config"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
)

// configure gives the tools of a registry that are no programs the switches of the
// settings. whole says that all tools there can be are in it, so that a name without
// a tool is an error.
func configure(registry *tools.Registry, cfg *config.Config, whole bool) error {
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools)) {
		t := cfg.Tools[name]
		if t.Command != nil {
			continue
		}
		if _, known := registry.Get(name); !known && !whole {
			continue
		}
		err := registry.Configure(name, tools.Switches{
			Timeout: t.Timeout, Freshness: freshness(t.ToolSwitches), Repeat: tools.Repeat(t.Repeat), MaxResultChars: t.MaxResultChars,
			Background: t.Background,
		})
		if err != nil {
			return fmt.Errorf("tools.%s has no command, so it must be the name of a tool that is there without it: %w", name, err)
		}
	}
	return nil
}

// freshness is that of the settings as a tool has it.
func freshness(s config.ToolSwitches) time.Duration {
	switch {
	case s.Freshness == nil:
		return 0
	case *s.Freshness == 0:
		return tools.FreshnessOff
	}
	return *s.Freshness
}

// Programs are the tools that the settings make of programs, sorted by name.
func Programs(cfg *config.Config) []tools.Tool {
	var all []tools.Tool
	for _, name := range slices.Sorted(maps.Keys(cfg.Tools)) {
		t := cfg.Tools[name]
		if t.Command == nil {
			continue
		}
		var env []string
		for _, variable := range slices.Sorted(maps.Keys(t.Env)) {
			env = append(env, variable+"="+t.Env[variable].Reveal())
		}
		all = append(all, program.Tool(tools.Spec{
			Name: t.Name, Description: t.Description, Parameters: t.Arguments, Effect: t.Effect, Timeout: t.Timeout,
			Detached: t.Detached, Background: t.Background,
			Freshness: freshness(t.ToolSwitches), Repeat: tools.Repeat(t.Repeat), MaxResultChars: t.MaxResultChars,
		}, program.Program{
			Argv: t.Command, Dir: t.Dir, Env: env, MaxOutput: t.MaxOutput, MediaType: t.MediaType,
		}))
	}
	return all
}
