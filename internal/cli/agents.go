package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func (s *session) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "List the registered agents, retire them, or check agent files", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.AgentRegistration, error) {
				return store.Agents(ctx)
			}
			show := func(out *screen, c clock, agents []turnkeeper.AgentRegistration) {
				showAgents(out, c, agents)
				s.tellFileless(agents)
			}
			return list(s, cmd, look, views.OfAgent, show, "no agents: a worker registers the files of its agents folder when it starts")
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "check [DIR|FILE]", Short: "Check agent files; no database is needed", Args: atMostOneArg,
		Long: `Check the agent files of a folder (default: the setting agents_dir), or one of them, against this
program and the settings found here: keys and values, bounds, models' providers,
demo scripts, tools, those of the config file included. Every fault is listed; with any, the exit code is 1. Warnings tell what may
not be meant: a tool that is not known here, say, which a worker program of your
own may have. The MCP servers that agents have tools of are asked for them, and model servers for
context windows that neither the settings nor the table of known models have.`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.checkAgents(cmd.Context(), args) },
	})
	cmd.AddCommand(s.retireCommand(), s.restoreCommand())
	return cmd
}

// tellFileless says which agents have no file here, as after it was removed.
func (s *session) tellFileless(agents []turnkeeper.AgentRegistration) {
	cfg, err := s.loadConfig()
	if err != nil {
		return // the list was had without it
	}
	if without := fileless(cfg.AgentsDir, agents); len(without) > 0 {
		s.err.line("%s", s.err.in(warned, fmt.Sprintf("without a file in %s: %s; they stay registered, and are answered as they last were, unless another worker has their files: \"turnctl agents retire NAME\" ends that",
			cfg.AgentsDir, strings.Join(without, ", "))))
	}
}

func showAgents(s *screen, c clock, agents []turnkeeper.AgentRegistration) {
	t := newTable("AGENT", "STATE", "ONE LANE PER", "DEFINITION", "DESCRIPTION")
	for _, a := range agents {
		description := a.Description
		if len(a.PausedSchedules) > 0 {
			description = "(paused: schedule " + strings.Join(a.PausedSchedules, ", ") + ") " + description
		}
		t.add(a.Name, agentState(c, a), views.OfAgent(a).Lane, cut(a.DefinitionHash, 13), description)
	}
	t.print(s)
}

func agentState(c clock, a turnkeeper.AgentRegistration) cell {
	switch {
	case a.RetiredAt.IsZero():
		return cell{"active", good}
	case a.LeftWaiting == 0:
		return cell{"retired " + c.ago(a.RetiredAt), dim}
	}
	return cell{fmt.Sprintf("retired %s; %s waiting", c.ago(a.RetiredAt), plural(a.LeftWaiting, "message")), warned}
}

func (s *session) checkAgents(ctx context.Context, args []string) error {
	cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	path := cfg.AgentsDir
	if len(args) > 0 {
		path = args[0]
	}
	report, servers := s.checkFiles(ctx, path, cfg)
	for _, secret := range cfg.Missing {
		report.Warnings = append(report.Warnings, secret.Problem+": a worker with these settings does not start without it")
	}
	report.Warnings = append(report.Warnings, config.Misspelt(s.Variables)...)
	for _, r := range servers {
		if r.Err != nil {
			report.Warnings = append(report.Warnings, fmt.Sprintf("the MCP server %q (%s) does not answer: %s; calls of its tools fail until it does", r.Server, r.Where, s.masker.String(r.Err.Error())))
		}
		report.Warnings = append(report.Warnings, r.Lacks...)
	}
	for _, w := range report.windows {
		if what, advice := w.Warning(); what != "" {
			report.Warnings = append(report.Warnings, s.masker.String(what)+"; "+advice)
		}
	}
	if err := s.print(report, func() { showReport(s.out, report) }); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return silent(ExitFailure)
	}
	return nil
}

func showReport(s *screen, r agentReport) {
	for _, name := range r.Agents {
		s.line("%s %s", s.in(good, "✓"), name)
	}
	for _, name := range r.Tools {
		s.line("%s %s %s", s.in(good, "✓"), name, s.in(dim, "(a tool of the config file)"))
	}
	for _, problem := range r.Problems {
		s.line("%s %s", s.in(bad, "✗"), plain(problem))
	}
	for _, warning := range r.Warnings {
		s.line("%s %s", s.in(warned, "!"), plain(warning))
	}
	good, faults := plural(len(r.Agents), "agent"), "no faults"
	if len(r.Problems) > 0 {
		good, faults = plural(len(r.Agents), "good agent"), plural(len(r.Problems), "fault")
	}
	if r.File != "" {
		s.line("%s", s.in(dim, fmt.Sprintf("%s in %s", faults, r.File)))
		return
	}
	s.line("%s", s.in(dim, fmt.Sprintf("%s in %s, %s", good, r.Folder, faults)))
}
