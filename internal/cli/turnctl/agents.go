package turnctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

func agentsCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "List the registered agents, retire them, or check agent files", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			look := func(ctx context.Context, store *operate.Store) ([]turnkeeper.AgentRegistration, error) {
				return store.Agents(ctx)
			}
			show := func(out *term.Screen, c term.Clock, agents []turnkeeper.AgentRegistration) {
				showAgents(out, c, agents)
				tellFileless(s, agents)
			}
			return list(s, cmd, look, views.OfAgent, show, "no agents: a worker registers the files of its agents folder when it starts")
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "check [DIR|FILE]", Short: "Check agent files; no database is needed", Args: shell.AtMostOneArg,
		Long: `Check the agent files of a folder (default: the setting agents_dir), or one of them, against this
program and the settings found here: keys and values, bounds, models' providers,
demo scripts, tools, those of the config file included. Every fault is listed; with any, the exit code is 1. Warnings tell what may
not be meant: a tool that is not known here, say, which a worker program of your
own may have. The MCP servers that agents have tools of are asked for them, and model servers for
context windows that neither the settings nor the table of known models have.`,
		RunE: func(cmd *cobra.Command, args []string) error { return checkAgents(cmd.Context(), s, args) },
	})
	cmd.AddCommand(retireCommand(s), restoreCommand(s))
	return cmd
}

// tellFileless says which agents have no file here, as after it was removed.
func tellFileless(s *shell.Session, agents []turnkeeper.AgentRegistration) {
	cfg, err := s.LoadConfig()
	if err != nil {
		return // the list was had without it
	}
	if without := fileless(cfg.AgentsDir, agents); len(without) > 0 {
		s.Err.Line("%s", s.Err.Paint(term.Warned, fmt.Sprintf("without a file in %s: %s; they stay registered, and are answered as they last were, unless another worker has their files: \"turnctl agents retire NAME\" ends that",
			cfg.AgentsDir, strings.Join(without, ", "))))
	}
}

func showAgents(s *term.Screen, c term.Clock, agents []turnkeeper.AgentRegistration) {
	t := term.NewTable("AGENT", "STATE", "ONE LANE PER", "DEFINITION", "DESCRIPTION")
	for _, a := range agents {
		description := a.Description
		if len(a.PausedSchedules) > 0 {
			description = "(paused: schedule " + strings.Join(a.PausedSchedules, ", ") + ") " + description
		}
		t.Add(a.Name, agentState(c, a), views.OfAgent(a).Lane, term.Cut(a.DefinitionHash, 13), description)
	}
	t.Print(s)
}

func agentState(c term.Clock, a turnkeeper.AgentRegistration) term.Cell {
	switch {
	case a.RetiredAt.IsZero():
		return term.Cell{Text: "active", Tone: term.Good}
	case a.LeftWaiting == 0:
		return term.Cell{Text: "retired " + c.Ago(a.RetiredAt), Tone: term.Dim}
	}
	return term.Cell{Text: fmt.Sprintf("retired %s; %s waiting", c.Ago(a.RetiredAt), term.Plural(a.LeftWaiting, "message")), Tone: term.Warned}
}

func checkAgents(ctx context.Context, s *shell.Session, args []string) error {
	cfg, err := s.LoadConfig()
	if err != nil {
		return err
	}
	path := cfg.AgentsDir
	if len(args) > 0 {
		path = args[0]
	}
	report, servers := checkFiles(ctx, s, path, cfg)
	for _, secret := range cfg.Missing {
		report.Warnings = append(report.Warnings, secret.Problem+": a worker with these settings does not start without it")
	}
	report.Warnings = append(report.Warnings, config.Misspelt(s.Variables)...)
	for _, r := range servers {
		if r.Err != nil {
			report.Warnings = append(report.Warnings, fmt.Sprintf("the MCP server %q (%s) does not answer: %s; calls of its tools fail until it does", r.Server, r.Where, s.Masker.String(r.Err.Error())))
		}
		report.Warnings = append(report.Warnings, r.Lacks...)
	}
	for _, w := range report.windows {
		if what, advice := w.Warning(); what != "" {
			report.Warnings = append(report.Warnings, s.Masker.String(what)+"; "+advice)
		}
	}
	if err := s.Print(report, func() { showReport(s.Out, report) }); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return shell.Silent(shell.ExitFailure)
	}
	return nil
}

func showReport(s *term.Screen, r agentReport) {
	for _, name := range r.Agents {
		s.Line("%s %s", s.Paint(term.Good, "✓"), name)
	}
	for _, name := range r.Tools {
		s.Line("%s %s %s", s.Paint(term.Good, "✓"), name, s.Paint(term.Dim, "(a tool of the config file)"))
	}
	for _, problem := range r.Problems {
		s.Line("%s %s", s.Paint(term.Bad, "✗"), term.Plain(problem))
	}
	for _, warning := range r.Warnings {
		s.Line("%s %s", s.Paint(term.Warned, "!"), term.Plain(warning))
	}
	good, faults := term.Plural(len(r.Agents), "agent"), "no faults"
	if len(r.Problems) > 0 {
		good, faults = term.Plural(len(r.Agents), "good agent"), term.Plural(len(r.Problems), "fault")
	}
	if r.File != "" {
		s.Line("%s", s.Paint(term.Dim, fmt.Sprintf("%s in %s", faults, r.File)))
		return
	}
	s.Line("%s", s.Paint(term.Dim, fmt.Sprintf("%s in %s, %s", good, r.Folder, faults)))
}
