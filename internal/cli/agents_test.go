package cli_test

import (
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/storage/storagetest"
)

// TestAgentsShow shows an agent with its models, tools, schedules and level, as a text and as the API does.
func TestAgentsShow(t *testing.T) {
	t.Parallel()
	env, db := somewhere(t)
	a := storagetest.Registration("clerk", false, turnkeeper.Schedule{Name: "daily", Cron: "@daily", TimeZone: "UTC",
		Conversation: "main", Message: "look"})
	a.Definition, a.Models,
		a.DayCalls = []byte("---\ntools: [list_files]\nmcp_servers: {crm: [search]}\n---\nYou are clerk.\n"),
		[]string{"p/large", "p/small"}, 100
	a.DefinitionHash = strings.Repeat("ab", 32)
	desk := storagetest.Registration("desk", false, turnkeeper.Schedule{Name: "hourly", Cron: "@hourly",
		TimeZone: "UTC", Conversation: "main", Message: "look"})
	if err := db.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{a, desk}); err != nil {
		t.Fatal(err)
	}
	shown := run(t, turnctl.Program(), env, "", "agents", "show", "clerk")
	for _, want := range []string{"agent clerk", "p/large, p/small", "list_files", "crm",
		"daily: @daily UTC", "normal"} {
		if !strings.Contains(shown.stdout, want) {
			t.Errorf("%q is not in %+v", want, shown)
		}
	}
	if strings.Contains(shown.stdout, "hourly") {
		t.Errorf("another agent's schedule is shown: %s", shown.stdout)
	}
	if got := run(t, turnctl.Program(), env, "", "agents", "show", "clerk", "-o", "json"); !strings.Contains(got.stdout,
		`"mcp_servers": [`) || !strings.Contains(got.stdout, `"left_percent": 100`) {
		t.Errorf("%+v", got)
	}
	if got := run(t, turnctl.Program(), env, "", "agents", "show", "nobody"); got.code != 3 ||
		!strings.Contains(got.stderr, "there is no agent") {
		t.Errorf("%+v", got)
	}
}
