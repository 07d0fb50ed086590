package turnctl

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// completeCommands sets the completions of all commands.
func completeCommands(s *shell.Session, root *cobra.Command) {
	turns, messages := s.FromDatabase(completeTurns), s.FromDatabase(completeMessages)
	schedules, webhooks, servers := s.FromDatabase(completeSchedules), s.FromDatabase(completeWebhooks),
		s.FromDatabase(completeMCPServers)
	asked, agents := s.FromDatabase(completeAsks), s.FromDatabase(shell.CompleteAgents)
	s.CompleteAll(root, shell.Arguments{
		"turnctl asks show": {asked}, "turnctl asks approve": {asked}, "turnctl asks deny": {asked},
		"turnctl asks answer": {asked},
		"turnctl show":        {turns}, "turnctl explain": {turns}, "turnctl events": {turns},
		"turnctl cancel": {turns},
		"turnctl finish": {turns},
		"turnctl retry":  {messages}, "turnctl output": {s.FromDatabase(completeOutputs)},
		"turnctl agents show": {agents}, "turnctl agents retire": {agents}, "turnctl agents restore": {agents},
		"turnctl set-aside retry": {s.FromDatabase(completeAsideKinds), s.FromDatabase(completeAsideIDs)},
		"turnctl schedules run":   {schedules},
		"turnctl schedules pause": {schedules}, "turnctl schedules resume": {schedules},
		"turnctl schedules set": {schedules}, "turnctl schedules reset": {schedules},
		"turnctl webhooks show": {webhooks}, "turnctl webhooks redeliver": {webhooks},
		"turnctl webhooks pause":  {webhooks},
		"turnctl webhooks resume": {webhooks}, "turnctl webhooks remove": {webhooks},
		"turnctl tokens revoke": {s.FromDatabase(completeTokens)},
		"turnctl mcp list":      {servers}, "turnctl mcp pin": {servers, s.FromDatabase(completeMCPTools)},
		"turnctl mcp forget":   {servers},
		"turnctl mcp login":    {s.FromSettings(serversOfSettings)},
		"turnctl mcp logout":   {s.FromSettings(serversOfSettings)},
		"turnctl tools call":   {s.FromSettings(agentsOfFolder), s.FromSettings(toolsOfAgent)},
		"turnctl agents check": {}, // the shell completes files and folders
	}, map[string]cobra.CompletionFunc{
		"agents": agents, "scopes": cobra.FixedCompletions(views.Scopes(), cobra.ShellCompDirectiveNoFileComp),
		"message": messages, "turn": turns,
		"error-class": cobra.FixedCompletions(views.ErrorClasses(), cobra.ShellCompDirectiveNoFileComp),
	})
}

// Completions from the database.

func completeTurns(ctx context.Context, store *operate.Store, cmd *cobra.Command, _ []string) ([]string, error) {
	turns, err := store.Turns(ctx, operate.Page{Agent: shell.FlagText(cmd, "agent"), Limit: shell.CompletionEntries})
	names := []string{"latest\tthe newest turn"}
	for _, t := range turns {
		names = append(names, fmt.Sprintf("%d\t%s, %s", t.ID, t.Agent, t.State))
	}
	return names, err
}

func completeMessages(ctx context.Context, store *operate.Store, cmd *cobra.Command,
	_ []string) (names []string, err error) {
	messages, err := store.Messages(ctx, operate.Page{Agent: shell.FlagText(cmd, "agent"),
		Limit: shell.CompletionEntries})
	for _, m := range messages {
		names = append(names, fmt.Sprintf("%d\t%s, %s", m.ID, m.Agent, m.State))
	}
	return names, err
}

func completeSchedules(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
	schedules, err := store.Schedules(ctx)
	for _, sched := range schedules {
		names = append(names, sched.Agent+"/"+sched.Name+"\t"+sched.InForce())
	}
	return names, err
}

// completeOutputs lists the stored results of the newest turns.
func completeOutputs(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
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

func completeWebhooks(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
	webhooks, err := store.Webhooks(ctx)
	for _, w := range webhooks {
		names = append(names, w.Name+"\t"+w.Origin)
	}
	return names, err
}

func completeTokens(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
	tokens, err := store.Tokens(ctx)
	for _, t := range tokens {
		names = append(names, t.Name)
	}
	return names, err
}

func completeAsideKinds(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (kinds []string, err error) {
	rows, err := store.Aside(ctx)
	for _, row := range rows {
		kinds = append(kinds, string(row.Kind))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), err
}

func completeAsideIDs(ctx context.Context, store *operate.Store, _ *cobra.Command,
	args []string) (ids []string, err error) {
	rows, err := store.Aside(ctx)
	for _, row := range rows {
		if string(row.Kind) == args[0] && row.ID != "" {
			ids = append(ids, row.ID+"\t"+row.Error)
		}
	}
	return ids, err
}

func completeMCPServers(ctx context.Context, store *operate.Store, _ *cobra.Command,
	_ []string) (names []string, err error) {
	found, err := store.MCPTools(ctx, "")
	for _, t := range found {
		names = append(names, t.Server)
	}
	return slices.Compact(names), err
}

func completeMCPTools(ctx context.Context, store *operate.Store, _ *cobra.Command,
	args []string) (names []string, err error) {
	found, err := store.MCPTools(ctx, args[0])
	for _, t := range found {
		names = append(names, t.Name)
	}
	return names, err
}

// Completions from the settings.

func agentsOfFolder(cfg *config.Config, _ []string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(cfg.AgentsDir, "*.md"))
	for _, file := range files {
		if d := agentdef.Read(file).Definition; d != nil {
			names = append(names, d.Name+"\t"+d.Description)
		}
	}
	return names
}

func toolsOfAgent(cfg *config.Config, args []string) []string {
	return setup.CallableTools(cfg, args[0])
}

func serversOfSettings(cfg *config.Config, _ []string) (names []string) {
	for name := range cfg.MCPServers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
