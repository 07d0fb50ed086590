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

// completionTime bounds how long a shell waits for names that are in the database.
const completionTime = time.Second

// CompletionEntries is the maximum number of turns or messages that completion offers, newest first.
const CompletionEntries = 50

// completionScan is the number of messages whose conversations completion offers.
const completionScan = 100

// A completer lists what may stand at a place of a command line, each with a tab and a description where there is one.
type completer func(ctx context.Context, store *operate.Store, cmd *cobra.Command, args []string) ([]string, error)

// FromDatabase completes by what the database has: with nothing, and without a word, where it does not answer soon. A private
// one is not started for that.
func (s *Session) FromDatabase(list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.LoadConfig()
		if err != nil || !cfg.DatabaseURL.IsSet() && !pgdev.Runs(cfg.DataDir) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		db, err := database.Open(ctx, cfg, zap.NewNop(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = db.Close(ctx) }()
		found, _ := list(ctx, db.Store, cmd, args)
		return begunBy(typed, found), cobra.ShellCompDirectiveNoFileComp
	}
}

// FromSettings completes by what the settings and the agents folder have.
func (s *Session) FromSettings(list func(cfg *config.Config, args []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.LoadConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return begunBy(typed, list(cfg, args)), cobra.ShellCompDirectiveNoFileComp
	}
}

// begunBy are the entries that begin with what was typed, without control characters but the tab before a description.
func begunBy(typed string, entries []string) (fit []string) {
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

// CompleteAgents lists the agents that are registered.
func CompleteAgents(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	agents, err := store.Agents(ctx)
	for _, a := range agents {
		names = append(names, a.Name+"\t"+a.Description)
	}
	return names, err
}

func completeConversations(ctx context.Context, store *operate.Store, cmd *cobra.Command, _ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: FlagText(cmd, "agent"), Limit: completionScan})
	for _, m := range messages {
		names = append(names, m.Conversation)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Arguments is how the arguments of commands are completed, by the command's path, in their order.
type Arguments map[string][]cobra.CompletionFunc

// CompleteAll has every command below root complete what it can name: its arguments by the list, its flags by their name, of
// which more has those that not every program has.
func (s *Session) CompleteAll(root *cobra.Command, arguments Arguments, more map[string]cobra.CompletionFunc) {
	flags := map[string]cobra.CompletionFunc{
		"agent": s.FromDatabase(CompleteAgents), "conversation": s.FromDatabase(completeConversations),
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

// inOrder completes each argument in its own way, and nothing after the last.
func inOrder(list []cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(list) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list[len(args)](cmd, args, typed)
	}
}

// WriteCompletion writes the script by which a shell completes a program without commands.
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

// strictCommands has every group of commands refuse a command that it does not have, cobra's own groups included.
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

// FlagText is what a flag was given; empty: there is no such flag, or it was not given.
func FlagText(cmd *cobra.Command, name string) string {
	if flag := cmd.Flags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
