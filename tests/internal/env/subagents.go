package env

import (
	"fmt"
	"strings"

	"turnkeeper/inference/inferencetest"
)

// Spawn replies with calls for sub-agents: each is "agent task", or "agent task async".
func Spawn(all ...string) inferencetest.Reply {
	var asked []inferencetest.Call
	for i, one := range all {
		agent, task, _ := strings.Cut(one, " ")
		task, async := strings.CutSuffix(task, " async")
		asked = append(asked, inferencetest.Call{
			ID: fmt.Sprintf("call_%d", i+1), Name: "spawn_agent", Arguments: fmt.Sprintf(`{"agent":%q,"task":%q,"async":%t}`, agent, task, async),
		})
	}
	return inferencetest.Calls(asked...)
}

// agentOf returns the name of the agent that makes the request.
func agentOf(r inferencetest.Recorded) string {
	prompt := r.Chat().Messages[0].Text()
	_, name, _ := strings.Cut(prompt, "You are ")
	name, _, _ = strings.Cut(name, ".")
	return name
}

// ModelPerAgent returns a model that answers each agent with its own function.
func ModelPerAgent(of map[string]func(inferencetest.Recorded) inferencetest.Reply) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		model := of[agentOf(r)]
		if model == nil {
			return inferencetest.Text("Nobody has told me what to do.")
		}
		return model(r)
	}
}

// ReportResult gives the first reply in round one, and then repeats the newest result.
func ReportResult(first inferencetest.Reply) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		if RoundOf(r) == 1 {
			return first
		}
		return inferencetest.Text("I heard: " + LastResult(r))
	}
}

// WriteTeam writes an agent boss that may give work to a scout, who may give work to a runner.
func (e *Env) WriteTeam(settings ...string) {
	e.T.Helper()
	e.WriteAgent("boss", append([]string{"sub_agents: [scout]", MarkerTools}, settings...)...)
	e.WriteAgent("scout", "description: Finds things.", "sub_agents: [runner]", MarkerTools)
	e.WriteAgent("runner", MarkerTools)
}

// WantOneReplyEach fails the test unless every message has one reply, and every call of the
// boss that gave work to an agent one result.
func (e *Env) WantOneReplyEach(messages int) {
	e.T.Helper()
	if n := Query[int](e, "select count(*) from messages"); n != messages {
		e.T.Errorf("there are %d messages, not %d", n, messages)
	}
	if n := Query[int](e, "select count(*) from replies"); n != messages {
		e.T.Errorf("there are %d replies, not %d", n, messages)
	}
	if n := Query[int](e, "select count(*) from turn_events where type = 'tool_result' and data ->> 'name' = 'spawn_agent' and data ->> 'state' <> 'denied'"); n != messages-1 {
		e.T.Errorf("%d results of sub-agents were told, not %d", n, messages-1)
	}
	if n := Query[int](e, "select count(*) from spawned_calls where told_at is null or ended_at is null"); n != 0 {
		e.T.Errorf("%d sub-agents are not at their end", n)
	}
}
