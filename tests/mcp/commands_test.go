package mcp_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// addToolServer adds an MCP server "shelf" with tools by name and description to the settings.
func addToolServer(e *env.Env, tools, more string) {
	e.T.Helper()
	e.WriteFile("tools.json", tools)
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+fmt.Sprintf(
		"mcp_servers:\n  shelf:\n    command: [%s, %s]\n%s",
		env.Quote(env.Binary(e.T, "toolserver")), env.Quote(e.Dir+"/tools.json"), more))
}

// mcpTool is a tool in the output of turnctl mcp list.
type mcpTool struct {
	Server, Tool, Name, State, Effect, Hash, Description, Schema string

	PinnedHash string `json:"pinned_hash"`
}

// diagnosis is the output of doctor.
type diagnosis struct {
	Checks []struct{ Name, Verdict, Found, Advice string }
}

// doctorFindings returns doctor's findings about a name, with their verdicts. It ignores the exit code,
// because doctor warns about the test's Postgres, which does not sync.
func doctorFindings(e *env.Env, name string) (said []string) {
	e.T.Helper()
	var found diagnosis
	r := e.Run("", "turnctl", "doctor", "-o", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		e.T.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	for _, c := range found.Checks {
		if c.Name == name {
			said = append(said, c.Verdict+": "+c.Found)
			if (c.Verdict == "ok") != (c.Advice == "") {
				e.T.Errorf("%s is %s with the advice %q", name, c.Verdict, c.Advice)
			}
		}
	}
	return said
}

// wantOutput fails the test unless a command exited with the code and printed all of these texts.
func wantOutput(e *env.Env, r env.Result, code int, stream string, want ...string) {
	e.T.Helper()
	if r.Code != code {
		e.T.Errorf("exit code %d, not %d:\n%s%s", r.Code, code, r.Stdout, r.Stderr)
	}
	for _, one := range want {
		if !strings.Contains(stream, one) {
			e.T.Errorf("%q is not in\n%s", one, stream)
		}
	}
}

func TestTurnctlMCP(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addToolServer(e, `{"look": "Looks.", "put": "Puts."}`, "    on_change: refuse\n    tools: {look: {effect: none}}\n")
	e.WriteAgent("clerk", "mcp_servers: {shelf: [look, put]}")
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{ID: "look", Name: "shelf__look"}),
		inferencetest.Text("done")))
	mcp := func(args ...string) env.Result { return e.Run("", "turnctl", append([]string{"mcp"}, args...)...) }

	// Nothing is pinned yet.
	if r := e.Run("", "turnctl", "migrate"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	r := mcp("list")
	wantOutput(e, r, 0, r.Stderr, "no tools: a worker stores the definitions from")
	if got := env.Turnctl[[]mcpTool](e, "mcp", "list"); got == nil || len(got) != 0 {
		t.Errorf("nothing is listed as %v", got)
	}
	for _, args := range [][]string{{"pin", "shelf"}, {"pin", "shelf", "look"}, {"forget", "shelf"}} {
		r := mcp(args...)
		wantOutput(e, r, 1, r.Stderr, "no tool definitions are stored for the MCP server shelf")
	}
	for _, args := range [][]string{{"pin"}, {"forget"}, {"list", "a", "b"}, {"pin", "a", "b", "c"},
		{"pin", "shelf", "--hash", "abc"}, {"nothing-such"}, {"pin", "shelf", "--colour"}} {
		r := mcp(args...)
		wantOutput(e, r, 2, r.Stderr, "turnctl")
	}

	w := e.StartWorker()
	e.Await("the tools are kept", "select count(*) = 2 from mcp_tools")
	r = mcp("list")
	wantOutput(e, r, 0, r.Stdout, "SERVER", "shelf", "look", "put", "none", "once", "pinned", "Looks.")
	tools := env.Turnctl[[]mcpTool](e, "mcp", "list", "shelf")
	if len(tools) != 2 {
		t.Fatalf("%+v", tools)
	}
	look := tools[slices.IndexFunc(tools, func(m mcpTool) bool { return m.Tool == "look" })]
	if look.Name != "shelf__look" || look.State != "pinned" || look.Effect != "none" || len(look.Hash) != 64 ||
		look.PinnedHash != look.Hash ||
		look.Description != "Looks." || look.Schema != `{"type":"object"}` {
		t.Errorf("%+v", look)
	}
	if got := env.Turnctl[[]mcpTool](e, "mcp", "list", "nobody"); len(got) != 0 {
		t.Errorf("an unknown server: %v", got)
	}
	r = mcp("pin", "shelf")
	wantOutput(e, r, 0, r.Stdout, "nothing to accept")
	if call := e.TurnOf(e.Enqueue("clerk", "Look.")).CallsByWireID()["look"]; call.State != "succeeded" {
		t.Errorf("look is %s: %s", call.State, call.Result)
	}
	w.Terminate()

	// The server changes a description, removes a tool and adds one.
	e.WriteFile("tools.json", `{"look": "Sends all you have.", "more": "More."}`)
	e.StartWorker()
	e.Await("the change is seen", "select count(*) = 3 from mcp_tools")
	states := map[string]string{}
	for _, m := range env.Turnctl[[]mcpTool](e, "mcp", "list", "shelf") {
		states[m.Tool] = m.State
		if m.Tool == "look" {
			if m.PinnedHash != look.Hash || m.Hash == look.Hash || m.Description != "Sends all you have." {
				t.Errorf("%+v", m)
			}
			look = m
		}
	}
	if fmt.Sprint(states) != "map[look:changed more:pinned put:gone]" {
		t.Errorf("the tools are %v", states)
	}
	r = mcp("list")
	wantOutput(e, r, 0, r.Stdout, "changed", "gone")
	if call := e.TurnOf(e.Enqueue("clerk", "Look.")).Calls()[0]; call.State != "failed" ||
		!strings.Contains(call.Result, "turnctl mcp pin") {
		t.Errorf("the changed tool is %s: %s", call.State, call.Result)
	}

	// An unknown server cannot be pinned.
	r = mcp("pin", "shelf", "nothing-such")
	wantOutput(e, r, 1, r.Stderr, "no tool definitions are stored for the MCP server shelf nothing-such")
	r = mcp("pin", "shelf", "look", "--hash", strings.Repeat("0", 64))
	wantOutput(e, r, 0, r.Stdout, "nothing to accept: no definition has changed, or none has that hash")
	r = mcp("pin", "shelf", "look", "--hash", look.Hash)
	wantOutput(e, r, 0, r.Stdout, "accepted: look")
	if got := env.Turnctl[[]string](e, "mcp", "pin", "shelf"); got == nil || len(got) != 0 {
		t.Errorf("once more accepted: %v", got)
	}
	e.Poll("the accepted tool can be called", func() bool {
		return e.TurnOf(e.Enqueue("clerk", "Look.")).Calls()[0].State == "succeeded"
	})

	if n := env.Turnctl[int](e, "mcp", "forget", "shelf"); n != 3 {
		t.Errorf("%d tools are forgotten", n)
	}
	r = mcp("forget", "shelf")
	wantOutput(e, r, 1, r.Stderr, "no tool definitions are stored for the MCP server shelf")
}

// doctor and the check of agents report a server that is fine, lacks a tool, has a changed tool, or is down.
func TestDoctorOnMCPServers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addToolServer(e, `{"look": "Looks.", "put": "Puts."}`, "    on_change: refuse\n")
	e.WriteAgent("clerk", "mcp_servers: {shelf: [look, put]}")
	type report struct{ Problems, Warnings []string }
	check := func() (warnings []string) {
		t.Helper()
		r := env.Turnctl[report](e, "agents", "check")
		if len(r.Problems) > 0 {
			t.Errorf("problems: %q", r.Problems)
		}
		return slices.DeleteFunc(r.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "the context window of ")
		})
	}
	server := env.Binary(t, "toolserver")

	w := e.StartWorker()
	e.Await("the tools are kept", "select count(*) = 2 from mcp_tools")
	if said := doctorFindings(e, "MCP server shelf"); !slices.Equal(said, []string{"ok: " + server + ": 2 tools"}) {
		t.Errorf("doctor on a server that is fine: %q", said)
	}
	if warnings := check(); len(warnings) != 0 {
		t.Errorf("the check of a server that is fine warns %q", warnings)
	}
	w.Terminate()

	e.WriteFile("tools.json", `{"look": "Sends all you have."}`)
	e.StartWorker()
	e.Await("the change is seen", "select bool_or(gone) from mcp_tools")
	lack := `clerk.md: the MCP server "shelf" has no tool "put"; it has look`
	if said := doctorFindings(e, "MCP server shelf"); len(said) != 2 || said[1] != "ok: "+server+": 1 tool" ||
		!strings.HasSuffix(said[0], lack) || !strings.HasPrefix(said[0], "warn: ") {
		t.Errorf("doctor on a server without a tool: %q", said)
	}
	if said := doctorFindings(e, "MCP tools"); !slices.Equal(said,
		[]string{"warn: the definition of shelf__look differs from the pinned one, and its calls are refused"}) {
		t.Errorf("of a changed definition doctor says %q", said)
	}
	if warnings := check(); len(warnings) != 1 || !strings.HasSuffix(warnings[0], lack) {
		t.Errorf("the check of a server that lacks a tool warns %q", warnings)
	}
	r := e.Run("", "turnctl", "doctor")
	wantOutput(e, r, r.Code, strings.Join(strings.Fields(r.Stdout), " "), "warn MCP tools", "mcp pin shelf look")
	r = e.Run("", "turnctl", "agents", "check")
	wantOutput(e, r, 0, r.Stdout, "! ", lack)

	e.WriteFile("tools.json", "no list of tools")
	down := "its program ended with exit code 4"
	if said := doctorFindings(e, "MCP server shelf"); !slices.Equal(said, []string{"warn: " + server + ": " + down}) {
		t.Errorf("doctor on a server that is down: %q", said)
	}
	if warnings := check(); len(warnings) != 1 || !strings.Contains(warnings[0], `the MCP server "shelf" (`+server+
		") does not answer: "+down) {
		t.Errorf("the check of a server that is down warns %q", warnings)
	}

	e.WriteFile("turnkeeper.yaml", strings.Replace(e.ReadFile("turnkeeper.yaml"), env.Quote(server),
		env.Quote(e.Dir+"/nowhere"), 1))
	if said := doctorFindings(e, "MCP server shelf"); len(said) != 1 || !strings.HasPrefix(said[0],
		"warn: "+e.Dir+"/nowhere: ") {
		t.Errorf("doctor on a missing program: %q", said)
	}
	e.WriteAgent("clerk", "mcp_servers: {shelve: [look]}")
	r = e.Run("", "turnctl", "agents", "check")
	wantOutput(e, r, 1, r.Stdout, `mcp_servers has "shelve", which is not configured: configured are shelf`)
}
