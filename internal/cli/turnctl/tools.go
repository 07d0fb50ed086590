package turnctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/tools"
)

func toolsCommand(s *shell.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tools", Short: "Run a tool as an agent would, outside a turn", Args: cobra.NoArgs,
		Example: `  turnctl tools call clerk clock`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(callToolCommand(s))
	return cmd
}

func callToolCommand(s *shell.Session) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "call AGENT TOOL [JSON | -]", Short: "Run one tool once, with its settings, checks and limits",
		Args: cobra.RangeArgs(2, 3),
		Long: `Run one tool of an agent once, on this machine, with the tool's settings, the agent's
permissions (root folder, private hosts, MCP servers), validation of arguments, the
timeout, and truncation of long results. Arguments are a JSON object, or - to read
it from standard input; the default is {}. The call belongs to no turn: it is not in
a journal, and freshness, budgets and the guard against repeats do not apply.

A tool with an effect (keyed or once) runs only after a confirmation, or with --yes.
You cannot call tools that read results of a turn, or Go tools of your own worker
program.

The result is printed as a model would be shown it; the duration is printed on
standard error.

` + shell.ExitHelp + `
  6  not confirmed: nothing was run
  130  stopped by a signal before the end`,
		Example: `  turnctl tools call clerk clock
  turnctl tools call clerk http_get '{"url": "https://example.com"}'
  turnctl tools call clerk post_letter - --yes < letter.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments := strings.Join(args[2:], "")
			if arguments == "-" {
				text, err := io.ReadAll(io.LimitReader(s.Stdin, turnkeeper.LargestMessage))
				if err != nil {
					return fmt.Errorf("cannot read the arguments from standard input: %w", err)
				}
				arguments = string(text)
			}
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				agent, err := setup.OpenAgentTools(cmd.Context(), cfg, db.Store, args[0],
					shell.NewLogger(cfg, s.Stderr))
				if err != nil {
					return lookupError(err)
				}
				defer agent.Close()
				return callTool(cmd.Context(), s, agent, args[1], arguments, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "run a tool with an effect without confirmation")
	return cmd
}

// lookupError returns the error with the exit code for an unknown agent or tool, or a wrong file.
func lookupError(err error) error {
	if errors.Is(err, setup.ErrAgents) {
		return shell.Wrong(err)
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return shell.NotFound("%s", strings.TrimPrefix(err.Error(), turnkeeper.ErrNotFound.Error()+": "))
	}
	return err
}

// calledView is the JSON output of tools call.
type calledView struct {
	Agent      string            `json:"agent"`
	Tool       string            `json:"tool"`
	Effect     turnkeeper.Effect `json:"effect"`
	Arguments  json.RawMessage   `json:"arguments"`
	Outcome    tools.Outcome     `json:"outcome"`
	Result     string            `json:"result"` // as a model would be shown it
	Cut        bool              `json:"cut"`
	Chars      int64             `json:"chars"` // of the full result
	Attached   []string          `json:"attached"`
	DurationMs int64             `json:"duration_ms"`
}

func callTool(ctx context.Context, s *shell.Session, agent *setup.AgentTools, name, arguments string, yes bool) error {
	spec, err := agent.Spec(name)
	if err != nil {
		return lookupError(err)
	}
	if secret, missing := agent.Missing(name); missing {
		return shell.Misused("%s", secret.Problem)
	}
	args, fault := agent.Check(name, arguments)
	if fault != "" {
		return shell.Misused("%s", fault)
	}
	if spec.Effect != turnkeeper.EffectNone && !yes {
		if err := confirm(ctx, s, fmt.Sprintf("%s has an effect (%s). Run it with %s?", name, spec.Effect,
			term.OneLine(args.Canonical, 300))); err != nil {
			return err
		}
	}
	report := agent.Call(ctx, name, args)
	if ctx.Err() != nil && report.Outcome == tools.Cancelled {
		return shell.ErrInterrupted
	}
	view := calledView{
		agent.Name(), name, spec.Effect, json.RawMessage(args.Canonical), report.Outcome, report.Shown, report.Cut,
		report.Chars, append([]string{}, report.Attached...), report.Duration.Milliseconds(),
	}
	err = s.Print(view, func() {
		s.Out.Line("%s", term.Plain(report.Shown))
		for _, attached := range report.Attached {
			s.Err.Line("%s", "attached: "+term.Plain(attached))
		}
		s.Err.Line("%s", s.Err.Paint(term.Dim, fmt.Sprintf("%s, %s after %s", name,
			strings.ReplaceAll(string(report.Outcome), "_", " "), term.Exact(report.Duration))))
	})
	if err != nil {
		return err
	}
	if report.Outcome != tools.Succeeded {
		return shell.Silent(shell.ExitFailure)
	}
	return nil
}

// confirm asks a question on standard error, and fails unless standard input answers yes.
func confirm(ctx context.Context, s *shell.Session, question string) error {
	s.Err.Line("%s [y/N]", term.Plain(question))
	answer := make(chan string, 1)
	go func() { // may block until the process ends
		text, _ := bufio.NewReader(s.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case <-ctx.Done():
		return shell.ErrInterrupted
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return shell.Refused(errors.New("nothing was run: answer y, or give --yes"))
}
