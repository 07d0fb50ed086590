package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A turn blocks for the reply of a sub-agent for spawnBlockTime, and polls for it. Then it
// waits as a row, because the sub-agent may need the slot of this turn.
const (
	spawnBlockTime = time.Second
	minSpawnPoll   = 50 * time.Millisecond
	maxSpawnPoll   = 500 * time.Millisecond
)

// spawnArguments are the arguments of ToolSpawnAgent.
type spawnArguments struct {
	Agent string `json:"agent"`
	Task  string `json:"task"`
	Async bool   `json:"async"`
}

// withSpawn adds ToolSpawnAgent, if there are agents to spawn.
func withSpawn(offered *tools.Registry, agents []string, describe Agents) *tools.Registry {
	if _, taken := offered.Get(turnkeeper.ToolSpawnAgent); taken || len(agents) == 0 {
		return offered
	}
	if err := offered.Register(spawnTool(agents, describe)); err != nil { // the spec is constant
		panic(err)
	}
	return offered
}

// spawnTool returns the declaration of ToolSpawnAgent. The execution runs its calls itself.
func spawnTool(agents []string, describe Agents) tools.Tool {
	var about strings.Builder
	about.WriteString(
		"Gives a task to another agent and returns its reply. The agent knows nothing of this conversation: " +
			"say in the task all that it needs. It keeps no memory of earlier tasks. Several calls in one answer work side by side. " +
			"With async true an id is returned at once and you can go on meanwhile. Agents:")
	for _, name := range agents {
		about.WriteString("\n- " + name)
		if describe == nil {
			continue
		}
		if text, known := describe.Describe(name); known && text != "" {
			about.WriteString(": " + text)
		}
	}
	schema := prompt.Canonical(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"agent", "task"},
		"properties": map[string]any{
			"agent": map[string]any{"type": "string", "enum": agents, "description": "Who is to do it."},
			"task": map[string]any{"type": "string", "minLength": 1,
				"description": "What is to be done, whole in itself."},
			"async": map[string]any{"type": "boolean", "description": "Do not wait for the reply."},
		},
	})
	return tools.New(tools.Spec{
		Name: turnkeeper.ToolSpawnAgent, Description: about.String(), Effect: turnkeeper.EffectOnce, Parameters: schema,
	}, func(context.Context, tools.Call, any) (tools.Result, error) {
		return tools.Result{}, errors.New("only a turn can give work to an agent")
	})
}

// A family is the place of a turn in its tree of agents, and what it may add.
type family struct {
	record *turnlog.Record
	def    *agentdef.Definition
	bounds turnkeeper.Bounds
}

func (t *task) family() family { return family{record: t.record, def: t.def, bounds: t.bounds} }

// limits returns the limits of the turn's tree of agents.
func (f family) limits() turnlog.TreeLimits {
	if f.record.Lineage.Root != 0 {
		return f.record.Lineage.Limits
	}
	return turnlog.TreeLimits{
		MaxDepth: f.bounds.MaxSubAgentDepth, MaxAgents: f.bounds.MaxTreeSubAgents,
		Tokens: f.def.Budget.TreeTokens, Calls: f.def.Budget.TreeCalls,
	}
}

// spawnable returns the agents that the turn may spawn.
func (f family) spawnable() []string {
	limits := f.limits()
	if f.record.Lineage.Depth() >= limits.MaxDepth || limits.MaxAgents == 0 || f.bounds.MaxSubAgents == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.def.SubAgents), f.isAncestor)
}

func (f family) isAncestor(agent string) bool {
	return f.record.Lineage.Ancestor(f.record.Turn.Agent, agent)
}

// Reasons why no agent was spawned, in addition to those of turnlog.SpawnFailure.
const (
	refusedCycle  = "cycle"
	refusedDepth  = "max_sub_agent_depth"
	refusedFanOut = "max_sub_agents"
	refusedEmpty  = "task_empty"
)

// refuse returns the result of a call that may not spawn, or an empty text. before are
// the turn's earlier calls.
func (f family) refuse(call turnkeeper.ToolCall, before []turnkeeper.ToolCall) string {
	if call.Name != turnkeeper.ToolSpawnAgent || len(f.def.SubAgents) == 0 {
		return ""
	}
	var args spawnArguments
	if err := json.Unmarshal([]byte(call.Arguments), &args); err != nil || args.Agent == "" {
		return "" // the check of the arguments reports it
	}
	spawned := 0
	for _, c := range before {
		if c.Name == turnkeeper.ToolSpawnAgent && (c.State == turnkeeper.CallPlanned || c.State.Executed()) {
			spawned++
		}
	}
	within, limits := f.record.Lineage.Within(f.record.Turn.Agent), f.limits()
	switch {
	case f.isAncestor(args.Agent):
		return notSpawned(args.Agent, refusedCycle, "it is already in the chain of agents above: "+strings.Join(within,
			", ")+". No agent may appear twice in a chain")
	case f.record.Lineage.Depth() >= limits.MaxDepth:
		return notSpawned(args.Agent, refusedDepth,
			fmt.Sprintf("no more than %d agents may work below each other; do it yourself", limits.MaxDepth))
	case spawned >= f.bounds.MaxSubAgents:
		return notSpawned(args.Agent, refusedFanOut, fmt.Sprintf("one turn may spawn %d agents", f.bounds.MaxSubAgents))
	case limits.MaxAgents == 0:
		return notSpawned(args.Agent, string(turnlog.SpawnTreeFull), "sub-agents are switched off")
	case strings.TrimSpace(args.Task) == "":
		return notSpawned(args.Agent, refusedEmpty, "say what it is to do")
	}
	return ""
}

// A spawnFailure is the result of a call without a reply, as the model is shown it.
type spawnFailure struct {
	Error   string               `json:"error"`
	Agent   string               `json:"agent"`
	Reason  string               `json:"reason"`
	Detail  string               `json:"detail,omitempty"`
	Running bool                 `json:"may_still_be_running"`
	Message turnkeeper.MessageID `json:"message_id,omitempty"`
	Turn    turnkeeper.TurnID    `json:"turn_id,omitempty"`
}

func notSpawned(agent, reason, detail string) string {
	return string(prompt.Canonical(spawnFailure{Error: "the agent was not spawned", Agent: agent, Reason: reason,
		Detail: detail}))
}

// spawn starts a call of a sub-agent: one write contains the start, the message and, for
// an async call, the handle.
func (x *executor) spawn(ctx context.Context, call *calls.Call) error {
	var args spawnArguments
	if err := json.Unmarshal(call.Args(), &args); err != nil { // cannot happen: they are checked
		return err
	}
	message, err := x.journal.NewMessage(ctx)
	if err != nil {
		return &journalError{err}
	}
	turn := x.record.Turn
	start := newStart(call)
	start.Spawn = &turnlog.Spawn{
		Message: message, Agent: args.Agent, Task: args.Task, Limits: x.family().limits(),
		Within: x.bounds.SubAgentTimeout,
		Root:   cmp.Or(x.record.Lineage.Root, turn.ID),
		Agents: append(slices.Clone(x.record.Lineage.Within(turn.Agent)), args.Agent),
		TraceParent: x.family().trace(call.Key, func() bool {
			return x.cfg.Observer.Traced(ctx)
		}), Labels: x.calls.LabelsOf(call),
	}
	x.events.Mark()
	handle := turnlog.CallResult{Key: call.Key, Nonce: start.Nonce, State: turnkeeper.CallRunning, Shown: shownNoReply}
	if args.Async && x.offered.Retrieves() {
		handle.OutputID = outputs.NewID()
		handle.Shown = outputs.Placeholder{ID: handle.OutputID, Tool: call.Name}.Background()
		handle = call.WithNotes(handle)
	}
	x.pending.Starts = append(x.pending.Starts, start)
	x.pending.Results = append(x.pending.Results, handle)
	x.events.Event(turnkeeper.EventToolStarted, call.Key.Round, 0, turnevents.ToolData{
		Call: call.Key.String(), Name: call.Name, State: turnkeeper.CallStarted,
		SubAgent: &turnevents.SubAgentData{Agent: args.Agent, Message: message, Conversation: turnlog.SpawnConversation(
			turn.ID, call.Key)},
	})
	if err := x.commit(ctx); err != nil {
		x.pending.dropResult(start.Nonce)
		return err
	}
	call.Release()
	call.State, call.Awaited, call.Shown, call.OutputID = handle.State, true, handle.Shown, handle.OutputID
	x.blockUntil = time.Now().Add(spawnBlockTime)
	x.log.Info("sub-agent spawned", zap.Stringer("call", call.Key), zap.String("sub_agent", args.Agent),
		zap.Int64("message", int64(message)))
	return nil
}

// trace returns the traceparent of a sub-agent's turn: its parent is the span of the
// call, and it is sampled if this turn is.
func (f family) trace(key turnkeeper.CallKey, sampled func() bool) string {
	trace := traceparent.Of(f.record.Turn, f.record.Message.TraceParent)
	is := trace.Sampled
	if !trace.HasSender() {
		is = sampled()
	}
	return trace.Below(trace.SpanOf(traceparent.CallSpan(f.record.Turn.ID, key)), is)
}

// observeSpawn reports the end of a sub-agent's call to the Observer.
func (w *tooling) observeSpawn(ctx context.Context, call *calls.Call, state turnkeeper.CallState, took time.Duration,
	failure string) {
	end := SubAgentEnd{
		Call: *call.ToolCall, Turn: w.task.record.Turn, TraceParent: w.task.record.Message.TraceParent,
		Began: call.StartedAt, Duration: took,
		State: state, Error: failure,
	}
	if s := call.Sub; s != nil {
		end.Agent, end.Child = s.Agent, s.Turn
	}
	w.task.cfg.Observer.SubAgent(ctx, end)
}

// shownNoReply is the result of a call until its sub-agent replies. The model sees it only
// in later turns, if this one ends first.
const shownNoReply = "the agent has not replied yet."

// ShownReplyUnawaited is the result of a call whose turn ended before its sub-agent replied.
const ShownReplyUnawaited = shownEnded + ". Its agent is told to stop."

// awaitReplies blocks for the replies that the model must be shown, for a short time and
// while something runs in the background. If waits is true, the turn must wait as a row.
func (x *executor) awaitReplies(ctx context.Context) (waits bool, err error) {
	for wait := minSpawnPoll; x.calls.AwaitsReply(); wait = min(2*wait, maxSpawnPoll) {
		if len(x.calls.Runs()) == 0 && !time.Now().Before(x.blockUntil) {
			return true, nil
		}
		if pause.For(ctx, wait) != nil {
			return false, context.Cause(ctx)
		}
		if err := x.takeCompleted(ctx); err != nil {
			return false, err
		}
		x.collect()
	}
	return false, nil
}

// replyResult returns the result of a call whose sub-agent has ended. The reply is treated like
// the result of any tool.
func (w *tooling) replyResult(ctx context.Context, call *calls.Call, arrived turnlog.CallResult) turnlog.CallResult {
	end := *arrived.Spawned
	call.Sub = &turnevents.SubAgentData{
		Agent: end.Agent, Message: end.Message, Turn: end.Turn, Outcome: end.Outcome,
		Conversation: turnlog.SpawnConversation(w.task.record.Turn.ID, call.Key),
	}
	text := replyText(end)
	var result turnlog.CallResult
	if call.WentOn() {
		result = w.backgroundResult(call, tools.Result{Text: text, Labels: end.Labels})
	} else {
		result = w.callResult(call, tools.Result{Text: text, Labels: end.Labels}, outputs.NewID())
		w.storeReply(&result, text, end)
	}
	result.Nonce, result.State, result.Duration, result.Ran = arrived.Nonce, end.State(), arrived.Duration, true
	failure := ""
	if result.State != turnkeeper.CallSucceeded {
		failure = cmp.Or(string(end.Failure), string(end.Outcome))
	}
	w.observeSpawn(ctx, call, result.State, result.Duration, failure)
	return result
}

// storeReply stores a reply of any length, and puts its handle before the text, so that the
// model can search it and pass it on.
func (w *tooling) storeReply(result *turnlog.CallResult, text string, end turnlog.SpawnEnd) {
	if end.State() != turnkeeper.CallSucceeded || w.task.cfg.Outputs == nil {
		return
	}
	if result.Output == nil {
		taken := outputs.Take(outputs.Raw{Text: text}, outputs.Limits{})
		taken.Output.ID, taken.Output.TurnID, taken.Output.Call = outputs.NewID(), w.task.record.Turn.ID, result.Key
		result.Output = &taken.Output
		w.sizes[taken.Output.ID] = taken.Output.Tokens
	}
	if id := result.Output.ID; !strings.HasPrefix(result.Shown, outputs.Placeholder{ID: id,
		Tool: turnkeeper.ToolSpawnAgent}.Head()) {
		result.Shown = fmt.Sprintf("[agent %s, %s, output %s]\n\n", end.Agent, end.Outcome, id) + result.Shown
	}
}

// replyText returns the reply of a sub-agent, or a text that replaces it.
func replyText(end turnlog.SpawnEnd) string {
	switch {
	case end.Outcome == turnkeeper.TurnSucceeded && end.Reply != "":
		return end.Reply
	case end.Outcome == turnkeeper.TurnDegraded && end.Reply != "":
		return fmt.Sprintf("[The agent %s could not finish as asked (%s); what it has:]\n\n%s", end.Agent,
			end.Stop, end.Reply)
	case end.Outcome == turnkeeper.TurnDegraded && end.Replied:
		return fmt.Sprintf("[The agent %s could not finish as asked (%s), and gave no text. Its calls:]\n%s", end.Agent,
			end.Stop, callLines(end.Calls))
	case end.State() == turnkeeper.CallSucceeded:
		return fmt.Sprintf("[The agent %s has replied, and its reply was removed since.]", end.Agent)
	}
	failure := spawnFailure{
		Error: "the agent gave no answer", Agent: end.Agent, Reason: cmp.Or(string(end.Failure), string(end.Outcome)),
		Detail: cmp.Or(failureTexts[end.Failure], end.Reply), Running: end.Open, Message: end.Message, Turn: end.Turn,
	}
	if end.Failure.Refused() {
		failure.Error = "the agent was not spawned"
	}
	return string(prompt.Canonical(failure))
}

// callLines returns a line with the outcome of each call of a reply.
func callLines(calls []turnkeeper.ReplyCall) string {
	if len(calls) == 0 {
		return "\n- nothing"
	}
	var lines strings.Builder
	for _, c := range calls {
		lines.WriteString("\n" + outputs.Preview("- "+prompt.PlainName(c.Name)+": "+outcomeText(c.State, c.Problem)))
	}
	return lines.String()
}

var failureTexts = map[turnlog.SpawnFailure]string{
	turnlog.SpawnUnknownAgent: "no worker has had this agent",
	turnlog.SpawnTreeFull:     "this tree of agents has spawned as many agents as it may",
	turnlog.SpawnTooLong:      "the task is longer than a message may be",
	turnlog.SpawnTimeout:      "it did not reply in time, and is told to stop",
}
