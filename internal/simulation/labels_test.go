package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Labelled content contains one word for each of its labels. The model repeats the words of all that it sees in
// whatever it writes: answers, summaries, tasks and arguments. The content therefore shows what the model has seen,
// even if the store has lost the label.
func wordOf(l policy.Label) string { return "seen-" + string(l) }

// wordsIn returns the words of labels in texts, as one text.
func wordsIn(texts ...string) string {
	var words []string
	for _, l := range policy.Labels {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, wordOf(l)) }) {
			words = append(words, wordOf(l))
		}
	}
	return strings.Join(words, " ")
}

// flows are what labels do in simulations with labels: look and send bring labelled content, and the others ask with
// it.
var flows = map[string]policy.Flow{
	"look":  {}, // some of its results are untrusted: see label
	"send":  {Labels: []policy.Label{policy.Private}},
	"put":   {Sinks: []policy.Sink{policy.Changes}},
	"fire":  {Sinks: []policy.Sink{policy.Changes}},
	"book":  {Sinks: []policy.Sink{policy.Changes, policy.Sends}},
	"ask":   {Sinks: []policy.Sink{policy.Sends}},
	"shoot": {Sinks: []policy.Sink{policy.Changes}},
}

// labelledToolbox holds the tools of every process of a simulation with labels.
var labelledToolbox = toolsWith(effects, func(s *tools.Spec) {
	s.Flow = flows[s.Name]
	s.Parameters = json.RawMessage(
		`{"type":"object","properties":{"n":{"type":"integer"},"seen":{"type":"string"}},"additionalProperties":false}`)
})

// tools returns the tools of every process.
func (e *env) tools() *tools.Registry {
	if e.profile.labels {
		return labelledToolbox
	}
	return e.mutation.tools()
}

// label puts the words of its labels into a tool's result.
func (t *tool) label(r tools.Result, call tools.Call) tools.Result {
	labels := t.spec.Flow.Labels
	if t.spec.Name == "look" && (strings.Contains(string(call.Arguments), `"n":0`) || strings.Contains(
		string(call.Arguments), `"n":1`)) {
		r.Labels = policy.Marks([]policy.Label{policy.Untrusted}, "what it looked at")
		labels = append(labels, policy.Untrusted)
	}
	for _, l := range labels {
		r.Text += " " + wordOf(l)
	}
	return r
}

// repeat puts the words of all labels in a request into its answer.
func repeat(req inference.Request, res inference.Response) inference.Response {
	var texts []string
	for _, m := range req.Messages {
		texts = append(texts, m.Text)
		for _, call := range m.Calls {
			texts = append(texts, call.Arguments)
		}
	}
	words := wordsIn(texts...)
	if words == "" {
		return res
	}
	if res.Text != "" {
		res.Text += " " + words
	}
	for i := range res.Calls {
		switch call := &res.Calls[i]; {
		case call.Name == turnkeeper.ToolSpawnAgent:
			call.Arguments = strings.Replace(call.Arguments, `"task":"`, `"task":"`+words+" ", 1)
		case slices.Contains(toolNames, call.Name):
			call.Arguments = strings.TrimSuffix(call.Arguments, "}") + fmt.Sprintf(`,"seen":%q}`, words)
		}
	}
	return res
}

// needsApproval reports whether a call that the model made with these arguments may run only if a person has approved
// it.
func (e *env) needsApproval(name, arguments string) bool {
	if e.profile.asks && arguments == gated {
		return true
	}
	if !e.profile.labels {
		return false
	}
	seen := func(s policy.Sink, l policy.Label) bool {
		return slices.Contains(flows[name].Sinks, s) && strings.Contains(arguments, wordOf(l))
	}
	return seen(policy.Changes, policy.Untrusted) || seen(policy.Sends, policy.Private)
}

// labelledCall is visited, as a fault point is, when a call runs that labelled content may have led to.
const labelledCall = "labelled call"

// checkLabelled checks that a turn has the labels whose words the model put into a call.
func (e *env) checkLabelled(rows []turnlog.LabelRow, k callID, call turnkeeper.ToolCall) {
	for _, l := range policy.Labels {
		if strings.Contains(call.Arguments, wordOf(l)) && !slices.ContainsFunc(rows, func(r turnlog.LabelRow) bool {
			return r.Kind == turnlog.LabelTurn && r.ID == int64(k.turn) && r.Label == l && r.Call.Round < k.key.Round
		}) {
			e.report("call %s of turn %d repeats what is %s, and %s", k.key, k.turn, l, unlabelled)
		}
	}
}

const unlabelled = "its turn has no such label"

// strangers is the agent whose messages are private in simulations with labels.
const strangers = "desk"

// labelledDefinitions are the agents' definitions in simulations with labels.
var labelledDefinitions = definitionsOf(func(name, source string) string {
	if name == strangers {
		return strings.Replace(source, "description: d\n", "description: d\ninbox_labels: [private]\n", 1)
	}
	return source
})

// definitions returns the agents' definitions.
func (e *env) definitions() []*agentdef.Definition {
	if e.profile.labels {
		return labelledDefinitions
	}
	return definitions
}

// labelMessage puts the word of its label into a message. Half of the messages begin a conversation, without labels.
func (e *env) labelMessage(i int, m turnkeeper.Submission) turnkeeper.Submission {
	if !e.profile.labels {
		return m
	}
	if m.Agent == strangers && m.Body != poison {
		m.Body += " " + wordOf(policy.Private)
	}
	if i%2 == 0 {
		m.Conversation = fmt.Sprint("new ", i)
	}
	return m
}

// losesLabels is a journal that writes something without its labels.
type losesLabels struct {
	agentturn.Journal
	what string
}

func (j losesLabels) Append(ctx context.Context, e turnlog.Entry) error {
	switch j.what {
	case "results":
		e.Results = slices.Clone(e.Results)
		for i := range e.Results {
			e.Results[i].Labels = nil
		}
	case "tasks":
		e.Starts = slices.Clone(e.Starts)
		for i := range e.Starts {
			if e.Starts[i].Spawn != nil {
				task := *e.Starts[i].Spawn
				task.Labels = nil
				e.Starts[i].Spawn = &task
			}
		}
	case "turns":
		e.Labels = nil
	}
	return j.Journal.Append(ctx, e)
}

// contentIsLabelled makes content labelled, and workers die.
func contentIsLabelled(p *profile) { p.labels, p.kills = true, max(p.kills, 0.02) }
