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
