package turnctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/storage/operate"
)

// The checks of doctor. Each function adds its checks; an error becomes a failed
// check.

func examineSettings(d *diagnosis.Report, cfg *config.Config) {
	d.Add(diagnosis.OK, "settings", "from "+cmp.Or(cfg.File, "flags, variables and defaults; there is no config file"),
		"")
	b := cfg.Bounds
	d.Add(diagnosis.OK, "lease",
		fmt.Sprintf("%s; a turn takes at most %s and keeps a margin of %s; a silent worker counts as lost %s",
			b.LeaseTTL, b.MaxDuration, b.Margin, lostAfter(cfg.TakeoverAfter)), "")
}

func lostAfter(takeover time.Duration) string {
	if takeover == 0 {
		return "when its leases end"
	}
	return "after " + takeover.String()
}

// examineDatabase reports what the database shows, and how it differs from the files and settings of this machine.
func examineDatabase(ctx context.Context, d *diagnosis.Report, cfg *config.Config, db *database.Database,
	c term.Clock) {
	set := diagnosis.Settings{
		Database: db.Where(), NeedsToken: cfg.NeedsToken(), DBPoolSize: cfg.DBPoolSize, PollInterval: cfg.PollInterval,
		Retention: cfg.Retention, Zone: c.Zone, Command: shell.Command,
		Mask: cfg.Masker().String,
	}
	if !diagnosis.Examine(ctx, d, set, db.Store) {
		return
	}
	reported := examineScheduled(ctx, d, cfg, db.Store)
	examineRegistered(ctx, d, cfg, db.Store, reported)
	examinePins(ctx, d, cfg, db.Store)
	examineLogins(ctx, d, cfg, db.Store, c.Now)
}

// examineScheduled reports agents that have an active schedule but no file in the folder, for example because it was
// removed. It returns these agents.
func examineScheduled(ctx context.Context, d *diagnosis.Report, cfg *config.Config,
	store *operate.Store) (foreign []string) {
	schedules, err := store.Schedules(ctx)
	if err != nil {
		d.Add(diagnosis.Fail, "schedules", err.Error(), "")
		return nil
	}
	for _, s := range schedules {
		if s.Active && s.PausedAt.IsZero() && !slices.Contains(foreign, s.Agent) && !hasFile(cfg.AgentsDir, s.Agent) {
			foreign = append(foreign, s.Agent)
		}
	}
	for _, agent := range foreign {
		d.Add(diagnosis.Warn, "schedules", fmt.Sprintf("%s runs by its schedule, but has no file in %s", agent,
			cfg.AgentsDir),
			fmt.Sprintf("ignore this if another worker has the file; else pause the schedule: %s schedules pause %s",
				shell.Command("turnctl"), agent))
	}
	return foreign
}

// examineRegistered reports the other registered agents without a file in the folder.
func examineRegistered(ctx context.Context, d *diagnosis.Report, cfg *config.Config, store *operate.Store,
	reported []string) {
	agents, err := store.Agents(ctx)
	if err != nil {
		d.Add(diagnosis.Fail, "agents", err.Error(), "")
		return
	}
	without := slices.DeleteFunc(fileless(cfg.AgentsDir, agents), func(name string) bool {
		return slices.Contains(reported, name)
	})
	if len(without) > 0 {
		d.Add(diagnosis.Warn, "agents", fmt.Sprintf("registered, but without a file in %s: %s", cfg.AgentsDir,
			strings.Join(without, ", ")),
			"ignore this if another worker has the file; else it was removed: they still accept messages and run with their last definition")
	}
	examineFiles(ctx, d, cfg, store, agents)
}

func examineAgents(ctx context.Context, s *shell.Session, d *diagnosis.Report, cfg *config.Config) {
	report, servers := checkFiles(ctx, s, cfg.AgentsDir, cfg)
	for _, problem := range report.Problems {
		d.Add(diagnosis.Fail, "agent files", problem, "correct it: a worker does not start with it")
	}
	for _, warning := range report.Warnings {
		d.Add(diagnosis.Warn, "agent files", warning, "change the file, or ignore this if it is intended")
	}
	if len(report.Problems)+len(report.Warnings) == 0 {
		d.Add(diagnosis.OK, "agent files", strings.Join(report.Agents, ", ")+" in "+cfg.AgentsDir, "")
	}
	examineMCP(d, servers)
	providers := setup.CheckProviders(ctx, cfg)
	examineProviders(d, providers, usedModels(cfg))
	examineWindows(d, s.Masker.String, report.windows, providers)
}

// examineProviders reports which providers work, and which of the agents' models they do not list.
func examineProviders(d *diagnosis.Report, checks []setup.ProviderCheck, used map[string][]string) {
	for _, p := range checks {
		verdict := diagnosis.Warn
		for model := range used {
			if provider, _, _ := strings.Cut(model, "/"); provider == p.Name && !p.Unasked {
				verdict = diagnosis.Fail
			}
		}
		d.Judge(p.OK, verdict, "provider "+p.Name, strings.TrimSpace(p.BaseURL+" "+p.Detail), p.Advice)
		for _, model := range slices.Sorted(maps.Keys(used)) {
			if !p.Lacks(model) {
				continue
			}
			advice := "correct the name, unless the provider serves unlisted models; calls of a missing model fail"
			if near := p.Nearest(model); len(near) > 0 {
				advice += "; similar names are " + strings.Join(near, ", ")
			}
			d.Add(diagnosis.Warn, "model "+model, fmt.Sprintf("the provider does not list it; used by %s",
				strings.Join(used[model], ", ")), advice)
		}
	}
}

// examineWindows reports the context windows of the agents' models. It omits one that is unknown because its provider
// fails: the provider's check says what to do.
func examineWindows(d *diagnosis.Report, masked func(string) string, windows []setup.ModelWindow,
	providers []setup.ProviderCheck) {
	var known []string
	for _, w := range windows {
		provider, _, _ := strings.Cut(w.Model, "/")
		fails := slices.ContainsFunc(providers, func(p setup.ProviderCheck) bool { return p.Name == provider && !p.OK })
		if what, advice := w.Warning(); what != "" {
			if fails {
				continue
			}
			d.Add(diagnosis.Warn, "context window", masked(what), advice)
			continue
		}
		known = append(known, w.String())
	}
	if len(known) > 0 {
		d.Add(diagnosis.OK, "context window", strings.Join(known, "; "), "")
	}
}

// usedModels returns the models of the folder's agents, with the agents' names.
func usedModels(cfg *config.Config) map[string][]string {
	used := map[string][]string{}
	agents, _ := agentdef.Load(cfg.AgentsDir) // examineAgents reports errors
	for _, agent := range agents {
		for _, model := range setup.ModelsOf(agent, cfg) {
			used[model] = append(used[model], agent.Name)
		}
	}
	return used
}
