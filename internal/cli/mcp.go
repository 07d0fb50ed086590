package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
	"turnkeeper/tools/mcp"
)

func (s *session) mcpCommand() *cobra.Command {
	list := s.listMCPCommand()
	cmd := &cobra.Command{
		Use: "mcp", Short: "List the tools of MCP servers, accept changes of them, and log in", Args: cobra.NoArgs,
		Long: `List what is kept of the tools of MCP servers, and accept changes. A tool is pinned
as it was when a worker saw it first. When the server says something else of it
since, it is shown as changed; with on_change: refuse its calls are refused until
the change is accepted. Only login and logout ask a server here; doctor asks all.

Where a server wants a person to log in, one does so once, for all workers.`,
		Example: `  turnctl mcp list
  turnctl mcp pin files read_text_file
  turnctl mcp forget files
  turnctl mcp login tracker`,
		RunE: list.RunE,
	}
	cmd.AddCommand(list, s.pinMCPCommand(), s.forgetMCPCommand(),
		s.loginMCPCommand(), s.logoutMCPCommand(), s.loginsMCPCommand(), s.mcpKeyCommand())
	return cmd
}

func (s *session) listMCPCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list [SERVER]", Short: "List tools with their effects and hashes", Args: cobra.MaximumNArgs(1),
		Example: `  turnctl mcp list
  turnctl mcp list files -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withDatabase(cmd.Context(), func(cfg *config.Config, db *app.Database) error {
				found, err := db.Store.MCPTools(cmd.Context(), strings.Join(args, ""))
				if err != nil {
					return err
				}
				if err := s.warnOfLogins(cmd.Context(), cfg, db.Store, strings.Join(args, "")); err != nil {
					return err
				}
				view := func(t turnkeeper.MCPTool) mcpToolView { return viewMCPTool(t, app.MCPEffect(cfg, t)) }
				return s.print(views.All(found, view), func() {
					if len(found) == 0 {
						s.err.line("no tools: a worker keeps what the MCP servers of its agents say of theirs")
						return
					}
					showMCPTools(s.out, cfg, found)
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

func viewMCPTool(t turnkeeper.MCPTool, effect turnkeeper.Effect) mcpToolView {
	return mcpToolView{
		Server: t.Server, Tool: t.Name, Name: turnkeeper.MCPToolName(t.Server, t.Name), State: mcpState(t), Effect: string(effect),
		PinnedHash: t.Pinned.Hash, PinnedAt: t.PinnedAt, Hash: t.Seen.Hash, SeenAt: t.SeenAt,
		Description: t.Seen.Description, Schema: t.Seen.Schema,
	}
}

// mcpState is pinned, changed or gone.
func mcpState(t turnkeeper.MCPTool) string {
	switch {
	case t.Gone:
		return "gone"
	case t.Changed():
		return "changed"
	}
	return "pinned"
}

func showMCPTools(s *screen, cfg *config.Config, found []turnkeeper.MCPTool) {
	t := newTable("SERVER", "TOOL", "STATE", "EFFECT", "HASH", "DESCRIPTION")
	for _, tool := range found {
		state := cell{mcpState(tool), dim}
		if tool.Gone || tool.Changed() {
			state = cell{mcpState(tool), warned}
		}
		t.add(tool.Server, oneLine(tool.Name, 64), state, string(app.MCPEffect(cfg, tool)), cut(tool.Seen.Hash, 13), oneLine(tool.Seen.Description, 60))
	}
	t.print(s)
}

func (s *session) pinMCPCommand() *cobra.Command {
	var hash string
	cmd := &cobra.Command{
		Use: "pin SERVER [TOOL]", Short: "Accept what a server says of a tool, or of all its tools, now", Args: cobra.RangeArgs(1, 2),
		Long: `Accept the definitions that were seen last: of one tool, or of all of a server.
Workers use them within a second of the next call. Look at them first:
turnctl mcp list SERVER -o json.`,
		Example: `  turnctl mcp pin files
  turnctl mcp pin files read_text_file --hash 3f1c…`,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, tool := args[0], ""
			if len(args) > 1 {
				tool = args[1]
			}
			if hash != "" && tool == "" {
				return usageError("--hash is that of one tool: name it")
			}
			return s.changeMCP(cmd.Context(), server, tool, func(store *operate.Store) error {
				names, err := store.PinMCPTools(cmd.Context(), server, tool, hash)
				if err != nil {
					return err
				}
				return s.print(append([]string{}, names...), func() {
					if len(names) == 0 {
						s.out.line("nothing to accept: no definition has changed, or none has that hash")
						return
					}
					s.out.line("accepted: %s", strings.Join(names, ", "))
				})
			})
		},
	}
	cmd.Flags().StringVar(&hash, "hash", "", "accept only a definition with this hash, the whole of it: what was looked at, and nothing newer")
	return cmd
}

func (s *session) forgetMCPCommand() *cobra.Command {
	return &cobra.Command{
		Use: "forget SERVER", Short: "Remove what is kept of a server's tools", Args: exactArgs(1),
		Long: `Remove what is kept of a server's tools. What a worker sees of them next is pinned
anew, as of a server that was never seen.`,
		Example: "  turnctl mcp forget files",
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.changeMCP(cmd.Context(), args[0], "", func(store *operate.Store) error {
				n, err := store.ForgetMCPTools(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return s.print(n, func() { s.out.line("removed: %s", plural(int(n), "tool")) })
			})
		},
	}
}

// changeMCP changes what is kept of a server's tools, if anything is.
func (s *session) changeMCP(ctx context.Context, server, tool string, change func(*operate.Store) error) error {
	return s.withDatabase(ctx, func(_ *config.Config, db *app.Database) error {
		kept, err := db.Store.MCPTools(ctx, server)
		if err != nil {
			return err
		}
		known := len(kept) > 0 && tool == ""
		for _, t := range kept {
			known = known || t.Name == tool
		}
		if !known {
			return fmt.Errorf("nothing is kept of %s; see %s mcp list", strings.TrimSpace("the MCP server "+server+" "+tool), command("turnctl"))
		}
		return change(db.Store)
	})
}

// examineMCP asks the MCP servers of agents for their tools.
func examineMCP(d *diagnosis, reports []app.MCPReport) {
	for _, r := range reports {
		name := "MCP server " + r.Server
		if r.Err != nil {
			d.add(checkWarn, name, r.Where+": "+r.Err.Error(), adviceOf(r.Err))
			continue
		}
		d.add(checkOK, name, fmt.Sprintf("%s: %s", r.Where, plural(r.Tools, "tool")), "")
		for _, lack := range r.Lacks {
			d.add(checkWarn, name, lack, "correct the agent's mcp_servers")
		}
	}
}

func adviceOf(err error) string {
	auth, ok := errors.AsType[*mcp.AuthError](err)
	switch {
	case ok && auth.Login != "":
		return fmt.Sprintf("calls of its tools fail until somebody has logged in: %s mcp login %s", command("turnctl"), auth.Login)
	case ok:
		return "calls of its tools fail until it has a token; look at oauth in its settings"
	}
	return "calls of its tools fail until it answers; look at its settings, and at its standard error in the worker's log (log_level debug)"
}

// examinePins looks for definitions that are not the pinned ones.
func examinePins(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store) {
	kept, err := store.MCPTools(ctx, "")
	if err != nil {
		d.add(checkFail, "MCP tools", err.Error(), "")
		return
	}
	for _, t := range kept {
		if _, configured := cfg.MCPServers[t.Server]; !configured || t.Gone || !t.Changed() {
			continue
		}
		found := fmt.Sprintf("the definition of %s is not the pinned one", turnkeeper.MCPToolName(t.Server, t.Name))
		if cfg.MCPServers[t.Server].RefuseChange {
			found += ", and its calls are refused"
		}
		d.add(checkWarn, "MCP tools", found, fmt.Sprintf("look at it (%s mcp list %s -o json), then accept it: %s mcp pin %s %s",
			command("turnctl"), t.Server, command("turnctl"), t.Server, t.Name))
	}
}
