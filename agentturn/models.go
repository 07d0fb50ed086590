package agentturn

import (
	"cmp"
	"errors"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
)

// A candidate is a model that may be asked.
type candidate struct {
	ref      string // "provider/model", as configured
	provider inference.Provider
	prompt.Model
}

// find finds models by name, in order, and returns why some are not among them. own is
// the one that the agent names first.
func (t *task) find(names []string, own string, cache *prompt.Cache) (found []*candidate, problems []error) {
	for _, name := range names {
		provider, info, err := t.cfg.Models.Find(name)
		if err != nil {
			problems = append(problems, &missingModel{name, err})
			continue
		}
		found = append(found, &candidate{name, provider, prompt.Model{
			Provider: info.Provider, Name: info.Model, Window: t.window(info, name == own),
			Tokens: prompt.NewCounts(t.cfg.counter(name), name, cache),
		}})
	}
	return found, problems
}

// A missingModel is a model that nobody configured.
type missingModel struct {
	name string
	err  error
}

func (e *missingModel) Error() string { return e.err.Error() }

// window is the context window of a model. What the agent's file says is of its
// own model, and the guess for others of which nothing is known.
func (t *task) window(info ModelInfo, own bool) int {
	if own {
		return cmp.Or(t.def.ContextWindow, info.ContextWindow, prompt.DefaultWindow)
	}
	return cmp.Or(info.ContextWindow, t.def.ContextWindow, prompt.DefaultWindow)
}

func (c Config) counter(model string) prompt.TokenCounter {
	if c.Tokens == nil {
		return prompt.HeuristicTokens{}
	}
	return c.Tokens(model)
}

// The models of an execution: the agent's chain, and what is known of their health.
type models struct {
	*task
	cache     *prompt.Cache    // of the process
	chain     []*candidate     // found on the first model call
	health    modelHealth      // of models that are down
	sideUsage turnkeeper.Usage // of model calls that are no round, for the next one
}

// candidates are the agent's models in the order they are asked: its own or the
// default, then its fallbacks. Those nobody configured are left out, unless no
// other is left.
func (m *models) candidates() ([]*candidate, error) {
	if m.chain != nil {
		return m.chain, nil
	}
	names := m.modelNames()
	if len(names) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid,
			Detail: "the agent names no model and there is no default model; set `model` in its file or a default in the configuration"}
	}
	found, problems := m.find(names, names[0], m.cache)
	for _, err := range problems {
		missing, _ := errors.AsType[*missingModel](err)
		m.log.Warn("a model of the agent cannot be used", zap.String("model", missing.name), zap.Error(missing.err))
	}
	if len(found) == 0 {
		return nil, m.unconfigured(names, &inference.Error{Class: inference.ClassNotFound, Detail: errors.Join(problems...).Error()})
	}
	m.chain = found
	return found, nil
}

// sideModels finds models that are asked beside the turn's rounds. Those nobody
// configured are left out, unless no other is left.
func (t *task) sideModels(names []string) ([]*candidate, error) {
	found, problems := t.find(names, cmp.Or(t.def.Model, t.cfg.DefaultModel), nil)
	if len(found) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid, Detail: errors.Join(problems...).Error()}
	}
	return found, nil
}

// modelNames are those of the agent's chain, each once.
func (t *task) modelNames() []string { return t.def.Chain(t.cfg.DefaultModel) }

// sideAnswer is how many tokens are left to a model for its answer.
func (t *task) sideAnswer(m *candidate) int { return min(t.def.OutputTokens(), m.Window/4) }

// sideUsage is what an answer to a side call took, estimated where the provider did not
// say. It may be called by several goroutines.
func sideUsage(m *candidate, res inference.Response, estimate turnkeeper.Usage) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	counter := m.Tokens.Counter
	estimate.OutputTokens = int64(counter.CountText(res.Text) + counter.CountText(res.Reasoning))
	return estimate
}
