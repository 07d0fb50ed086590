package turnctl

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
)

func doctorCommand(s *shell.Session) *cobra.Command {
	var probe bool
	cmd := &cobra.Command{
		Use: "doctor [MODEL]", Short: "Find problems, and say how to fix them",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !probe {
				return errors.New("a model needs --probe: turnctl doctor --probe MODEL")
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		Long: `Check the settings, the database and its durability, whether it accepts writes (in
a transaction that is rolled back), the schema, workers, the scheduler, agents'
files, models and their providers, webhooks and MCP servers.
Also report rows that fail and are set aside, messages that have been due for five
minutes, spent budgets, and turns that lost workers. Each line is FAIL, warn or ok, in this order, with what to do.

With --probe, also ask MODEL (provider/model), or each model of the agents, for calls
of a test tool, as a worker asks, and say what its server does wrong. This runs the
program "worker probe", makes up to three requests to a model, and costs their tokens.

Exit codes:
  0  no failure; there may be warnings
  1  at least one FAIL
  2  the command line is wrong`,
		Example: `  turnctl doctor
  turnctl doctor --probe
  turnctl doctor --probe vllm/Qwen/Qwen3-8B`,
		RunE: func(cmd *cobra.Command, models []string) error {
			d := examine(cmd.Context(), s)
			if probe {
				probeModels(cmd.Context(), s, d, models)
			}
			d.Sort()
			if err := s.Print(views.OfDiagnosis(*d), func() { showDiagnosis(s.Out, d) }); err != nil {
				return err
			}
			if d.Count(diagnosis.Fail) > 0 {
				return shell.Silent(shell.ExitFailure)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&probe, "probe", false, "ask models for a tool call, and say what their servers do wrong")
	return cmd
}

func examine(ctx context.Context, s *shell.Session) *diagnosis.Report {
	d := &diagnosis.Report{At: time.Now()}
	cfg, err := s.LoadConfig()
	if err != nil {
		d.Add(diagnosis.Fail, "settings", err.Error(), "correct the settings: no command works until then")
		return d
	}
	examineSettings(d, cfg)
	for _, secret := range cfg.Missing {
		d.Add(diagnosis.Warn, "settings", secret.Problem,
			"set it here too, if workers have it: without it some checks are skipped. A worker does not start without it")
	}
	for _, sentence := range config.Misspelt(s.Variables) {
		d.Add(diagnosis.Warn, "settings", sentence, "correct its name, or unset it: it has no effect")
	}
	s.Variables = nil // already reported
	reached := false
	err = s.WithDatabase(ctx, func(cfg *config.Config, db *database.Database) error {
		reached = true
		examineDatabase(ctx, d, cfg, db, s.Clock())
		return nil
	})
	if err != nil {
		advice := words.DatabaseAdvice(storage.Cause(err),
			"correct DATABASE_URL, or what the error names at the server")
		switch {
		case reached:
			advice = "see the log in " + cfg.DataDir
		case !cfg.DatabaseURL.IsSet():
			advice = "start a worker, which creates the private database, or set DATABASE_URL"
		}
		d.Add(diagnosis.Fail, "database", s.Masker.String(err.Error()), advice)
	}
	examineAgents(ctx, s, d, cfg)
	return d
}

func showDiagnosis(s *term.Screen, d *diagnosis.Report) {
	words := map[diagnosis.Verdict]string{diagnosis.OK: s.Paint(term.Good, "ok  "), diagnosis.Warn: s.Paint(term.Warned,
		"warn"), diagnosis.Fail: s.Paint(term.Bad, "FAIL")}
	const indent = 26
	for _, c := range d.Checks {
		name := c.Name + strings.Repeat(" ", max(indent-6-term.Width(c.Name), 1))
		for i, line := range term.Wrap(c.Found, s.Readable()-indent) {
			if i == 0 {
				s.Line("%s  %s%s", words[c.Verdict], s.Paint(term.Bold, name), line)
			} else {
				s.Line("%s%s", strings.Repeat(" ", indent), line)
			}
		}
		for i, line := range term.Wrap(c.Advice, s.Readable()-indent-2) {
			if line != "" {
				s.Line("%s%s", strings.Repeat(" ", indent), s.Paint(term.Dim, []string{"→ ", "  "}[min(i, 1)]+line))
			}
		}
	}
	s.Line("")
	switch fails, warns := d.Count(diagnosis.Fail), d.Count(diagnosis.Warn); {
	case fails > 0:
		s.Line("%s", s.Paint(term.Bad, term.Plural(fails, "failure")+", "+term.Plural(warns, "warning")))
	case warns > 0:
		s.Line("%s", s.Paint(term.Warned, term.Plural(warns, "warning")))
	default:
		s.Line("%s", s.Paint(term.Good, "no problems found"))
	}
}
