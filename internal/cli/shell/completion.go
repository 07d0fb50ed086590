package shell

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/pgdev"
	"turnkeeper/storage/operate"
)

// completionTime is the timeout of completions that read the database.
const completionTime = time.Second

// CompletionEntries is the maximum number of turns or messages that completion offers, newest first.
const CompletionEntries = 50

// completionScan is the number of newest messages whose conversations completion offers.
const completionScan = 100

// A completer lists the values for one argument or flag. A tab separates a value from its description, if it has one.
type completer func(ctx context.Context, store *operate.Store, cmd *cobra.Command, args []string) ([]string, error)

// FromDatabase completes with values from the database. It offers nothing, without an error, if the database does not
// answer within completionTime. It does not start a private database.
func (s *Session) FromDatabase(list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.LoadConfig()
		if err != nil || !cfg.DatabaseURL.IsSet() && !pgdev.Runs(cfg.DataDir) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		db, err := database.Open(ctx, cfg, zap.NewNop(), nil, nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = db.Close(ctx) }()
		found, _ := list(ctx, db.Store, cmd, args)
		return withPrefix(typed, found), cobra.ShellCompDirectiveNoFileComp
	}
}

// FromSettings completes with values from the settings and the agents folder.
func (s *Session) FromSettings(list func(cfg *config.Config, args []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.LoadConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return withPrefix(typed, list(cfg, args)), cobra.ShellCompDirectiveNoFileComp
	}
}

// withPrefix returns the entries that start with typed. It drops names with control characters and cleans descriptions.
func withPrefix(typed string, entries []string) (fit []string) {
	for _, entry := range entries {
		name, about, described := strings.Cut(entry, "\t")
		if !strings.HasPrefix(name, typed) || term.Plain(name) != name {
			continue
		}
		if described {
			name += "\t" + term.OneLine(about, term.PreviewColumns)
		}
		fit = append(fit, name)
	}
	return fit
}

// CompleteAgents lists the registered agents.
func CompleteAgents(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
	agents, err := store.Agents(ctx)
	for _, a := range agents {
		names = append(names, a.Name+"\t"+a.Description)
	}
	return names, err
}

func completeConversations(ctx context.Context, store *operate.Store, cmd *cobra.Command,
	_ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: FlagText(cmd, "agent"), User: FlagText(cmd, "user"),
		Limit: completionScan})
	for _, m := range messages {
		names = append(names, m.Conversation)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func completeUsers(ctx context.Context, store *operate.Store, cmd *cobra.Command,
	_ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: FlagText(cmd, "agent"), Limit: completionScan})
	for _, m := range messages {
		if m.User != "" {
			names = append(names, m.User)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Arguments maps a command's path to the completions of its arguments, in order.
type Arguments map[string][]cobra.CompletionFunc

// CompleteAll sets the completions of all commands below root: arguments by path, flags by name. more adds flags to the
// ones that all programs share.
func (s *Session) CompleteAll(root *cobra.Command, arguments Arguments, more map[string]cobra.CompletionFunc) {
	flags := map[string]cobra.CompletionFunc{
		"agent": s.FromDatabase(CompleteAgents), "conversation": s.FromDatabase(completeConversations),
		"user": s.FromDatabase(completeUsers),
	}
	maps.Copy(flags, more)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		list, named := arguments[cmd.CommandPath()]
		switch {
		case len(list) > 0:
			cmd.ValidArgsFunction = inOrder(list)
		case cmd.ValidArgsFunction == nil && !named && !cmd.HasSubCommands():
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if complete := flags[f.Name]; complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// inOrder completes the nth argument with the nth function, and nothing after the last.
func inOrder(list []cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(list) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list[len(args)](cmd, args, typed)
	}
}

// WriteCompletion writes the completion script of a program without subcommands.
func WriteCompletion(root *cobra.Command, to io.Writer, shell string) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(to, true)
	case "zsh":
		return root.GenZshCompletion(to)
	case "fish":
		return root.GenFishCompletion(to, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(to)
	default:
		return Misused("--completion is %q: it must be bash, zsh, fish or powershell", shell)
	}
}

// strictCommands makes every group of commands, including cobra's own, refuse unknown subcommands.
func strictCommands(root *cobra.Command, args []string) {
	if !root.HasSubCommands() {
		return
	}
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return Misused("unknown command %q for %q", strings.Join(args, " "), root.Name())
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	})
	root.InitDefaultCompletionCmd(args...)
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// FlagText returns the value of a flag, or "" if the command has no such flag.
func FlagText(cmd *cobra.Command, name string) string {
	if flag := cmd.Flags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
