package mcp_test

import (
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// repeat, effect and max_result_chars apply to single tools of a server. Its other tools keep the defaults.
func TestSwitchesOfAnMCPTool(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	addToolServer(e, `{"guarded": "Guarded.", "again": "Again.", "short": "A text that is too long."}`,
		"    effect: once\n    tools:\n      again: {repeat: allow}\n      short: {effect: none, max_result_chars: 10}\n")
	e.WriteAgent("clerk", "mcp_servers: {shelf: [guarded, again, short]}", "max_rounds: 3")
	call := func(id, tool string) inferencetest.Call {
		return inferencetest.Call{ID: id, Name: "shelf__" + tool, Arguments: "{}"}
	}
	e.Model.Then(env.Rounds(
		inferencetest.Calls(call("guarded_1", "guarded"), call("guarded_2", "guarded"), call("again_1", "again"),
			call("again_2", "again"), call("short", "short")),
		inferencetest.Text("Done."),
	))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Go."))
	e.WantEnd(turn, "succeeded", "none", 2)
	calls := turn.CallsByWireID()
	for id, want := range map[string]struct {
		starts int // only of calls with an effect, because others have no starts
		says   string
	}{
		"guarded_1": {1, "guarded: Guarded."},
		"guarded_2": {0, "guarded: Guarded."},
		"again_1":   {1, "again: Again."},
		"again_2":   {1, "again: Again."},
		"short":     {0, "[truncated — showing 10/"},
	} {
		if got := calls[id]; got.Starts != want.starts || !strings.Contains(got.Result, want.says) {
			t.Errorf("%s was started %d times and is answered %q", id, got.Starts, got.Result)
		}
	}
}
