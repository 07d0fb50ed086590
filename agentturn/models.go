package agentturn

import (
	"cmp"
	"errors"

	"go.uber.org/zap"

	"turnkeeper/inference"
)

// A candidate is one model of the agent's chain.
type candidate struct {
	name     string // "provider/model", as the agent names it
	provider inference.Provider
	info     ModelInfo
	window   int // tokens
	tokens   *tokenMemo
}

// candidates are the agent's models in the order they are asked: its own or the
// default, then its fallbacks. Those nobody configured are left out, unless no
// other is left.
func (t *turn) candidates() ([]*candidate, error) {
	if t.models != nil {
		return t.models, nil
	}
	names := t.modelNames()
	if len(names) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid,
			Detail: "the agent names no model and there is no default model; set `model` in its file or a default in the configuration"}
	}
	var problems []error
	for i, name := range names {
		provider, info, err := t.cfg.Models.Find(name)
		if err != nil {
			t.log.Warn("a model of the agent cannot be used", zap.String("model", name), zap.Error(err))
			problems = append(problems, err)
			continue
		}
		counts := newTokenMemo(t.cfg.counter(name))
		if exact(counts.counter) {
			counts.model, counts.cache = name, t.counted
		}
		t.models = append(t.models, &candidate{
			name: name, provider: provider, info: info, window: t.window(info, i == 0), tokens: counts,
		})
	}
	if len(t.models) == 0 {
		return nil, t.unconfigured(names, &inference.Error{Class: inference.ClassNotFound, Detail: errors.Join(problems...).Error()})
	}
	return t.models, nil
}

// modelNames are those of the agent's chain, each once.
func (t *turn) modelNames() (names []string) {
	return t.def.Chain(t.cfg.DefaultModel)
}

// window is the context window of a model. What the agent's file says is of its
// own model, and the guess for others of which nothing is known.
func (t *turn) window(info ModelInfo, own bool) int {
	if own {
		return cmp.Or(t.def.ContextWindow, info.ContextWindow, defaultWindow)
	}
	return cmp.Or(info.ContextWindow, t.def.ContextWindow, defaultWindow)
}

func (c Config) counter(model string) TokenCounter {
	if c.Tokens == nil {
		return HeuristicTokens{}
	}
	return c.Tokens(model)
}
