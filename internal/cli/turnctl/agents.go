package turnctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
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
				warnFileless(s, agents)
			}
			return list(s, cmd, look, views.OfAgent, show,
				"no agents: a worker registers the files of its agents folder when it starts")
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use: "check [DIR|FILE]", Short: "Check agent files; no database is needed", Args: shell.AtMostOneArg,
		Long: `Check one agent file, or all files of a folder (default: the setting agents_dir),
against this program and the settings: keys, values, bounds, models' providers,
demo scripts and tools, including those of the config file. It lists all errors;
with any, the exit code is 1. It shows the next three times of each schedule. Warnings are possible mistakes, such as an unknown
tool, which your own worker program may have. The check asks the agents' MCP
servers for their tools, and model servers for context windows that are neither
in the settings nor in the table of known models.`,
		RunE: func(cmd *cobra.Command, args []string) error { return checkAgents(cmd.Context(), s, args) },
	})
	cmd.AddCommand(showAgentCommand(s), retireCommand(s), restoreCommand(s))
	return cmd
}

func showAgentCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an agent: its models, tools, schedules and survival level",
		Args:    shell.ExactArgs(1),
		Example: "  turnctl agents show clerk",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				v, err := wholeAgent(cmd.Context(), db.Store, args[0])
				if err != nil {
					return err
				}
				return s.Print(v, func() { showAgent(s.Out, s.Clock(), v) })
			})
		},
	}
}

// wholeAgent reads an agent as GET /v1/agents/{name} does.
func wholeAgent(ctx context.Context, store *operate.Store, name string) (v views.WholeAgent, err error) {
	agents, err := store.Agents(ctx)
	if err != nil {
		return v, err
	}
	i := slices.IndexFunc(agents, func(a turnkeeper.AgentRegistration) bool { return a.Name == name })
	if i < 0 {
		return v, shell.NotFound(`there is no agent %q: "turnctl agents" lists them`, name)
	}
	if agents[i].Definition, err = store.Definition(ctx, agents[i].DefinitionHash); err != nil {
		return v, err
	}
	schedules, err := store.Schedules(ctx)
	if err != nil {
		return v, err
	}
	levels, err := store.Levels(ctx)
	return views.OfWholeAgent(agents[i], schedules, levels), err
}

func showAgent(s *term.Screen, c term.Clock, v views.WholeAgent) {
	s.Line("%s  %s", s.Paint(term.Bold, "agent "+v.Name), term.OneLine(v.Description, 200))
	if v.RetiredAt != nil {
		s.Line("%s", s.Paint(term.Warned, "retired "+c.Ago(*v.RetiredAt)))
	}
	if v.Problem != "" {
		s.Line("%s", s.Paint(term.Bad, "its definition cannot be read: "+term.OneLine(v.Problem, 0)))
	}
	for _, fact := range []struct {
		name  string
		words []string
	}{{"models", v.Models}, {"tools", v.Tools}, {"MCP servers", v.MCPServers}, {"sub-agents", v.SubAgents}} {
		s.Line("%-12s %s", fact.name, term.OrDash(term.Plain(strings.Join(fact.words, ", "))))
	}
	if v.Level != nil {
		s.Line("%-12s %s", "level", v.Level.Level)
	}
	for _, sched := range v.Schedules {
		next := "does not run"
		if sched.NextDue != nil {
			next = "next " + c.At(*sched.NextDue)
		}
		s.Line("%-12s %s: %s %s; %s", "schedule", sched.Name, sched.Cron, sched.TimeZone, next)
	}
}

// warnFileless lists the registered agents that have no file here, for example because it was removed.
func warnFileless(s *shell.Session, agents []turnkeeper.AgentRegistration) {
	cfg, err := s.LoadConfig()
	if err != nil {
		return // the list does not need it
	}
	if without := fileless(cfg.AgentsDir, agents); len(without) > 0 {
		s.Err.Line("%s", s.Err.Paint(term.Warned, fmt.Sprintf(
			"no file in %s for: %s; unless another worker has their files, they keep running with their last definition: \"turnctl agents retire NAME\" ends that",
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
	return term.Cell{Text: fmt.Sprintf("retired %s; %s waiting", c.Ago(a.RetiredAt), term.Plural(a.LeftWaiting,
		"message")), Tone: term.Warned}
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
		report.Warnings = append(report.Warnings, secret.Problem+": a worker does not start without it")
	}
	report.Warnings = append(report.Warnings, config.Misspelt(s.Variables)...)
	for _, r := range servers {
		if r.Err != nil {
			report.Warnings = append(report.Warnings,
				fmt.Sprintf("the MCP server %q (%s) does not answer: %s; calls of its tools fail until it does",
					r.Server, r.Where, s.Masker.String(r.Err.Error())))
		}
		report.Warnings = append(report.Warnings, r.Lacks...)
	}
	for _, w := range report.windows {
		if what, advice := w.Warning(); what != "" {
			report.Warnings = append(report.Warnings, s.Masker.String(what)+"; "+advice)
		}
	}
	if err := s.Print(report, func() { showReport(s.Out, s.Clock(), report) }); err != nil {
		return err
	}
	if len(report.Problems) > 0 {
		return shell.Silent(shell.ExitFailure)
	}
	return nil
}

func showReport(s *term.Screen, c term.Clock, r agentReport) {
	for _, name := range r.Agents {
		s.Line("%s %s", s.Paint(term.Good, "✓"), name)
		for _, sched := range r.Schedules {
			if sched.Agent == name {
				s.Line("    %s: %s; %s", sched.Name, sched.Cron, nextLine(c, sched.TimeZone, sched.Next))
			}
		}
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
	good, errors := term.Plural(len(r.Agents), "agent"), "no errors"
	if len(r.Problems) > 0 {
		good, errors = term.Plural(len(r.Agents), "valid agent"), term.Plural(len(r.Problems), "error")
	}
	if r.File != "" {
		s.Line("%s", s.Paint(term.Dim, fmt.Sprintf("%s in %s", errors, r.File)))
		return
	}
	s.Line("%s", s.Paint(term.Dim, fmt.Sprintf("%s in %s, %s", good, r.Folder, errors)))
}
