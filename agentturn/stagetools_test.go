package agentturn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/membudget"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// ruleOf is a rule: clauses between |, each a verdict and its condition.
type ruleOf struct {
	s      *stage
	source string
}

// ruleArguments are the arguments of calls that rules look at.
type ruleArguments struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (r ruleOf) Decide(c policy.Call) policy.Decision {
	r.s.mu.Lock()
	r.s.decided = append(r.s.decided, c)
	r.s.mu.Unlock()
	var args ruleArguments
	_ = json.Unmarshal(c.Arguments, &args) // a call of another shape has none of them
	labels := map[policy.Label]bool{}
	for _, m := range c.Labels {
		labels[m.Label] = true
	}
	return decideBy(r.source, args, labels)
}

// decideBy returns the decision of a rule.
func decideBy(source string, args ruleArguments, labels map[policy.Label]bool) (d policy.Decision) {
	for clause := range strings.SplitSeq(source, " | ") {
		words := strings.Fields(clause)
		met := false
		switch words[1] {
		case "n":
			met = args.N > must(strconv.Atoi(words[3]))
		case "text":
			met = args.Text != "" && args.Text != "words"
		default:
			met = labels[policy.Label(words[1])]
		}
		if met {
			d = policy.Strictest(d, policy.Decision{Verdict: policy.Verdict(words[0]), Rule: source, Reason: clause})
		}
	}
	return d
}

// A propTool is a prop as a tool.
type propTool struct {
	s *stage
	prop
}

var propSchema = json.RawMessage(
	`{"type":"object","properties":{"n":{"type":"integer"},"text":{"type":"string"},"to":{"type":"string"},
"urgency":{"enum":["low","high"]}},"additionalProperties":false}`)

func (p *propTool) Spec() tools.Spec {
	spec := tools.Spec{
		Name: p.s.nameOf(p.name), Description: "A tool of a test.", Effect: p.effect, Parameters: propSchema,
		Transactional: p.within,
		Flow:          p.flow, Repeat: tools.RepeatAllow, AsksInput: p.asks,
		Early: p.s.early && p.effect == turnkeeper.EffectNone,
	}
	if !p.s.elsewhere {
		spec.Approve = p.s.rules[p.name]
	}
	if p.s.deferred(p.name) {
		spec.Background = new(true)
	}
	if p.s.isDetached(p.name) {
		spec.Detached, spec.Timeout = true, time.Hour
	}
	return spec
}

func (p *propTool) Run(ctx context.Context, call tools.Call) (tools.Result, error) {
	turn, rounds, _, _ := p.s.mem.Turn(call.TurnID)
	if call.Agent != turn.Agent || call.User != turn.User || call.Conversation != turn.Conversation {
		p.s.fault("%s runs for %s of %q in %q; the turn is %s's of %q in %q",
			p.name, call.Agent, call.User, call.Conversation, turn.Agent, turn.User, turn.Conversation)
	}
	var journaled turnkeeper.ToolCall
	for _, c := range callsOf(rounds) {
		if c.Key == call.Key {
			journaled = c
		}
	}
	if journaled.Name == "" {
		journaled = p.s.unrecorded(p.prop, call)
	}
	p.s.mu.Lock()
	p.s.runs = append(p.s.runs, toolRun{p.name, call, journaled.State})
	p.s.mu.Unlock()
	if p.s.deferred(p.name) && !p.s.isDetached(p.name) {
		select {
		case <-time.After(8 * time.Second):
		case <-ctx.Done():
			return tools.Result{}, context.Cause(ctx)
		}
	}
	p.checkSpan(ctx, call)
	if p.muses {
		answer, err := call.Sample(ctx, question(journaled.WireID))
		if ctx.Err() != nil { // its worker is dead
			return tools.Result{}, context.Cause(ctx)
		}
		if err != nil || answer.Text != "a rhyme on "+journaled.WireID {
			p.s.fault("%s is answered %+v, %v", journaled.WireID, answer, err)
		}
	}
	result := tools.Result{Text: fmt.Sprintf("%s of %s", p.name, journaled.WireID), Labels: policy.Marks(p.brings,
		"what "+p.name+" read")}
	switch {
	case p.ends == "fails":
		result.IsError = true
	case p.ends == "doubts":
		return tools.Result{}, fmt.Errorf("%s: %w", journaled.WireID, tools.ErrInDoubt)
	case p.gives != "":
		p.give(&result, journaled.WireID)
	case p.asks && call.Input == nil:
		return tools.Result{}, &tools.InputRequest{Question: "Which seat?", Schema: seatSchema,
			State: "of " + journaled.WireID}
	case p.asks:
		in := *call.Input
		result.IsError = in.Answer == nil
		want := fmt.Sprintf(`{"seat":%d}`, numberOf(journaled.WireID))
		if in.N != 1 || in.State != "of "+journaled.WireID || in.Answer != nil && string(in.Answer) != want {
			p.s.fault("%s gets the input %+v", journaled.WireID, in)
		}
	}
	return result, nil
}

// unrecorded returns a call that runs before its answer is on record, as the model has written it. Only a read may that
// no rule asks about, and that sends nothing out.
func (s *stage) unrecorded(p prop, call tools.Call) turnkeeper.ToolCall {
	if rule := s.rules[p.name]; s.stepwise || p.effect != turnkeeper.EffectNone || len(p.flow.Sinks) > 0 ||
		rule != "" && rule != policy.Never && rule != policy.Always {
		s.fault("%s runs call %s before the answer that asks for it is on record", p.name, call.Key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return turnkeeper.ToolCall{Key: call.Key, WireID: s.said[call.TurnID][call.Key.Ordinal-1].ID,
		State: turnkeeper.CallPlanned}
}

var seatSchema = json.RawMessage(`{"type":"object","properties":{"seat":{"type":"integer"}},"required":["seat"]}`)

// give fills a result with the content of a prop, which is that of the call alone.
func (p *propTool) give(r *tools.Result, wire string) {
	switch p.gives {
	case "binary":
		r.Text, r.Bytes, r.MediaType = "", []byte("\x89PNG of "+wire), "image/png"
	case "attached":
		r.Attached = []tools.Attachment{{Name: "a chart", MediaType: "image/svg+xml",
			Bytes: []byte("chart of " + wire)}}
	case "long":
		r.Text = strings.Repeat(wire+" says nothing of note. ", 2800)
	}
}

// checkSpan checks that a run is what the observer was told, and takes a little of the memory for results.
func (p *propTool) checkSpan(ctx context.Context, call tools.Call) {
	begin := spanOf(ctx).call
	if begin == nil || begin.Call.Key != call.Key || begin.Call.AsRun() != string(call.Arguments) ||
		spanOf(ctx).turn != call.TurnID || begin.Agent != call.Agent {
		p.s.fault("%s runs %s of turn %d with %s; the observer was told %+v", p.name, call.Key, call.TurnID,
			call.Arguments, begin)
	}
	lease := membudget.Of(ctx)
	if err := lease.Grow(ctx, 100); lease == nil || err != nil {
		p.s.fault("%s has no memory for its result: %v", p.name, err)
	}
}

// deferred reports whether calls of a tool go to the background.
func (s *stage) deferred(tool string) bool {
	p := propOf(tool)
	return s.background && !p.within && !p.asks && p.ends != "doubts" && tool != turnkeeper.ToolSpawnAgent &&
		tool != turnkeeper.ToolAskPerson
}

// isDetached reports whether calls of a tool run in jobs of their own.
func (s *stage) isDetached(tool string) bool {
	p := propOf(tool)
	own := tool == turnkeeper.ToolSpawnAgent || tool == turnkeeper.ToolAskPerson
	if !s.detached || p.within || p.asks || p.muses || p.ends == "doubts" || own {
		return false
	}
	return !slices.ContainsFunc(s.lines(), func(l line) bool { return l.tool == tool && l.text == textHandle })
}

// Find returns the model of an agent.
func (s *stage) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	provider, model, _ := strings.Cut(name, "/")
	return actor{s, model}, agentturn.ModelInfo{Provider: provider, Model: model}, nil
}

// An actor is the model of an agent. It decides by the request alone.
type actor struct {
	s     *stage
	agent string
}

func (a actor) Generate(_ context.Context, r inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if err := strict(r); err != nil {
		a.s.fault("a request is wrong: %v", err)
	}
	var turn turnkeeper.TurnID
	if _, err := fmt.Sscanf(r.User, "turn-%d", &turn); err != nil {
		a.s.fault("a request names no turn: %q", r.User)
	}
	asked := ""
	if r.Messages[0].Text == rhymes {
		asked = r.Messages[1].Text
	}
	used, fails := a.s.meter.take(turn, asked, r)
	if fails {
		onDelta(inference.Delta{Kind: inference.DeltaText, Text: "All is"})
		return inference.Response{}, &inference.Error{Class: inference.ClassOverloaded, Provider: "main",
			Model: a.agent, Usage: used}
	}
	res := inference.Response{FinishReason: "stop", Usage: used}
	if asked != "" {
		res.Text = "a rhyme on " + asked
		return res, nil
	}
	res.Text, res.Calls = a.act(r)
	a.s.mu.Lock()
	a.s.said[turn] = res.Calls
	a.s.mu.Unlock()
	if a.s.early {
		streamCalls(res.Calls, onDelta)
		synctest.Wait() // until each read that may has begun
	}
	if len(res.Calls) > 0 {
		res.FinishReason = "tool_calls"
	}
	return res, nil
}

// act returns the text or the calls of an answer.
func (a actor) act(r inference.Request) (text string, calls []inference.Call) {
	rounds := 0
	for _, m := range r.Messages {
		if len(m.Calls) > 0 {
			rounds++
		}
	}
	answers, said := a.s.answers(), "All is done."
	if a.agent == "scout" {
		l, _ := a.s.find(numberOf(r.Messages[1].Text))
		answers, said = nil, "found for "+wireOf(l.n)
		for _, call := range l.child {
			answers = append(answers, []inference.Call{a.s.callOf(call)})
			answers = append(answers, a.s.waits([]line{call})...)
		}
	}
	if r.ToolChoice == inference.ToolChoiceNone { // the announced last round
		rounds, answers = 0, [][]inference.Call{{{ID: "c999", Name: a.s.nameOf("look"), Arguments: `{"n":999}`}}}
	}
	if rounds >= len(answers) {
		return said, nil
	}
	calls = slices.Clone(answers[rounds])
	for i := range calls {
		if calls[i].ID == "" {
			calls[i].ID = fmt.Sprintf("w%d", rounds)
		}
	}
	return "", calls
}

// answers returns the calls of each answer of the turn's model.
func (s *stage) answers() (all [][]inference.Call) {
	for _, lines := range s.parted() {
		var calls []inference.Call
		for _, l := range lines {
			calls = append(calls, s.callOf(l))
		}
		all = append(append(all, calls), s.waits(lines)...)
	}
	return all
}

// charged returns the number of answers that are charged, without the last one.
func (s *stage) charged() int { return len(s.parted()) }

// parted returns the lines of each answer. Answers are split only where the first half brings no label.
func (s *stage) parted() (all [][]line) {
	for i, lines := range s.rounds {
		at := len(lines) / 2
		if !s.split || at == 0 || !maps.Equal(labelsAfter(s.play, i, 0), labelsAfter(s.play, i, at)) {
			all = append(all, lines)
			continue
		}
		all = append(all, lines[:at], lines[at:])
	}
	return all
}

// waits returns answers that wait for all calls of the answer before them that may go on.
func (s *stage) waits(lines []line) (all [][]inference.Call) {
	for _, l := range lines {
		if s.deferred(l.tool) || s.isDetached(l.tool) || s.async && l.tool == turnkeeper.ToolSpawnAgent {
			all = append(all, []inference.Call{{Name: turnkeeper.ToolWaitForToolOutput, Arguments: "{}"}})
		}
	}
	return all
}

// callOf returns the call of a line, as the model writes it.
func (s *stage) callOf(l line) inference.Call {
	return inference.Call{ID: wireOf(l.n), Name: s.nameOf(l.tool), Arguments: argumentsOf(l, s.async)}
}

// argumentsOf returns the arguments of a line in canonical form.
func argumentsOf(l line, async bool) string {
	args := map[string]any{}
	switch l.tool {
	case turnkeeper.ToolSpawnAgent:
		args["agent"], args["task"] = "scout", wireOf(l.n)
		if async {
			args["async"] = true
		}
		return string(must(json.Marshal(args)))
	case turnkeeper.ToolAskPerson:
		return fmt.Sprintf(`{"question":"%s?"}`, wireOf(l.n))
	}
	switch l.text {
	case textWords:
		args["n"], args["text"] = l.n, "words"
	case textHandle:
		args["text"] = "output:" + wireOf(l.of)
	}
	if l.to != "" {
		args["to"] = l.to
	}
	args["urgency"] = "low"
	return string(must(json.Marshal(args)))
}

// edited returns the arguments that a person gives a call.
func (s *stage) edited(l line) string {
	if l.tool == turnkeeper.ToolSpawnAgent {
		return fmt.Sprintf(`{"task": "%s, edited", "agent": "scout"}`, wireOf(l.n))
	}
	return fmt.Sprintf(`{"to": "eve@example.com", "n": %d.0}`, 1000+l.n)
}
