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

// defaultModel is the model of agents that name none.
const defaultModel = "script/model"

// A model plays the scenario's scripts under any name.
type model struct {
	world  *world
	script *inferencetest.Script // records the requests
}

func newModel(w *world) *model {
	m := &model{world: w}
	m.script = inferencetest.NewScript().Then(m.answer)
	if w.scenario.Provider != nil {
		m.script.Then(w.scenario.Provider.Generate)
	}
	return m
}

// Find returns the model for any name.
func (m *model) Find(name string) (inference.Provider, agentturn.ModelInfo, error) {
	provider, own, _ := strings.Cut(name, "/")
	return m.script, agentturn.ModelInfo{Provider: provider, Model: own}, nil
}

// answer plays the step of the round that the request asks for. It searches a stored
// result as the demo model does.
func (m *model) answer(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if found, ok := demo.Extraction(req); ok {
		return inference.Response{Text: found, FinishReason: "stop", Usage: turnkeeper.Usage{InputTokens: 1,
			OutputTokens: 1}}, nil
	}
	exchange := m.world.exchange(ctx.Value(turnKey{}).(turnkeeper.Turn).MessageID)
	round := roundOf(req, exchange.Say)
	if round > len(exchange.Model) {
		m.world.problem("the script has %d steps for %q, and the model was asked for round %d", len(exchange.Model),
			exchange.Say, round)
		return inference.Response{}, &inference.Error{
			Class: inference.ClassInvalid, Provider: "script", Model: req.Model, Detail: "the script has no more steps",
		}
	}
	return exchange.Model[round-1](ctx, req, onDelta)
}

// roundOf returns the round of the turn that a request asks for. It counts the messages
// of the request, because several workers may have worked on the turn.
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

// exchange returns the Exchange that a message belongs to.
func (w *world) exchange(id turnkeeper.MessageID) Exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.sent, id); i >= 0 {
		return w.scenario.Talk[i]
	}
	return w.scenario.Talk[len(w.sent)] // the message is being sent
}
