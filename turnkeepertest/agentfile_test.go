package turnkeepertest_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
	"turnkeeper/tools/mcp/mcpdef"
	"turnkeeper/turnkeepertest"
)

// TestAnAgentsFileAsItIs runs an agent's file as a worker does: with built-in tools,
// readers that it lists, and tools of MCP servers, which are fakes here.
func TestAnAgentsFileAsItIs(t *testing.T) {
	const agent = `---
tools: [clock, get_continuation]
mcp_servers:
  tracker: [search, issue.close]
---
You close issues.
`
	ledger := &turnkeepertest.Ledger{}
	search := tools.Func(tools.Spec{Name: mcpdef.ToolName("tracker", "search"), Description: "Searches.",
		Effect: turnkeeper.EffectNone},
		func(context.Context, struct{}) (string, error) { return "issue 7", nil })
	closing := tools.New(tools.Spec{Name: mcpdef.ToolName("tracker", "issue.close"), Description: "Closes.",
		Effect: turnkeeper.EffectKeyed},
		func(ctx context.Context, call tools.Call, _ struct{}) (tools.Result, error) {
			ledger.Do(ctx, call.IdempotencyKey, "closing of 7")
			return tools.Result{Text: "closed"}, nil
		})
	scenario := turnkeepertest.Scenario{
		Agent: agent, Tools: append(builtin.All(builtin.Deps{}), search, closing),
		Talk: []turnkeepertest.Exchange{{Say: "Close it.", Model: []turnkeepertest.Step{
			turnkeepertest.Calls(turnkeepertest.ToolCall("clock", ""), turnkeepertest.ToolCall("tracker__search", "")),
			turnkeepertest.Call(closing.Spec().Name, ""), turnkeepertest.Text("Closed."),
		}}},
	}
	r := turnkeepertest.Run(t, scenario, turnkeepertest.CrashAt(turnkeepertest.PointEffectAfter, 1))
	if shown := r.Calls("tracker__search")[0].Shown; shown != "issue 7" || ledger.Count("closing of 7") != 1 ||
		r.Reply() != "Closed." {
		t.Errorf("found %q, closed %d times, reply %q", shown, ledger.Count("closing of 7"), r.Reply())
	}

	scenario.Tools = builtin.All(builtin.Deps{})
	_, failures := try(t, func() turnkeepertest.Scenario { return scenario })
	want := []string{
		`turnkeepertest: the agent lists the tool "tracker__search", which is not among the scenario's Tools ` +
			`(there are: clock, read_file, list_files, write_file, http_get, patch_output, ask_person, get_continuation, get_tool_output, wait_for_tool_output)`}
	if diff := cmp.Diff(want, failures); diff != "" {
		t.Errorf("without a fake (-want +got):\n%s", diff)
	}
}
