package core_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A change is what an operator changes between an approval and the start of the call.
type change struct {
	name   string
	change func(*env.Env)
	want   string // what the model and the person are shown
}

var changes = []change{
	{"the tool's rule denies", func(e *env.Env) {
		e.WriteFile("turnkeeper.yaml", strings.Replace(e.ReadFile("turnkeeper.yaml"), toolRule,
			`'deny("marks are stopped")'`, 1))
	}, "denied: a person allowed this call, but a rule denies it now (marks are stopped)."},
	{"the agent's rule denies", func(e *env.Env) {
		e.WriteAgent("clerk", env.MarkerTools,
			`approve: {mark_once: 'args.label == "invoice" ? deny("marks are stopped") : allow'}`)
	}, "denied: a person allowed this call, but a rule denies it now (marks are stopped)."},
	{"the agent no longer has the tool", func(e *env.Env) { e.WriteAgent("clerk", "tools: [mark_none]") },
		"denied: a person allowed this call, but the agent no longer has this tool."},
	{"the agent is retired", func(e *env.Env) {
		if r := e.Turnctl("agents", "retire", "clerk"); r.Code != 0 {
			e.T.Fatal(r.Stderr)
		}
	}, "denied: a person allowed this call, but the agent was retired since."},
}

const toolRule = `'ask("marks cost money")'`

// TestDenyLater approves a call while no worker runs. An operator then denies or takes away its tool: the next worker
// does not run it, and the model and the person learn why.
func TestDenyLater(t *testing.T) {
	t.Parallel()
	for _, c := range testrun.Sample(changes, 2) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+"tools:\n  mark_once:\n    approve: "+
				toolRule+"\n")
			e.WriteAgent("clerk", env.MarkerTools)
			e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "invoice"), inferencetest.Text("It is not paid.")))
			w := e.StartWorker()
			message := e.Enqueue("clerk", "Pay it.")
			a := awaitAsk(e)
			e.Kill(w)
			if r := e.Turnctl("asks", "approve", fmt.Sprint(a.ID), "--as", "ann"); r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			c.change(e)
			e.StartWorker()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "succeeded", "none", 2)
			e.Ledger.WantRuns("invoice", 0)
			requests := e.WantRequests(2)
			if !strings.Contains(string(requests[1].Body), c.want[:40]) {
				t.Errorf("the model is sent\n%s", requests[1].Body)
			}
			shown := env.Turnctl[struct {
				State     string `json:"state"`
				CallState string `json:"call_state"`
				NotRun    string `json:"not_run"`
			}](e, "asks", "show", fmt.Sprint(a.ID))
			if shown.State != "approved" || shown.CallState != "denied" || !strings.HasPrefix(shown.NotRun, c.want) {
				t.Errorf("the person is shown %+v", shown)
			}
			if r := e.Turnctl("asks", "show", fmt.Sprint(a.ID)); !strings.Contains(r.Stdout,
				"not run        "+c.want[:40]) {
				t.Errorf("turnctl asks show prints\n%s", r.Stdout)
			}
		})
	}
}
