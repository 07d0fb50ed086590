package turnctl

import (
	"context"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/storage/operate"
)

// The checks of doctor for blocked messages, lossy turns, budgets and agents.

// examineFiles reports agents whose files differ from their registration. A worker reloads its agents' files on SIGHUP,
// but reads tools, providers and other settings only at its start.
func examineFiles(ctx context.Context, d *diagnosis.Report, cfg *config.Config, store *operate.Store,
	registered []turnkeeper.AgentRegistration) {
	if len(registered) == 0 {
		return // no worker ever ran
	}
	files, _ := agentdef.Load(cfg.AgentsDir) // examineAgents reports errors
	for _, file := range files {
		change, err := shell.ChangeOf(ctx, store, file, registered)
		switch {
		case err != nil:
			d.Add(diagnosis.Fail, "agent "+file.Name, err.Error(), "")
		case change != "":
			d.Add(diagnosis.Warn, "agent "+file.Name, change, shell.AdviceOfChange(change))
		}
	}
}
