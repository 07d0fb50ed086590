package turnkeepertest

import (
	"context"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/demo"
	"turnkeeper/inference/inferencetest"
)

// defaultModel is that of agents that name none.
const defaultModel = "script/model"

// A model plays the scenario's scripts, whatever its name.
type model struct {
	world  *world
	script *inferencetest.Script // keeps the requests
}

func newModel(w *world) *model {
	m := &model{world: w}
	m.script = inferencetest.NewScript().Then(m.answer)
	if w.scenario.Provider != nil {
		m.script.Then(w.scenario.Provider.Generate)
	}
	return m
}

// Find is the model of any name.
func (m *model) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	provider, own, _ := strings.Cut(name, "/")
	return m.script, agentturn.ModelInfo{Provider: provider, Model: own}, nil
}

// answer plays the step of the round that is asked for. A stored result is
// searched as the demo does it.
func (m *model) answer(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	if found, ok := demo.Extraction(req); ok {
		return inference.Response{Text: found, FinishReason: "stop", Usage: turnkeeper.Usage{InputTokens: 1, OutputTokens: 1}}, nil
	}
	exchange := m.world.exchange(ctx.Value(turnKey{}).(turnkeeper.Turn).MessageID)
	round := roundOf(req, exchange.Say)
	if round > len(exchange.Model) {
		m.world.problem("the script has %d steps for %q, and the model was asked for round %d", len(exchange.Model), exchange.Say, round)
		return inference.Response{}, &inference.Error{
			Class: inference.ClassInvalid, Provider: "script", Model: req.Model, Detail: "the script has no more steps",
		}
	}
	return exchange.Model[round-1](ctx, req, onDelta)
}

// roundOf is the round of the turn that a request asks for: what the model is
// shown tells it, whoever else has worked on the turn meanwhile.
func roundOf(req inference.Request, message string) int {
	round := 1
	for _, m := range slices.Backward(req.Messages) {
		switch {
		case m.Role == inference.RoleAssistant:
			round++
		case m.Role == inference.RoleUser && m.Text == message:
			return round
		}
	}
	return round
}

// exchange is the one that a message belongs to.
func (w *world) exchange(id turnkeeper.MessageID) Exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.sent, id); i >= 0 {
		return w.scenario.Talk[i]
	}
	return w.scenario.Talk[len(w.sent)] // it is being sent just now
}
