package worker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/words"
	"turnkeeper/tools"
)

// Program is the program that runs turns. Agents can list the tools more as
// well as the built-in ones.
func Program(more ...tools.Tool) shell.Program {
	return shell.Program{Reloads: true, Command: func(s *shell.Session) *cobra.Command {
		cmd := &cobra.Command{
			Use:   "worker",
			Short: "Run agents' turns",
			Long: `worker takes messages from the inboxes of the agents in the agents folder, runs
their turns, and writes the replies to the outbox.

Set each setting below by its flag, by the variable named with it, or in the
config file; the flag wins. Without DATABASE_URL the worker runs a private
Postgres in the data folder.

After the first SIGINT or SIGTERM, running turns have shutdown-grace to finish;
the worker hands back the others. A second signal stops it at once. SIGHUP reloads
the agents' files.

` + workerExitHelp,
			Example: `  worker                          everything in one process
  worker --roles scheduler        only schedule turns
  worker --roles api              only answer HTTP requests
  worker --worker-slots 50        run up to 50 turns at a time`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return work(s, cmd, more) },
		}
		s.AddSettings(cmd)
		cmd.AddCommand(benchCommand(s), policyCommand(s), probeCommand(s), shell.VersionCommand())
		return cmd
	}}
}

func work(s *shell.Session, cmd *cobra.Command, more []tools.Tool) error {
	s.NeedsSecrets = true
	cfg, err := s.LoadConfig()
	if err != nil {
		return err
	}
	log := shell.NewLogger(cfg, s.Stderr)
	defer func() { _ = log.Sync() }()
	for _, sentence := range config.Misspelt(s.Variables) {
		log.Warn(sentence)
	}
	err = app.RunWorker(cmd.Context(), s.Hard, cfg, log, func(r app.Ready) { announce(s, cfg, log, r) },
		app.WithReload(s.Reload), app.WithTools(more...), app.WithFaults(s.Fault))
	if errors.Is(err, setup.ErrAgents) {
		return shell.Wrong(err)
	}
	return err
}

// announce reports that the worker is ready: as a log line with the log format
// json, else as text.
func announce(s *shell.Session, cfg *config.Config, log *zap.Logger, r app.Ready) {
	if cfg.LogFormat == shell.FormatJSON {
		log.Info("worker ready", zap.String("worker_id", string(r.WorkerID)), zap.Strings("agents", r.Agents),
			zap.Strings("roles", r.Roles), zap.Int("slots", r.Slots), zap.Strings("providers", r.Providers),
			zap.Bool("private_database", r.Private),
			zap.String("api", r.API))
		return
	}
	for _, line := range readiness(cfg, r) {
		s.Err.Line("%s", term.Plain(line))
	}
}

func readiness(cfg *config.Config, r app.Ready) []string {
	database := "the Postgres of DATABASE_URL"
	if r.Private {
		database = "a private Postgres in " + cfg.DataDir
	}
	lines := []string{
		fmt.Sprintf("worker ready: %s on %s, as %s", r.WorkerID, database, words.Enumerate(r.Roles)),
	}
	if r.API != "" {
		lines = append(lines, "  api        "+r.API)
	}
	if len(r.Agents) == 0 {
		return append(lines, fmt.Sprintf("  agents     none: put NAME.md into %s and restart the worker",
			cfg.AgentsDir))
	}
	lines = append(lines, "  agents     "+strings.Join(r.Agents, ", "))
	if cfg.HasRole(config.RoleWorker) {
		lines = append(lines, "  slots      "+term.Plural(r.Slots, "turn")+" at a time")
	}
	return append(lines,
		"  providers  "+strings.Join(r.Providers, ", "),
		fmt.Sprintf("  try        %s --agent %s --wait \"Hello\"", shell.Command("enqueue"), r.Agents[0]))
}

const workerExitHelp = `Exit codes:
  0  stopped by one signal; every turn has finished or was handed back
  1  stopped by two signals; or a turn did not stop in time; or it could not start
  2  the command line, the settings or the agents' files are wrong
  130  stopped by a signal before it was ready`
