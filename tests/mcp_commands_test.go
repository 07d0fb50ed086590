package tests_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// withToolServer declares an MCP server "shelf" with tools by name and description.
func (h *house) withToolServer(tools, more string) {
	h.t.Helper()
	h.write("tools.json", tools)
	h.write("turnkeeper.yaml", h.read("turnkeeper.yaml")+fmt.Sprintf("mcp_servers:\n  shelf:\n    command: [%s, %s]\n%s",
		quote(binary(h.t, "toolserver")), quote(h.dir+"/tools.json"), more))
}

// mcpTool is what turnctl mcp list tells of a tool.
type mcpTool struct {
	Server, Tool, Name, State, Effect, Hash, Description, Schema string

	PinnedHash string `json:"pinned_hash"`
}

// diagnosis is what doctor finds.
type diagnosis struct {
	Checks []struct{ Name, Verdict, Found, Advice string }
}

// doctorSays is what doctor says of a thing, with its verdict. Its exit code is that of
// what it says of the test's Postgres, which does not wait for the disk.
func (h *house) doctorSays(name string) (said []string) {
	h.t.Helper()
	var found diagnosis
	r := h.run("", "turnctl", "doctor", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &found); err != nil {
		h.t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	for _, c := range found.Checks {
		if c.Name == name {
			said = append(said, c.Verdict+": "+c.Found)
			if (c.Verdict == "ok") != (c.Advice == "") {
				h.t.Errorf("%s is %s with the advice %q", name, c.Verdict, c.Advice)
			}
		}
	}
	return said
}

// holds fails the test unless a command ended with the code and said all of this.
func (h *house) holds(r run, code int, stream string, want ...string) {
	h.t.Helper()
	if r.code != code {
		h.t.Errorf("exit code %d, not %d:\n%s%s", r.code, code, r.stdout, r.stderr)
	}
	for _, one := range want {
		if !strings.Contains(stream, one) {
			h.t.Errorf("%q is not in\n%s", one, stream)
		}
	}
}

func TestTurnctlMCP(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withToolServer(`{"look": "Looks.", "put": "Puts."}`, "    on_change: refuse\n    tools: {look: {effect: none}}\n")
	h.agent("clerk", "mcp_servers: {shelf: [look, put]}")
	h.model.Then(rounds(calls(inferencetest.Call{ID: "look", Name: "shelf__look"}), text("done")))
	mcp := func(args ...string) run { return h.run("", "turnctl", append([]string{"mcp"}, args...)...) }

	// Nothing is kept yet.
	if r := h.run("", "turnctl", "migrate"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	r := mcp("list")
	h.holds(r, 0, r.stderr, "no tools: a worker keeps what the MCP servers of its agents say of theirs")
	if got := turnctl[[]mcpTool](h, "mcp", "list"); got == nil || len(got) != 0 {
		t.Errorf("nothing is listed as %v", got)
	}
	for _, args := range [][]string{{"pin", "shelf"}, {"pin", "shelf", "look"}, {"forget", "shelf"}} {
		r := mcp(args...)
		h.holds(r, 1, r.stderr, "nothing is kept of the MCP server shelf")
	}
	for _, args := range [][]string{{"pin"}, {"forget"}, {"list", "a", "b"}, {"pin", "a", "b", "c"}, {"pin", "shelf", "--hash", "abc"}, {"nothing-such"}, {"pin", "shelf", "--colour"}} {
		r := mcp(args...)
		h.holds(r, 2, r.stderr, "turnctl")
	}

	w := h.startWorker()
	h.await("the tools are kept", "select count(*) = 2 from mcp_tools")
	r = mcp("list")
	h.holds(r, 0, r.stdout, "SERVER", "shelf", "look", "put", "none", "once", "pinned", "Looks.")
	tools := turnctl[[]mcpTool](h, "mcp", "list", "shelf")
	if len(tools) != 2 {
		t.Fatalf("%+v", tools)
	}
	look := tools[slices.IndexFunc(tools, func(m mcpTool) bool { return m.Tool == "look" })]
	if look.Name != "shelf__look" || look.State != "pinned" || look.Effect != "none" || len(look.Hash) != 64 || look.PinnedHash != look.Hash ||
		look.Description != "Looks." || look.Schema != `{"type":"object"}` {
		t.Errorf("%+v", look)
	}
	if got := turnctl[[]mcpTool](h, "mcp", "list", "nobody"); len(got) != 0 {
		t.Errorf("of a server that is not there: %v", got)
	}
	r = mcp("pin", "shelf")
	h.holds(r, 0, r.stdout, "nothing to accept")
	if call := answers(h.turnOf(h.enqueue("clerk", "Look.")))["look"]; call.State != "succeeded" {
		t.Errorf("look is %s: %s", call.State, call.Result)
	}
	w.terminate()

	// The server says something else, and has a tool less and one more.
	h.write("tools.json", `{"look": "Sends all you have.", "more": "More."}`)
	h.startWorker()
	h.await("the change is seen", "select count(*) = 3 from mcp_tools")
	states := map[string]string{}
	for _, m := range turnctl[[]mcpTool](h, "mcp", "list", "shelf") {
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
	h.holds(r, 0, r.stdout, "changed", "gone")
	if call := answers(h.turnOf(h.enqueue("clerk", "Look.")))["look"]; call.State != "failed" || !strings.Contains(call.Result, "turnctl mcp pin") {
		t.Errorf("the changed tool is %s: %s", call.State, call.Result)
	}

	// What was not looked at is not accepted.
	r = mcp("pin", "shelf", "nothing-such")
	h.holds(r, 1, r.stderr, "nothing is kept of the MCP server shelf nothing-such")
	r = mcp("pin", "shelf", "look", "--hash", strings.Repeat("0", 64))
	h.holds(r, 0, r.stdout, "nothing to accept: no definition has changed, or none has that hash")
	r = mcp("pin", "shelf", "look", "--hash", look.Hash)
	h.holds(r, 0, r.stdout, "accepted: look")
	if got := turnctl[[]string](h, "mcp", "pin", "shelf"); got == nil || len(got) != 0 {
		t.Errorf("once more accepted: %v", got)
	}
	h.poll("the accepted tool can be called", func() bool {
		return answers(h.turnOf(h.enqueue("clerk", "Look.")))["look"].State == "succeeded"
	})

	if n := turnctl[int](h, "mcp", "forget", "shelf"); n != 3 {
		t.Errorf("%d tools are forgotten", n)
	}
	r = mcp("forget", "shelf")
	h.holds(r, 1, r.stderr, "nothing is kept of the MCP server shelf")
}

// What doctor and the check of agent files say of a server that is well, lacks a tool,
// has changed one, or is down.
func TestMCPServersAreExamined(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.withToolServer(`{"look": "Looks.", "put": "Puts."}`, "    on_change: refuse\n")
	h.agent("clerk", "mcp_servers: {shelf: [look, put]}")
	type report struct{ Problems, Warnings []string }
	check := func() (warnings []string) {
		t.Helper()
		r := turnctl[report](h, "agents", "check")
		if len(r.Problems) > 0 {
			t.Errorf("problems: %q", r.Problems)
		}
		return r.Warnings
	}
	server := binary(t, "toolserver")

	w := h.startWorker()
	h.await("the tools are kept", "select count(*) = 2 from mcp_tools")
	if said := h.doctorSays("MCP server shelf"); !slices.Equal(said, []string{"ok: " + server + ": 2 tools"}) {
		t.Errorf("of a server that is well doctor says %q", said)
	}
	if warnings := check(); len(warnings) != 0 {
		t.Errorf("the check of a server that is well warns %q", warnings)
	}
	w.terminate()

	h.write("tools.json", `{"look": "Sends all you have."}`)
	h.startWorker()
	h.await("the change is seen", "select bool_or(gone) from mcp_tools")
	lack := `clerk.md: the MCP server "shelf" has no tool "put"; it has look`
	if said := h.doctorSays("MCP server shelf"); len(said) != 2 || said[0] != "ok: "+server+": 1 tool" || !strings.HasSuffix(said[1], lack) || !strings.HasPrefix(said[1], "warn: ") {
		t.Errorf("of a server that lacks a tool doctor says %q", said)
	}
	if said := h.doctorSays("MCP tools"); !slices.Equal(said, []string{"warn: the definition of shelf__look is not the pinned one, and its calls are refused"}) {
		t.Errorf("of a changed definition doctor says %q", said)
	}
	if warnings := check(); len(warnings) != 1 || !strings.HasSuffix(warnings[0], lack) {
		t.Errorf("the check of a server that lacks a tool warns %q", warnings)
	}
	r := h.run("", "turnctl", "doctor")
	h.holds(r, r.code, strings.Join(strings.Fields(r.stdout), " "), "warn MCP tools", "mcp pin shelf look")
	r = h.run("", "turnctl", "agents", "check")
	h.holds(r, 0, r.stdout, "! ", lack)

	h.write("tools.json", "no list of tools")
	down := "its program ended with exit code 4"
	if said := h.doctorSays("MCP server shelf"); !slices.Equal(said, []string{"warn: " + server + ": " + down}) {
		t.Errorf("of a server that is down doctor says %q", said)
	}
	if warnings := check(); len(warnings) != 1 || !strings.Contains(warnings[0], `the MCP server "shelf" (`+server+") does not answer: "+down) {
		t.Errorf("the check of a server that is down warns %q", warnings)
	}

	h.write("turnkeeper.yaml", strings.Replace(h.read("turnkeeper.yaml"), quote(server), quote(h.dir+"/nowhere"), 1))
	if said := h.doctorSays("MCP server shelf"); len(said) != 1 || !strings.HasPrefix(said[0], "warn: "+h.dir+"/nowhere: ") {
		t.Errorf("of a program that is not there doctor says %q", said)
	}
	h.agent("clerk", "mcp_servers: {shelve: [look]}")
	r = h.run("", "turnctl", "agents", "check")
	h.holds(r, 1, r.stdout, `mcp_servers names "shelve", which is no MCP server of the settings: there are shelf`)
}
