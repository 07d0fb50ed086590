package turnctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/internal/database"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// Program is the operator's program.
func Program() shell.Program {
	return shell.Program{Command: func(s *shell.Session) *cobra.Command {
		root := &cobra.Command{
			Use:   "turnctl",
			Short: "Inspect and operate Turnkeeper",
			Long: `turnctl inspects and operates Turnkeeper. Text is for people; -o json is for
programs: names in snake_case, times in RFC 3339, lists as arrays.

Lists show 25 entries, newest first; --limit asks for up to 100.

` + turnctlExitHelp,
			Example: `  turnctl top                     live overview of the service
  turnctl show latest             details of the newest turn
  turnctl explain latest          why it ended as it did
  turnctl turns --state failed    failed turns
  turnctl doctor                  problems, and how to fix them`,
		}
		root.PersistentFlags().StringVarP(&s.Format, "output", "o", shell.FormatText, "text for people, or json")
		s.AddSettings(root, shell.ReaderSettings...)
		root.AddCommand(
			initCommand(s), turnsCommand(s), showCommand(s), inboxCommand(s), outboxCommand(s), asksCommand(s),
			lanesCommand(s), schedulesCommand(s),
			schedulerCommand(s), policyCommand(), agentsCommand(s), outputCommand(s), workersCommand(s),
			migrateCommand(s), doctorCommand(s), checkCommand(s),
			modelsCommand(s), levelsCommand(s), setAsideCommand(s), tokensCommand(s), webhooksCommand(s), mcpCommand(s),
			cancelCommand(s), finishCommand(s), retryCommand(s), eventsCommand(s), explainCommand(s), topCommand(s),
			purgeCommand(s), toolsCommand(s), shell.VersionCommand(),
		)
		addExamples(root)
		completeCommands(s, root)
		_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{shell.FormatText,
			shell.FormatJSON}, cobra.ShellCompDirectiveNoFileComp))
		return root
	}}
}

// pageFlags are the flags of a list.
type pageFlags struct {
	agent, state string
	user         userFlag
	limit        int
	before       int64
}

const (
	defaultLimit = 25
	maxLimit     = 100
)

func (p *pageFlags) add(cmd *cobra.Command, states string) {
	f := cmd.Flags()
	f.StringVar(&p.agent, "agent", "", "only of this agent")
	if states != "" {
		f.StringVar(&p.state, "state", "", "only in this state: "+states)
		_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(strings.Split(states, ", "),
			cobra.ShellCompDirectiveNoFileComp))
	}
	f.IntVar(&p.limit, "limit", defaultLimit, "entries, 1 to 100")
}

// A userFlag is the name of a user. An empty one is refused: it probably comes from an unset variable, and would mean
// all users.
type userFlag struct{ name string }

func (u *userFlag) String() string { return u.name }
func (*userFlag) Type() string     { return "string" }

func (u *userFlag) Set(name string) error {
	if name == "" {
		return errors.New("it is empty: give it a value, or omit it")
	}
	u.name = name
	return turnkeeper.ConversationKey{User: name}.CheckUser()
}

func (p *pageFlags) addUser(cmd *cobra.Command) {
	cmd.Flags().Var(&p.user, "user", "only of this user")
}

func (p *pageFlags) addBefore(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&p.before, "before", 0, "only entries with ids below this one: the next page")
}

func (p *pageFlags) page(states ...string) (operate.Page, error) {
	if p.limit < 1 || p.limit > maxLimit {
		return operate.Page{}, shell.Misused("--limit is %d: it must be 1 to %d; --before gives the next page",
			p.limit, maxLimit)
	}
	if p.before < 0 {
		return operate.Page{}, shell.Misused("--before is %d: it must be an id", p.before)
	}
	if err := shell.OneOf("--state", p.state, states); err != nil {
		return operate.Page{}, err
	}
	return operate.Page{Agent: p.agent, User: p.user.name, State: p.state, Limit: p.limit, Cursor: p.before}, nil
}

// known fails if --agent names an unregistered agent: an empty list would be
// misleading.
func (p *pageFlags) known(ctx context.Context, store *operate.Store) error {
	return registered(ctx, store, p.agent)
}

// registered fails if there is no such agent. An empty name is valid.
func registered(ctx context.Context, store *operate.Store, agent string) error {
	if agent == "" {
		return nil
	}
	all, err := store.Agents(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = a.Name
	}
	if slices.Contains(names, agent) {
		return nil
	}
	hint := ""
	if near := strictyaml.Nearest(agent, names); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return shell.NotFound(`there is no agent %q%s: "turnctl agents" lists the registered ones`, agent, hint)
}

// read runs a command that queries the database and prints the result.
func read[T any](s *shell.Session, cmd *cobra.Command, look func(context.Context, *operate.Store) (T, error),
	view func(T) any, text func(T)) error {
	return s.WithDatabase(cmd.Context(), func(_ *config.Config, db *database.Database) error {
		found, err := look(cmd.Context(), db.Store)
		if err != nil {
			return err
		}
		return s.Print(view(found), func() { text(found) })
	})
}

// list is read for a list. It prints none if the list is empty.
func list[N, V any](s *shell.Session, cmd *cobra.Command, look func(context.Context, *operate.Store) ([]N, error),
	view func(N) V, show func(*term.Screen, term.Clock, []N), none string,
) error {
	return read(s, cmd, look, func(found []N) any { return views.All(found, view) }, func(found []N) {
		if len(found) == 0 {
			s.Err.Line("%s", none)
			return
		}
		show(s.Out, s.Clock(), found)
	})
}

// newestCommand returns a command that lists rows with states, newest first, in pages.
func newestCommand[N, V any](s *shell.Session, use, what string, states []string, look func(*operate.Store,
	context.Context, operate.Page) ([]N, error),
	view func(N) V, show func(*term.Screen, term.Clock, []N),
) *cobra.Command {
	var flags pageFlags
	cmd := &cobra.Command{
		Use: use, Short: "List " + what + ", newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := flags.page(states...)
			if err != nil {
				return err
			}
			return list(s, cmd, func(ctx context.Context, store *operate.Store) ([]N, error) {
				if err := flags.known(ctx, store); err != nil {
					return nil, err
				}
				return look(store, ctx, page)
			}, view, show, "no "+what)
		},
	}
	flags.add(cmd, strings.Join(states, ", "))
	flags.addUser(cmd)
	flags.addBefore(cmd)
	return cmd
}

// turnctlExitHelp lists all exit codes of turnctl.
const turnctlExitHelp = shell.ExitHelp + `
  5  events --follow: the turn failed or was cancelled
  6  asks, cancel, finish, retry, schedules run, webhooks, init: not possible in the current state;
     tools call: not confirmed
  130  stopped by a signal before the end`
