package turnctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/askform"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/views"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

var askStates = []string{"open", "approved", "denied", "answered", "expired", "withdrawn", "all"}

func asksCommand(s *shell.Session) *cobra.Command {
	var flags pageFlags
	var turn int64
	cmd := &cobra.Command{
		Use: "asks", Short: "List and answer the asks of turns", Args: cobra.NoArgs,
		Long: `List the open asks, newest first: calls that need an approval, questions of
models, input for tools, calls of unknown outcome, and used-up budgets. A turn holds
no lease and no slot while it waits for an answer.`,
		Example: `  turnctl asks show 7
  turnctl asks approve 7 --comment "the invoice is right"
  turnctl asks approve 7 --arguments '{"amount": 90}'
  turnctl asks deny 7 --comment "ask Bob first"
  turnctl asks answer 8 blue`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page(askStates...)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("turn") && turn < 1 {
				return shell.Misused("--turn is %d: it must be an id", turn)
			}
			filter := operate.AskFilter{Agent: page.Agent, User: page.User, Turn: turnkeeper.TurnID(turn),
				Before: asks.ID(page.Cursor), Limit: page.Limit}
			if page.State != "all" {
				filter.State = cmp.Or(asks.State(page.State), asks.Open)
			}
			return list(s, cmd, func(ctx context.Context, store *operate.Store) ([]operate.Ask, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				return store.ListAsks(ctx, filter)
			}, views.OfAsk, showAsks, "no asks")
		},
	}
	flags.add(cmd, strings.Join(askStates, ", "))
	flags.addUser(cmd)
	flags.addBefore(cmd)
	cmd.Flags().Int64Var(&turn, "turn", 0, "only asks of this turn")
	cmd.AddCommand(showAskCommand(s), approveAskCommand(s), denyAskCommand(s), answerAskCommand(s))
	return cmd
}

func showAsks(s *term.Screen, c term.Clock, all []operate.Ask) {
	t := term.NewTable(">ASK", "STATE", "KIND", "AGENT", ">TURN", "TOOL", "ARGUMENTS", "OPENED", "EXPIRES", "REASON")
	for _, a := range all {
		expires := "-"
		if !a.Closed() {
			expires = c.At(a.ExpiresAt)
		}
		t.Add(strconv.FormatInt(int64(a.ID), 10), askState(a), string(a.Kind), pathOf(a),
			strconv.FormatInt(int64(a.Turn), 10), term.OrDash(a.Tool),
			term.OneLine(askform.Escaped(a.Arguments), 40), c.Ago(a.OpenedAt), expires,
			term.OneLine(term.OrDash(a.Reason), 60))
	}
	t.Print(s)
}

func askState(a operate.Ask) term.Cell {
	tones := map[asks.State]term.Tone{asks.Open: term.Warned, asks.Approved: term.Good, asks.Answered: term.Good,
		asks.Denied: term.Bad}
	tone, ok := tones[a.State]
	if !ok {
		tone = term.Dim
	}
	return term.Cell{Text: string(a.State), Tone: tone}
}

// pathOf names the agents from the root of the tree to the one that asks.
func pathOf(a operate.Ask) string {
	var names []string
	for _, step := range a.Path {
		names = append(names, step.Agent)
	}
	return cmp.Or(strings.Join(names, " > "), a.Agent)
}

func showAskCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show ASK", Short: "Show an ask with its arguments", Args: shell.ExactArgs(1),
		Example: "  turnctl asks show 7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
				ask, err := findAsk(cmd.Context(), db.Store, args[0])
				if err != nil {
					return err
				}
				return s.Print(views.OfAsk(ask), func() { showAsk(s.Out, s.Clock(), ask) })
			})
		},
	}
}

func showAsk(s *term.Screen, c term.Clock, a operate.Ask) {
	line := func(name, text string) {
		if text != "" { // further lines are indented, so that a text cannot imitate lines of this page
			s.Line("%-14s %s", name, strings.ReplaceAll(term.Plain(text), "\n", "\n"+strings.Repeat(" ", 15)))
		}
	}
	s.Line("ask %d of turn %d: %s, %s", a.ID, a.Turn, a.Kind, a.State)
	line("agent", pathOf(a)+", conversation "+words.Conversation(a.User, a.Conversation))
	for i, step := range a.Path[:max(len(a.Path)-1, 0)] {
		line(strings.Repeat("  ", i)+"called by", fmt.Sprintf("%s, turn %d, %s", step.Agent, step.Turn, step.Call))
	}
	line("reason", a.Reason)
	line("rule", a.Rule)
	line("opened", c.At(a.OpenedAt))
	if a.Closed() {
		line("closed", c.At(a.ClosedAt)+byWhom(a))
	} else {
		line("expires", c.At(a.ExpiresAt))
	}
	line("for", strings.Join(a.Audience, ", "))
	line("not run", a.NotRun)
	line("comment", a.Comment)
	line("answer", a.Answer)
	if a.Tool == "" {
		return
	}
	line("hash", a.Hash)
	for _, doubt := range askform.Doubts(a.Arguments + " " + a.Edited) {
		line("look closely", doubt)
	}
	s.Line("%s", term.Plain(a.Tool))
	if a.Edited != "" {
		printDiff(s, a.Arguments, a.Edited)
		return
	}
	for line := range strings.SplitSeq(askform.Visible(a.Arguments), "\n") {
		s.Line("  %s", term.Plain(line))
	}
}

func byWhom(a operate.Ask) string {
	if a.AnsweredBy == "" {
		return ""
	}
	return " by " + a.AnsweredBy + " (" + a.Channel + ")"
}

// printDiff prints what changed from one JSON text to another, line by line.
func printDiff(s *term.Screen, from, to string) {
	for _, line := range askform.Diff(from, to) {
		tone := term.Dim
		switch line[0] {
		case '-':
			tone = term.Bad
		case '+':
			tone = term.Good
		}
		s.Line("%s", s.Paint(tone, term.Plain(line)))
	}
}

// answerFlags are the flags of the commands that answer an ask.
type answerFlags struct{ by, comment, hash string }

func (f *answerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.by, "as", "", "who answers (default: the user of this terminal)")
	cmd.Flags().StringVar(&f.comment, "comment", "", "a comment for the model")
	cmd.Flags().StringVar(&f.hash, "hash", "", "answer only if the arguments still have this hash")
}

func approveAskCommand(s *shell.Session) *cobra.Command {
	var flags answerFlags
	var arguments string
	cmd := &cobra.Command{
		Use: "approve ASK", Short: "Approve a call, or extend the budget of a turn", Args: shell.ExactArgs(1),
		Long: `Approve a call. It runs once, with exactly the arguments that "turnctl asks show"
prints, or with those of --arguments. The model sees changed arguments and the
comment. If the same person repeats the command, nothing changes; another person is
refused.

` + shell.RefusedHelp,
		Example: `  turnctl asks approve 7
  turnctl asks approve 7 --arguments '{"amount": 90, "to": "acme"}'
  turnctl asks approve 7 --arguments - < arguments.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return answerAsk(cmd.Context(), s, args[0], flags, asks.Approved,
				func(ask operate.Ask) (a asks.Answer, err error) {
					if !cmd.Flags().Changed("arguments") {
						return a, nil
					}
					text := arguments
					if text == "-" {
						all, err := jsonlimit.Answer.ReadAll(s.Stdin)
						if err != nil {
							return a, err
						}
						text = string(all)
					}
					edited, err := askform.Arguments(ask.Schema, text)
					if err != nil {
						return a, shell.Misused("--arguments: %v", err)
					}
					a.Edited = edited
					if edited == ask.Arguments {
						a.Edited = ""
					}
					return a, nil
				})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&arguments, "arguments", "",
		"run the call with these arguments instead: a JSON object, or - to read it from standard input")
	return cmd
}

func denyAskCommand(s *shell.Session) *cobra.Command {
	var flags answerFlags
	cmd := &cobra.Command{
		Use: "deny ASK", Short: "Deny a call, decline to answer, or refuse more budget", Args: shell.ExactArgs(1),
		Long: `Deny a call. The model sees the denial with the comment, and the turn continues.
If the same person repeats the command, nothing changes; another person is
refused.

` + shell.RefusedHelp,
		Example: `  turnctl asks deny 7 --comment "ask Bob first"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return answerAsk(cmd.Context(), s, args[0], flags, asks.Denied, func(operate.Ask) (asks.Answer, error) {
				return asks.Answer{}, nil
			})
		},
	}
	flags.add(cmd)
	return cmd
}

func answerAskCommand(s *shell.Session) *cobra.Command {
	var flags answerFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "answer ASK ANSWER", Short: "Answer a question, give a tool input, or settle an unknown outcome",
		Args: shell.ExactArgs(2),
		Long: `Answer a question of a model, give a tool the input it asked for, or settle whether a
call of unknown outcome happened: happened, did_not_happen (it runs again) or unknown.
If the same person repeats the command, nothing changes; another person is
refused.

` + shell.RefusedHelp,
		Example: `  turnctl asks answer 8 blue
  turnctl asks answer 8 '{"colour": "blue"}' --json
  turnctl asks answer 9 did_not_happen --comment "the bank has no such transfer"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return answerAsk(cmd.Context(), s, args[0], flags, asks.Answered,
				func(ask operate.Ask) (asks.Answer, error) {
					text := args[1]
					if !asJSON {
						quoted, err := json.Marshal(strings.ToValidUTF8(text, "\uFFFD"))
						if err != nil {
							return asks.Answer{}, err
						}
						text = string(quoted)
					}
					answer, err := askform.Answer(ask.Schema, text)
					if err != nil {
						return asks.Answer{}, shell.Misused("ANSWER: %v", err)
					}
					return asks.Answer{Answer: answer}, nil
				})
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "ANSWER is JSON, not text")
	return cmd
}

// answerAsk answers an ask and prints it. make makes what the decision takes.
func answerAsk(ctx context.Context, s *shell.Session, arg string, flags answerFlags, decision asks.State,
	make func(operate.Ask) (asks.Answer, error)) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		ask, err := findAsk(ctx, db.Store, arg)
		if err != nil {
			return err
		}
		if err := ask.Kind.Check(decision); err != nil {
			return shell.Refused(err)
		}
		a, err := make(ask)
		if err != nil {
			return err
		}
		a.Decision, a.By, a.Channel, a.Comment, a.Hash = decision, flags.by, "turnctl", flags.comment,
			cmp.Or(flags.hash, ask.Hash)
		if a.By == "" {
			user, _ := s.Getenv("USER")
			a.By = cmp.Or(user, "operator")
		}
		if _, err := db.Store.AnswerAsk(ctx, ask.ID, a); errors.Is(err, asks.ErrClosed) ||
			errors.Is(err, asks.ErrInvalid) {
			return shell.Refused(err)
		} else if err != nil {
			return err
		}
		if ask, err = db.Store.Ask(ctx, ask.ID); err != nil {
			return err
		}
		return s.Print(views.OfAsk(ask), func() {
			s.Out.Line("ask %d is %s; turn %d continues", ask.ID, ask.State, ask.Turn)
			if ask.Edited != "" {
				printDiff(s.Out, ask.Arguments, ask.Edited)
			}
		})
	})
}

func findAsk(ctx context.Context, store *operate.Store, arg string) (operate.Ask, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return operate.Ask{}, shell.Misused("%q is not an ask: give its id", arg)
	}
	ask, err := store.Ask(ctx, asks.ID(id))
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return ask, shell.NotFound(`there is no ask %d: "turnctl asks --state all" lists them`, id)
	}
	return ask, err
}

// completeAsks lists the open asks.
func completeAsks(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	open, err := store.ListAsks(ctx, operate.AskFilter{State: asks.Open, Limit: maxLimit})
	for _, a := range open {
		names = append(names, fmt.Sprintf("%d\t%s %s of %s", a.ID, a.Kind, a.Tool, a.Agent))
	}
	slices.Sort(names)
	return names, err
}
