package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
)

// Worker is the program that runs turns. more are tools that agents can list
// besides the built-in ones.
func Worker(more ...tools.Tool) Program {
	return Program{reloads: true, command: func(s *session) *cobra.Command {
		cmd := &cobra.Command{
			Use:   "worker",
			Short: "Run agents' turns",
			Long: `worker takes messages from the inboxes of the agents in the agents folder, runs
their turns, and writes the replies to the outbox.

Every setting below can stand in a flag, in the variable named beside it, or in
the config file; the flag wins. Without DATABASE_URL the worker keeps a private
Postgres in the data folder.

The first SIGINT or SIGTERM lets running turns finish for as long as
shutdown-grace says and hands the others back; a second one stops at once.
SIGHUP reads the agents' files again.

` + workerExitHelp,
			Example: `  worker                          everything in one process
  worker --roles scheduler        only hand out turns
  worker --roles api              only answer HTTP requests
  worker --worker-slots 50        run up to 50 turns at a time`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return s.work(cmd, more) },
		}
		s.addSettings(cmd)
		cmd.AddCommand(s.benchCommand(), versionCommand())
		return cmd
	}}
}

func (s *session) work(cmd *cobra.Command, more []tools.Tool) error {
	s.needsSecrets = true
	cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	log := app.NewLogger(cfg, s.Stderr)
	defer func() { _ = log.Sync() }()
	for _, sentence := range config.Misspelt(s.Variables) {
		log.Warn(sentence)
	}
	return app.RunWorker(cmd.Context(), s.hard, cfg, log, func(r app.Ready) { s.announce(cfg, log, r) },
		app.WithReload(s.Reload), app.WithTools(more...), app.WithFaults(s.fault))
}

// announce says that the worker is ready: in the log's own form where programs
// read it.
func (s *session) announce(cfg *config.Config, log *zap.Logger, r app.Ready) {
	if cfg.LogFormat == formatJSON {
		log.Info("worker ready", zap.String("worker_id", string(r.WorkerID)), zap.Strings("agents", r.Agents),
			zap.Strings("roles", r.Roles), zap.Int("slots", r.Slots), zap.Strings("providers", r.Providers), zap.Bool("private_database", r.Private),
			zap.String("api", r.API))
		return
	}
	for _, line := range readiness(cfg, r) {
		s.err.line("%s", plain(line))
	}
}

func readiness(cfg *config.Config, r app.Ready) []string {
	database := "the Postgres of DATABASE_URL"
	if r.Private {
		database = "a private Postgres in " + cfg.DataDir
	}
	lines := []string{
		fmt.Sprintf("worker ready: %s on %s, as %s", r.WorkerID, database, enumerate(r.Roles)),
	}
	if r.API != "" {
		lines = append(lines, "  api        "+r.API)
	}
	if len(r.Agents) == 0 {
		return append(lines, fmt.Sprintf("  agents     none: put NAME.md into %s and start the worker again", cfg.AgentsDir))
	}
	lines = append(lines, "  agents     "+strings.Join(r.Agents, ", "))
	if cfg.HasRole(config.RoleWorker) {
		lines = append(lines, "  slots      "+plural(r.Slots, "turn")+" at a time")
	}
	return append(lines,
		"  providers  "+strings.Join(r.Providers, ", "),
		fmt.Sprintf("  try        %s --agent %s --wait \"Hello\"", command("enqueue"), r.Agents[0]))
}

// enumerate is a list in words: "api, scheduler and worker".
func enumerate(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
