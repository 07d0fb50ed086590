package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/pgdev"
	"turnkeeper/storage/operate"
)

// completionTime bounds how long a shell waits for names that are in the database.
const completionTime = time.Second

// completionEntries is the maximum number of turns or messages that completion offers, newest first.
const completionEntries = 50

// A completer lists what may stand at a place of a command line, each with a tab and a description where there is one.
type completer func(ctx context.Context, store *operate.Store, cmd *cobra.Command, args []string) ([]string, error)

// fromDatabase completes by what the database has: with nothing, and without a word, where it does not answer soon. A private
// one is not started for that.
func (s *session) fromDatabase(list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.loadConfig()
		if err != nil || !cfg.DatabaseURL.IsSet() && !pgdev.Runs(cfg.DataDir) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		db, err := app.Open(ctx, cfg, zap.NewNop(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = db.Close(ctx) }()
		found, _ := list(ctx, db.Store, cmd, args)
		return begunBy(typed, found), cobra.ShellCompDirectiveNoFileComp
	}
}

// fromSettings completes by what the settings and the agents folder have.
func (s *session) fromSettings(list func(cfg *config.Config, args []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		cfg, err := s.loadConfig()
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
		if !strings.HasPrefix(name, typed) || plain(name) != name {
			continue
		}
		if described {
			name += "\t" + oneLine(about, previewColumns)
		}
		fit = append(fit, name)
	}
	return fit
}

// What can be named, by the database.

func completeTurns(ctx context.Context, store *operate.Store, cmd *cobra.Command, _ []string) ([]string, error) {
	turns, err := store.Turns(ctx, operate.Page{Agent: flagText(cmd, "agent"), Limit: completionEntries})
	names := []string{"latest\tthe newest turn"}
	for _, t := range turns {
		names = append(names, fmt.Sprintf("%d\t%s, %s", t.ID, t.Agent, t.State))
	}
	return names, err
}

func completeMessages(ctx context.Context, store *operate.Store, cmd *cobra.Command, _ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: flagText(cmd, "agent"), Limit: completionEntries})
	for _, m := range messages {
		names = append(names, fmt.Sprintf("%d\t%s, %s", m.ID, m.Agent, m.State))
	}
	return names, err
}

func completeConversations(ctx context.Context, store *operate.Store, cmd *cobra.Command, _ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: flagText(cmd, "agent"), Limit: maxLimit})
	for _, m := range messages {
		names = append(names, m.Conversation)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func completeAgents(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	agents, err := store.Agents(ctx)
	for _, a := range agents {
		names = append(names, a.Name+"\t"+a.Description)
	}
	return names, err
}

func completeSchedules(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	schedules, err := store.Schedules(ctx)
	for _, sched := range schedules {
		names = append(names, sched.Agent+"/"+sched.Name+"\t"+sched.InForce())
	}
	return names, err
}

// completeOutputs lists the stored results of the newest turns.
func completeOutputs(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	const newest = 5
	turns, err := store.Turns(ctx, operate.Page{Limit: newest})
	for _, t := range turns {
		view, err := store.ViewTurn(ctx, t.ID)
		if err != nil {
			return names, err
		}
		for _, o := range view.Outputs {
			names = append(names, fmt.Sprintf("%s\tturn %d, call %s", o.ID, t.ID, o.Call))
		}
	}
	return names, err
}

func completeWebhooks(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	webhooks, err := store.Webhooks(ctx)
	for _, w := range webhooks {
		names = append(names, w.Name+"\t"+w.Origin)
	}
	return names, err
}

func completeTokens(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	tokens, err := store.Tokens(ctx)
	for _, t := range tokens {
		names = append(names, t.Name)
	}
	return names, err
}

func completeMCPServers(ctx context.Context, store *operate.Store, _ *cobra.Command, _ []string) (names []string, err error) {
	found, err := store.MCPTools(ctx, "")
	for _, t := range found {
		names = append(names, t.Server)
	}
	return slices.Compact(names), err
}

func completeMCPTools(ctx context.Context, store *operate.Store, _ *cobra.Command, args []string) (names []string, err error) {
	found, err := store.MCPTools(ctx, args[0])
	for _, t := range found {
		names = append(names, t.Name)
	}
	return names, err
}

// What can be named, by the settings.

func agentsOfFolder(cfg *config.Config, _ []string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(cfg.AgentsDir, "*.md"))
	for _, file := range files {
		if d := agentdef.Read(file).Definition; d != nil {
			names = append(names, d.Name+"\t"+d.Description)
		}
	}
	return names
}

func toolsOfAgent(cfg *config.Config, args []string) []string { return app.CallableTools(cfg, args[0]) }

func serversOfSettings(cfg *config.Config, _ []string) (names []string) {
	for name := range cfg.MCPServers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// completeAll has every command below root complete what it can name. Arguments by the command's path, in their order: the
// last one may be repeated where that is so; flags by their name.
func (s *session) completeAll(root *cobra.Command) {
	turns, messages, agents := s.fromDatabase(completeTurns), s.fromDatabase(completeMessages), s.fromDatabase(completeAgents)
	schedules, webhooks, servers := s.fromDatabase(completeSchedules), s.fromDatabase(completeWebhooks), s.fromDatabase(completeMCPServers)
	arguments := map[string][]cobra.CompletionFunc{
		"turnctl show": {turns}, "turnctl explain": {turns}, "turnctl events": {turns}, "turnctl cancel": {turns},
		"turnctl retry": {messages}, "turnctl output": {s.fromDatabase(completeOutputs)},
		"turnctl schedules pause": {schedules}, "turnctl schedules resume": {schedules}, "turnctl schedules set": {schedules}, "turnctl schedules reset": {schedules},
		"turnctl webhooks show": {webhooks}, "turnctl webhooks redeliver": {webhooks}, "turnctl webhooks pause": {webhooks},
		"turnctl webhooks resume": {webhooks}, "turnctl webhooks remove": {webhooks},
		"turnctl tokens revoke": {s.fromDatabase(completeTokens)},
		"turnctl mcp list":      {servers}, "turnctl mcp pin": {servers, s.fromDatabase(completeMCPTools)}, "turnctl mcp forget": {servers},
		"turnctl mcp login": {s.fromSettings(serversOfSettings)}, "turnctl mcp logout": {s.fromSettings(serversOfSettings)},
		"turnctl tools call": {s.fromSettings(agentsOfFolder), s.fromSettings(toolsOfAgent)},
	}
	flags := map[string]cobra.CompletionFunc{
		"agent": agents, "agents": agents, "message": messages, "turn": turns, "conversation": s.fromDatabase(completeConversations),
		"error-class": cobra.FixedCompletions(errorClasses(), cobra.ShellCompDirectiveNoFileComp),
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if list := arguments[cmd.CommandPath()]; list != nil {
			cmd.ValidArgsFunction = inOrder(list)
		} else if cmd.ValidArgsFunction == nil && cmd.CommandPath() != "turnctl agents check" && !cmd.HasSubCommands() {
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

// writeCompletion writes the script by which a shell completes a program without commands.
func writeCompletion(root *cobra.Command, to io.Writer, shell string) error {
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
		return usageError("--completion is %q: it must be bash, zsh, fish or powershell", shell)
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
				return usageError("unknown command %q for %q", strings.Join(args, " "), root.Name())
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

// flagText is what a flag was given; empty: there is no such flag, or it was not given.
func flagText(cmd *cobra.Command, name string) string {
	if flag := cmd.Flags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
