package worker

import (
	"slices"

	"github.com/spf13/cobra"

	"turnkeeper/internal/app"
	"turnkeeper/internal/cli/shell"
)

// probeView is the JSON output of a probe. "turnctl doctor --probe" reads it.
type probeView struct {
	Checks []app.ProbeFinding `json:"checks"`
}

func probeCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "probe [MODEL...]", Short: "Ask models for a tool call, and say what their servers do wrong",
		Long: `Make up to three requests to each model, as the worker makes them: ask for a call of
a test tool, give its result, and ask for two calls at once. Say what the server does
wrong, and which setting corrects it. Without MODEL (provider/model), probe the models
of all agents. The requests count against no budget. "turnctl doctor --probe" does the
same.

Exit codes:
  0  agents work with all models; there may be warnings
  1  agents do not work with a model
  2  the command line or the settings are wrong`,
		Example: `  worker probe
  worker probe vllm/Qwen/Qwen3-8B -o json`,
		RunE: func(cmd *cobra.Command, names []string) error {
			s.NeedsSecrets = true
			cfg, err := s.LoadConfig()
			if err != nil {
				return err
			}
			findings, err := app.ProbeModels(cmd.Context(), cfg, names, shell.NewLogger(cfg, s.Stderr))
			if err != nil {
				return err
			}
			if err := s.Print(probeView{findings}, func() { showFindings(s, findings) }); err != nil {
				return err
			}
			if slices.ContainsFunc(findings, func(f app.ProbeFinding) bool { return f.Verdict == app.ProbeFail }) {
				return shell.Silent(shell.ExitFailure)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&s.Format, "output", "o", shell.FormatText, "text for people, or json")
	hideInherited(cmd)
	return cmd
}

func showFindings(s *shell.Session, findings []app.ProbeFinding) {
	for _, f := range findings {
		s.Out.Line("%-4s  %s  %s", f.Verdict, f.Name, f.Found)
		if f.Advice != "" {
			s.Out.Line("      → %s", f.Advice)
		}
	}
	if len(findings) == 0 {
		s.Out.Line("no model to probe: agents use the demo only")
	}
}
