package turnctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
	"turnkeeper/tools/mcp"
	"turnkeeper/tools/mcp/mcpdef"
)

func mcpCommand(s *shell.Session) *cobra.Command {
	list := listMCPCommand(s)
	cmd := &cobra.Command{
		Use: "mcp", Short: "List the tools of MCP servers, accept changes, and log in", Args: cobra.NoArgs,
		Long: `List the stored tool definitions of MCP servers, and accept changes. A tool is
pinned as a worker first saw it. If the server changes its definition, it is shown
as changed; with on_change: refuse its calls are refused until you accept the
change. Only login and logout connect to a server; doctor connects to all.

If a server requires a person to log in, one login serves all workers.`,
		Example: `  turnctl mcp list
  turnctl mcp pin files read_text_file
  turnctl mcp forget files
  turnctl mcp login tracker`,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, pinMCPCommand(s), forgetMCPCommand(s),
		loginMCPCommand(s), logoutMCPCommand(s), loginsMCPCommand(s), mcpKeyCommand(s))
	return cmd
}

func listMCPCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list [SERVER]", Short: "List tools with their effects and hashes", Args: cobra.MaximumNArgs(1),
		Example: `  turnctl mcp list
  turnctl mcp list files -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithDatabase(cmd.Context(), func(cfg *config.Config, db *database.Database) error {
				found, err := db.Store.MCPTools(cmd.Context(), strings.Join(args, ""))
				if err != nil {
					return err
				}
				if err := warnOfLogins(cmd.Context(), s, cfg, db.Store, strings.Join(args, "")); err != nil {
					return err
				}
				view := func(t mcpdef.Tool) mcpToolView { return viewMCPTool(t, setup.MCPEffect(cfg, t)) }
				return s.Print(views.All(found, view), func() {
					if len(found) == 0 {
						s.Err.Line("no tools: a worker stores the definitions from its agents' MCP servers")
						return
					}
					showMCPTools(s.Out, cfg, found)
				})
			})
		},
	}
}

type mcpToolView struct {
	Server      string    `json:"server"`
	Tool        string    `json:"tool"`
	Name        string    `json:"name"` // as the model knows it
	State       string    `json:"state"`
	Effect      string    `json:"effect"`
	PinnedHash  string    `json:"pinned_hash"`
	PinnedAt    time.Time `json:"pinned_at"`
	Hash        string    `json:"hash"`
	SeenAt      time.Time `json:"seen_at"`
	Description string    `json:"description"`
	Schema      string    `json:"schema"`
}

func viewMCPTool(t mcpdef.Tool, effect turnkeeper.Effect) mcpToolView {
	return mcpToolView{
		Server: t.Server, Tool: t.Name, Name: mcpdef.ToolName(t.Server, t.Name), State: mcpState(t),
		Effect:     string(effect),
		PinnedHash: t.Pinned.Hash, PinnedAt: t.PinnedAt, Hash: t.Seen.Hash, SeenAt: t.SeenAt,
		Description: t.Seen.Description, Schema: t.Seen.Schema,
	}
}

// mcpState returns pinned, changed or gone.
func mcpState(t mcpdef.Tool) string {
	switch {
	case t.Gone:
		return "gone"
	case t.Changed():
		return "changed"
	}
	return "pinned"
}

func showMCPTools(s *term.Screen, cfg *config.Config, found []mcpdef.Tool) {
	t := term.NewTable("SERVER", "TOOL", "STATE", "EFFECT", "HASH", "DESCRIPTION")
	for _, tool := range found {
		state := term.Cell{Text: mcpState(tool), Tone: term.Dim}
		if tool.Gone || tool.Changed() {
			state = term.Cell{Text: mcpState(tool), Tone: term.Warned}
		}
		t.Add(tool.Server, term.OneLine(tool.Name, 64), state, string(setup.MCPEffect(cfg, tool)),
			term.Cut(tool.Seen.Hash, 13), term.OneLine(tool.Seen.Description, 60))
	}
	t.Print(s)
}

func pinMCPCommand(s *shell.Session) *cobra.Command {
	var hash string
	cmd := &cobra.Command{
		Use: "pin SERVER [TOOL]", Short: "Accept the current definition of a tool, or of all tools of a server",
		Args: cobra.RangeArgs(1, 2),
		Long: `Accept the last seen definitions: of one tool, or of all tools of a server.
Workers use them within a second of the next call. Check them first:
turnctl mcp list SERVER -o json.`,
		Example: `  turnctl mcp pin files
  turnctl mcp pin files read_text_file --hash 3f1c…`,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, tool := args[0], ""
			if len(args) > 1 {
				tool = args[1]
			}
			if hash != "" && tool == "" {
				return shell.Misused("--hash needs a TOOL: a hash belongs to one tool")
			}
			return changeMCP(cmd.Context(), s, server, tool, func(store *operate.Store) error {
				names, err := store.PinMCPTools(cmd.Context(), server, tool, hash)
				if err != nil {
					return err
				}
				return s.Print(append([]string{}, names...), func() {
					if len(names) == 0 {
						s.Out.Line("nothing to accept: no definition has changed, or none has that hash")
						return
					}
					s.Out.Line("accepted: %s", strings.Join(names, ", "))
				})
			})
		},
	}
	cmd.Flags().StringVar(&hash, "hash", "",
		"accept only a definition with this full hash: the one you checked, not a newer one")
	return cmd
}

func forgetMCPCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "forget SERVER", Short: "Remove the stored tool definitions of a server", Args: shell.ExactArgs(1),
		Long: `Remove the stored tool definitions of a server. The next definitions that a worker
sees are pinned, as for a new server.`,
		Example: "  turnctl mcp forget files",
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMCP(cmd.Context(), s, args[0], "", func(store *operate.Store) error {
				n, err := store.ForgetMCPTools(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return s.Print(n, func() { s.Out.Line("removed: %s", term.Plural(int(n), "tool")) })
			})
		},
	}
}

// changeMCP calls change if definitions of the server, or of its tool, are stored.
func changeMCP(ctx context.Context, s *shell.Session, server, tool string, change func(*operate.Store) error) error {
	return s.WithDatabase(ctx, func(_ *config.Config, db *database.Database) error {
		kept, err := db.Store.MCPTools(ctx, server)
		if err != nil {
			return err
		}
		known := len(kept) > 0 && tool == ""
		for _, t := range kept {
			known = known || t.Name == tool
		}
		if !known {
			return fmt.Errorf("no tool definitions are stored for %s; see %s mcp list",
				strings.TrimSpace("the MCP server "+server+" "+tool), shell.Command("turnctl"))
		}
		return change(db.Store)
	})
}

// examineMCP reports which MCP servers of agents answer.
func examineMCP(d *diagnosis.Report, reports []setup.MCPReport) {
	for _, r := range reports {
		name := "MCP server " + r.Server
		if r.Err != nil {
			d.Add(diagnosis.Warn, name, r.Where+": "+r.Err.Error(), adviceOf(r.Err))
			continue
		}
		d.Add(diagnosis.OK, name, fmt.Sprintf("%s: %s", r.Where, term.Plural(r.Tools, "tool")), "")
		for _, lack := range r.Lacks {
			d.Add(diagnosis.Warn, name, lack, "correct the agent's mcp_servers")
		}
	}
}

func adviceOf(err error) string {
	auth, ok := errors.AsType[*mcp.AuthError](err)
	switch {
	case ok && auth.Login != "":
		return fmt.Sprintf("calls of its tools fail until someone logs in: %s mcp login %s",
			shell.Command("turnctl"), auth.Login)
	case ok:
		return "calls of its tools fail until it has a token; check oauth in its settings"
	}
	return "calls of its tools fail until it answers; check its settings, and its standard error in the worker's log (log_level debug)"
}

// examinePins reports definitions that differ from the pinned ones.
func examinePins(ctx context.Context, d *diagnosis.Report, cfg *config.Config, store *operate.Store) {
	kept, err := store.MCPTools(ctx, "")
	if err != nil {
		d.Add(diagnosis.Fail, "MCP tools", err.Error(), "")
		return
	}
	for _, t := range kept {
		if _, configured := cfg.MCPServers[t.Server]; !configured || t.Gone || !t.Changed() {
			continue
		}
		found := fmt.Sprintf("the definition of %s differs from the pinned one", mcpdef.ToolName(t.Server, t.Name))
		if cfg.MCPServers[t.Server].RefuseChange {
			found += ", and its calls are refused"
		}
		d.Add(diagnosis.Warn, "MCP tools", found, fmt.Sprintf(
			"check it (%s mcp list %s -o json), then accept it: %s mcp pin %s %s",
			shell.Command("turnctl"), t.Server, shell.Command("turnctl"), t.Server, t.Name))
	}
}
