package setup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"turnkeeper/internal/config"
	"turnkeeper/tools"
	"turnkeeper/tools/program"
)

// configure applies the settings tools.NAME to tools of a registry that are not programs. whole says that
// the registry has all tools, so that an unknown name is an error.
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
			Timeout: t.Timeout, Freshness: freshness(t.ToolSwitches), Repeat: tools.Repeat(t.Repeat),
			Early: t.Reads.Early, Cache: t.Reads.Cache, CacheScope: tools.CacheScope(t.Reads.CacheScope),
			MaxResultChars: t.MaxResultChars,
			Background:     t.Background, Approve: t.Approve, Flow: t.Policy(),
		})
		if err != nil {
			return fmt.Errorf(
				"tools.%s has no command, so its name must be that of a built-in tool or one registered in Go: %w",
				name, err)
		}
	}
	return nil
}

// freshness converts the setting to a tool's value.
func freshness(s config.ToolSwitches) time.Duration {
	switch {
	case s.Freshness == nil:
		return 0
	case *s.Freshness == 0:
		return tools.FreshnessOff
	}
	return *s.Freshness
}

// reads converts the settings of reads to a tool's values.
func reads(s config.ReadSwitches) (early bool, cache time.Duration, scope tools.CacheScope) {
	return s.Early != nil && *s.Early, *cmp.Or(s.Cache, new(time.Duration)), tools.CacheScope(s.CacheScope)
}

// Programs returns the configured program tools, sorted by name.
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
		early, cache, scope := reads(t.Reads)
		all = append(all, program.Tool(tools.Spec{
			Name: t.Name, Description: t.Description, Parameters: t.Arguments, Effect: t.Effect, Timeout: t.Timeout,
			Detached: t.Detached, Background: t.Background,
			Freshness: freshness(t.ToolSwitches), Repeat: tools.Repeat(t.Repeat), MaxResultChars: t.MaxResultChars,
			Early: early, Cache: cache, CacheScope: scope,
			Approve: t.Approve,
			Flow:    t.Policy(),
		}, program.Program{
			Argv: t.Command, Dir: t.Dir, Env: env, MaxOutput: t.Output.MaxOutput, MediaType: t.Output.MediaType,
		}))
	}
	return all
}
