package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
)

const simulatedModel = "sim/m"

// Find implements agentturn.Models: every process is its own provider.
func (p *process) Find(string) (inference.Provider, agentturn.ModelInfo, error) {
	return p, agentturn.ModelInfo{Provider: "sim", Model: "m"}, nil
}

// Generate is a model that makes random calls after a random time, and may fail.
func (p *process) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	a := actorOf(ctx).branch()
	p.gate(a)
	if class := p.env.modelFault(); class != "" {
		return inference.Response{}, &inference.Error{Class: class, Provider: "sim", Model: "m",
			Detail: "the provider is unavailable"}
	}
	if err := p.env.signer.Check(req); err != nil {
		return inference.Response{}, err
	}
	took := a.between(50*time.Millisecond, 3*time.Second)
	if !p.env.isQuiet() && a.chance(0.1) {
		took = a.between(0, 100*time.Second)
	}
	res := repeat(req, a.answer(req))
	if a.chance(0.2) && res.Text != "" { // a slow stream is written in parts
		onDelta(inference.Delta{Kind: inference.DeltaText, Text: res.Text[:1]})
		if !sleep(ctx, took/2+300*time.Millisecond) {
			return res, context.Cause(ctx)
		}
		p.gate(a)
		if ctx.Err() != nil { // ended while the process was stopped: whether the delta still arrived would be chance
			return res, context.Cause(ctx)
		}
		onDelta(inference.Delta{Kind: inference.DeltaText, Text: res.Text[1:]})
	}
	if !sleep(ctx, took) {
		return res, context.Cause(ctx)
	}
	p.gate(a)
	if p.env.isQuiet() {
		return p.env.signer.Sign(req, res), nil
	}
	if isPoison(req) && a.chance(0.8) {
		p.kill("poison")
		p.gate(a)
	}
	switch draw := a.Float64(); {
	case draw < p.env.profile.modelFails:
		return res, &inference.Error{Class: inference.ClassOverloaded, Provider: "sim", Model: "m",
			Detail: "on purpose"}
	case draw < p.env.profile.modelFails*1.3:
		return res, &inference.Error{Class: inference.ClassInvalid, Provider: "sim", Model: "m", Detail: "on purpose"}
	}
	return p.env.signer.Sign(req, res), nil
}

const poison = "poison"

func isPoison(req inference.Request) bool {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if m := req.Messages[i]; m.Role == inference.RoleUser && !strings.HasPrefix(m.Text, "# System Notice") {
			return m.Text == poison
		}
	}
	return false
}

// mayWait reports whether the request offers the tool that waits.
func mayWait(req inference.Request) bool {
	return slices.ContainsFunc(req.Tools, func(t inference.ToolDefinition) bool {
		return t.Name == turnkeeper.ToolWaitForToolOutput
	})
}

// spawnable returns the agents that the request may spawn.
func spawnable(req inference.Request) []string {
	for _, tool := range req.Tools {
		if tool.Name != turnkeeper.ToolSpawnAgent {
			continue
		}
		var schema struct {
			Properties struct{ Agent struct{ Enum []string } }
		}
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil {
			panic(err)
		}
		return schema.Properties.Agent.Enum
	}
	return nil
}

func (a *actor) answer(req inference.Request) inference.Response {
	res := inference.Response{Provider: "sim", Model: "m", FinishReason: "stop",
		Usage: turnkeeper.Usage{InputTokens: 10, OutputTokens: 5}}
	calls := 0
	if a.chance(0.75) {
		calls = 1 + a.IntN(3)
	}
	if req.ToolChoice == inference.ToolChoiceNone && a.chance(0.8) {
		calls = 0
	}
	for i := range calls {
		name := toolNames[a.IntN(len(toolNames))]
		if a.chance(0.02) {
			name = "nonsense"
		}
		if agents := spawnable(req); len(agents) > 0 && a.chance(0.2) {
			res.Calls = append(res.Calls, inference.Call{ID: fmt.Sprint("call_", i), Name: turnkeeper.ToolSpawnAgent,
				Arguments: fmt.Sprintf(
					`{"agent":%q,"task":"task %d","async":%t}`, agents[a.IntN(len(agents))], a.IntN(1000),
					a.chance(0.4))})
			continue
		}
		if mayWait(req) && a.chance(0.3) {
			res.Calls = append(res.Calls, inference.Call{ID: fmt.Sprint("call_", i),
				Name: turnkeeper.ToolWaitForToolOutput, Arguments: "{}"})
			continue
		}
		res.Calls = append(res.Calls, inference.Call{
			ID: fmt.Sprint("call_", i), Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, a.IntN(6)),
		})
	}
	if calls == 0 || a.chance(0.3) {
		res.Text = "an answer"
	}
	if calls == 0 && a.chance(0.02) {
		res.Text = ""
	}
	return res
}
