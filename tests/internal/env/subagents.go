package env

import (
	"fmt"
	"strings"

	"turnkeeper/inference/inferencetest"
)

// Spawn replies with calls that spawn sub-agents: each is "AGENT TASK" or "AGENT TASK async".
func Spawn(all ...string) inferencetest.Reply {
	var calls []inferencetest.Call
	for i, one := range all {
		agent, task, _ := strings.Cut(one, " ")
		task, async := strings.CutSuffix(task, " async")
		calls = append(calls, inferencetest.Call{
			ID: fmt.Sprintf("call_%d", i+1), Name: "spawn_agent",
			Arguments: fmt.Sprintf(`{"agent":%q,"task":%q,"async":%t}`, agent, task, async),
		})
	}
	return inferencetest.Calls(calls...)
}

// agentOf returns the agent of a request.
func agentOf(r inferencetest.Recorded) string {
	prompt := r.Chat().Messages[0].Text()
	_, name, _ := strings.Cut(prompt, "You are ")
	name, _, _ = strings.Cut(name, ".")
	return name
}

// ModelPerAgent returns a model that answers each agent with its own model.
func ModelPerAgent(of map[string]func(inferencetest.Recorded) inferencetest.Reply) func(
	inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		model := of[agentOf(r)]
		if model == nil {
			return inferencetest.Text("There is no script for this agent.")
		}
		return model(r)
	}
}

// ReportResult returns a model that gives the first reply in round one, and then repeats the newest
// tool result.
func ReportResult(first inferencetest.Reply) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		if RoundOf(r) == 1 {
			return first
		}
		return inferencetest.Text("I heard: " + LastResult(r))
	}
}

// WriteTeam writes three agents: boss may spawn scout, and scout may spawn runner.
func (e *Env) WriteTeam(settings ...string) {
	e.T.Helper()
	e.WriteAgent("boss", append([]string{"sub_agents: [scout]", MarkerTools}, settings...)...)
	e.WriteAgent("scout", "description: Finds things.", "sub_agents: [runner]", MarkerTools)
	e.WriteAgent("runner", MarkerTools)
}

// WantOneReplyEach fails the test unless there are this many messages, each with one reply, and every
// spawn has one result.
func (e *Env) WantOneReplyEach(messages int) {
	e.T.Helper()
	if n := Query[int](e, "select count(*) from messages"); n != messages {
		e.T.Errorf("%d messages, want %d", n, messages)
	}
	if n := Query[int](e, "select count(*) from replies"); n != messages {
		e.T.Errorf("%d replies, want %d", n, messages)
	}
	if n := Query[int](e,
		"select count(*) from turn_events where type = 'tool_result' and data ->> 'name' = 'spawn_agent' and data ->> 'state' <> 'denied'"); n != messages-1 {
		e.T.Errorf("%d results of sub-agents, want %d", n, messages-1)
	}
	if n := Query[int](e, "select count(*) from spawned_calls where notified_at is null or ended_at is null"); n != 0 {
		e.T.Errorf("%d sub-agents have not ended", n)
	}
}
