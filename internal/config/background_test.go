package config_test

import (
	"strings"
	"testing"

	"turnkeeper/internal/config"
)

func TestBackgroundOfToolsFromTheFile(t *testing.T) {
	file(t, `
tools:
  unsaid: {description: Counts., command: [count]}
  may: {description: Counts., command: [count], background: true}
  must_not: {description: Counts., command: [count], effect: none, background: false}
mcp_servers:
  desk:
    url: http://127.0.0.1:1/mcp
    background: true
    tools:
      print: {background: false}
      scan: {effect: none}
`)
	got, err := config.Load(config.LoadOptions{Env: env(nil)})
	if err != nil {
		t.Fatal(err)
	}
	said := func(b *bool) string {
		switch {
		case b == nil:
			return "unsaid"
		case *b:
			return "true"
		}
		return "false"
	}
	desk := got.MCPServers["desk"]
	all := []string{
		said(got.Tools["unsaid"].Background), said(got.Tools["may"].Background), said(got.Tools["must_not"].Background),
		said(desk.Background), said(desk.Tools["print"].Background), said(desk.Tools["scan"].Background),
	}
	if want := "unsaid true false true false unsaid"; strings.Join(all, " ") != want {
		t.Errorf("got %q, want %q", all, want)
	}
}

func TestAServerThatMayAskAPersonIsNotInTheBackground(t *testing.T) {
	file(t, `
mcp_servers:
  desk:
    url: http://127.0.0.1:1/mcp
    elicitation: ask
    background: true
    tools:
      print: {background: true}
      scan: {background: false}
  other: {url: http://127.0.0.1:1/mcp, elicitation: defaults, background: true}
  plain: {url: http://127.0.0.1:1/mcp}
`)
	_, err := config.Load(config.LoadOptions{Env: env(nil)})
	for _, want := range []string{"mcp_servers.desk.background: true excludes",
		"mcp_servers.desk.tools.print.background: true excludes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if err != nil && strings.Count(err.Error(), "excludes") != 2 {
		t.Errorf("got %v", err)
	}
	file(t, "mcp_servers: {plain: {url: \"http://127.0.0.1:1/mcp\"}}")
	if got, err := config.Load(config.LoadOptions{Env: env(nil)}); err != nil ||
		got.MCPServers["plain"].Elicitation != "decline" {
		t.Errorf("%v, %v", got, err)
	}
}
