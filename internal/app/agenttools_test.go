package app_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/storage/storagetest"
)

// TestTheToolsOfAnAgentOutsideATurn opens the tools of an agent twice, and calls each: what it lists can be called if
// it needs no turn, with the limits of the settings, and what it does not list cannot.
func TestTheToolsOfAnAgentOutsideATurn(t *testing.T) {
	t.Parallel()
	db := storagetest.Reused(t, "")
	folder := t.TempDir()
	dir := filepath.Join(folder, "agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"desk.md": "---\nmodel: demo/script\ntools: [tell, get_tool_output, clock, slow, fail, ask_person, binary, read_file]\nroot: " + folder +
			"\nmcp_servers: {shop: [buy]}\nmax_tool_result_chars: 1000\n---\nHi.\n",
		"broken.md": "---\nlane: x\n---\nHi.\n",
		"plain.md":  "---\nmodel: demo/script\n---\nHi.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "note.txt"), []byte("a note"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.AgentsDir = dir
	cfg.MCPServers["shop"] = config.MCPServer{Name: "shop", URL: "http://127.0.0.1:1/mcp"}
	program := func(script string) config.Tool {
		return config.Tool{Description: "Runs.", Command: []string{"sh", "-c", script}, Effect: turnkeeper.EffectOnce}
	}
	for name, tool := range map[string]config.Tool{
		"tell": program("printf 'hush-hush-1 0123456789%.0s' $(seq 100)"), "slow": program("sleep 600"),
		"fail":   program("echo no >&2; exit 3"),
		"binary": program("printf '\\001\\002'"), "mine": program("echo mine"),
	} {
		tool.Name = name
		switch name {
		case "slow":
			tool.Timeout = 50 * time.Millisecond
		case "binary":
			tool.Output.MediaType = "image/png"
		}
		cfg.Tools[name] = tool
	}
	cfg.Learn("hush-hush-1")
	cfg.Missing = []config.MissingSecret{
		{Setting: "tools.tell.env.A.env", Problem: "of tell"}, {Setting: "mcp_servers.shop.headers.A.env",
			Problem: "of shop"}, {Setting: "mcp_login_key", Problem: "of logins"},
	}
	for range 2 { // opening changes nothing
		desk, err := setup.OpenAgentTools(t.Context(), cfg, db.Store, "desk", zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if desk.Name() != "desk" {
			t.Errorf("the agent is %s", desk.Name())
		}
		callsOfDesk(t, desk)
		desk.Close()
	}
	for name, want := range map[string][]string{
		"desk": {"ask_person", "binary", "clock", "fail", "read_file", "shop__buy", "slow", "tell"}, "plain": nil,
		"broken": nil, "nobody": nil,
	} {
		if got := setup.CallableTools(cfg, name); !slices.Equal(got, want) {
			t.Errorf("%s can call %q", name, got)
		}
	}
	for name, want := range map[string]string{
		"nobody": "not found: agent \"nobody\" has no file in " + dir + "; known agents: desk, plain",
		"broken": "lane is \"x\"",
	} {
		opened, err := setup.OpenAgentTools(t.Context(), cfg, db.Store, name, zap.NewNop())
		if opened != nil || err == nil || !strings.Contains(err.Error(), want) ||
			errors.Is(err, turnkeeper.ErrNotFound) == errors.Is(err, setup.ErrAgents) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain, err := setup.OpenAgentTools(t.Context(), cfg, db.Store, "plain", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Spec("tell"); err == nil || !strings.HasSuffix(err.Error(),
		`agent plain has no tool "tell" that can be called; it has none`) {
		t.Errorf("a tool of another agent: %v", err)
	}
}

func callsOfDesk(t *testing.T, desk *setup.AgentTools) {
	t.Helper()
	for name, want := range map[string]string{
		"mine":            `agent desk has no tool "mine" that can be called; it has`,
		"get_tool_output": `agent desk has no tool "get_tool_output" that can be called`,
		"clokc":           `agent desk has no tool "clokc" that can be called (did you mean "clock"?); it has`,
	} {
		if _, err := desk.Spec(name); !errors.Is(err, turnkeeper.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"tell": "of tell", "shop__buy": "of shop", "clock": "",
		"shop__look": ""} {
		if secret, ok := desk.Missing(name); secret.Problem != want || ok != (want != "") {
			t.Errorf("%s misses %v", name, secret)
		}
	}
	if _, fault := desk.Check("read_file", `{"path": 5}`); fault == "" {
		t.Error("wrong arguments are taken")
	}
	for name, want := range map[string]string{
		"clock":     "succeeded, cut false, ",
		"tell":      "succeeded, cut true, 2100 characters",
		"slow":      "timed_out, cut false, 41 characters",
		"fail":      "failed, cut false",
		"binary":    "succeeded, cut false, 0 characters",
		"read_file": "succeeded, cut false, 6 characters",
	} {
		arguments := "{}"
		if name == "read_file" {
			arguments = `{"path": "note.txt"}`
		}
		checked, fault := desk.Check(name, arguments)
		if fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
		end := desk.Call(context.Background(), name, checked)
		if got := fmt.Sprintf("%s, cut %t, %d characters", end.Outcome, end.Cut, end.Chars); !strings.HasPrefix(got,
			want) || strings.Contains(end.Shown, "hush") || end.Duration <= 0 || end.Duration > time.Minute {
			t.Errorf("%s: %s after %s: %s", name, got, end.Duration, end.Shown)
		}
	}
}
