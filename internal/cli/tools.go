package cli

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
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/tools"
)

func (s *session) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tools", Short: "Run a tool as an agent would, outside a turn", Args: cobra.NoArgs,
		Example: `  turnctl tools call clerk clock`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.callToolCommand())
	return cmd
}

func (s *session) callToolCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "call AGENT TOOL [JSON | -]", Short: "Run one tool once, with its settings, checks and limits", Args: cobra.RangeArgs(2, 3),
		Long: `Run one tool of an agent's file here, once: with the tool's settings, what the agent
may do (its root folder, private hosts, MCP servers), the check of arguments, the
time that a call has, and the cut of long results. Arguments are a JSON object,
or - to read it from standard input; none is {}. No turn knows of the call: it is
in no journal, and no freshness, budget or guard against repeats applies to it.

A tool with an effect (keyed or once) is run after a question only, or with --yes.
Tools that read results of a turn cannot be called, nor can Go tools of a worker
program of your own.

The result is printed as a model would be shown it, and how long it took on
standard error.

` + exitHelp + `
  6  the question was not answered by yes: nothing was run
  130  stopped by a signal before it was done`,
		Example: `  turnctl tools call clerk clock
  turnctl tools call clerk http_get '{"url": "https://example.com"}'
  turnctl tools call clerk post_letter - --yes < letter.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments := strings.Join(args[2:], "")
			if arguments == "-" {
				text, err := io.ReadAll(io.LimitReader(s.Stdin, largestMessage))
				if err != nil {
					return fmt.Errorf("the arguments cannot be read from standard input: %w", err)
				}
				arguments = string(text)
			}
			return s.withDatabase(cmd.Context(), func(cfg *config.Config, db *app.Database) error {
				agent, err := app.OpenAgentTools(cmd.Context(), cfg, db.Store, args[0], app.NewLogger(cfg, s.Stderr))
				if err != nil {
					return unfound(err)
				}
				defer agent.Close()
				return s.callTool(cmd.Context(), agent, args[1], arguments, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "run it without a question, also where it has an effect")
	return cmd
}

// unfound is the error with the code of what is not there.
func unfound(err error) error {
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return notFound("%s", strings.TrimPrefix(err.Error(), turnkeeper.ErrNotFound.Error()+": "))
	}
	return err
}

// calledView is what programs read of a call.
type calledView struct {
	Agent      string            `json:"agent"`
	Tool       string            `json:"tool"`
	Effect     turnkeeper.Effect `json:"effect"`
	Arguments  json.RawMessage   `json:"arguments"`
	Outcome    tools.Outcome     `json:"outcome"`
	Result     string            `json:"result"` // as a model would be shown it
	Cut        bool              `json:"cut"`
	Chars      int64             `json:"chars"` // of the whole result
	Attached   []string          `json:"attached"`
	DurationMs int64             `json:"duration_ms"`
}

func (s *session) callTool(ctx context.Context, agent *app.AgentTools, name, arguments string, yes bool) error {
	spec, err := agent.Spec(name)
	if err != nil {
		return unfound(err)
	}
	if secret, missing := agent.Missing(name); missing {
		return usageError("%s", secret.Problem)
	}
	args, fault := agent.Check(name, arguments)
	if fault != "" {
		return usageError("%s", fault)
	}
	if spec.Effect != turnkeeper.EffectNone && !yes {
		if err := s.confirm(ctx, fmt.Sprintf("%s has an effect (%s). Run it with %s?", name, spec.Effect, oneLine(args.Canonical, 300))); err != nil {
			return err
		}
	}
	end := agent.Call(ctx, name, args)
	if ctx.Err() != nil && end.Outcome == tools.Cancelled {
		return errInterrupted
	}
	view := calledView{
		agent.Name(), name, spec.Effect, json.RawMessage(args.Canonical), end.Outcome, end.Shown, end.Cut, end.Chars, append([]string{}, end.Attached...), end.Took.Milliseconds(),
	}
	err = s.print(view, func() {
		s.out.line("%s", plain(end.Shown))
		for _, attached := range end.Attached {
			s.err.line("%s", "attached: "+plain(attached))
		}
		s.err.line("%s", s.err.in(dim, fmt.Sprintf("%s, %s after %s", name, strings.ReplaceAll(string(end.Outcome), "_", " "), exact(end.Took))))
	})
	if err != nil {
		return err
	}
	if end.Outcome != tools.Succeeded {
		return silent(ExitFailure)
	}
	return nil
}

// confirm asks a question on standard error, and fails unless standard input answers yes.
func (s *session) confirm(ctx context.Context, question string) error {
	s.err.line("%s [y/N]", plain(question))
	answer := make(chan string, 1)
	go func() { // it may wait for ever; the process ends
		text, _ := bufio.NewReader(s.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case <-ctx.Done():
		return errInterrupted
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return refused(errors.New("nothing was run: answer y, or give --yes"))
}
