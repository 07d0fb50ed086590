package agentturn

import (
	"cmp"
	"errors"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference"
	"turnkeeper/internal/survival"
)

// A candidate is a model of a chain.
type candidate struct {
	ref      string // "provider/model", as configured
	provider inference.Provider
	prompt.Model
}

// find looks up models by name, in order, and returns an error for each that is not
// configured. own is the agent's first model.
func (t *task) find(names []string, own string, cache *prompt.Cache) (found []*candidate, problems []error) {
	for _, name := range names {
		provider, info, err := t.cfg.Models.Find(name)
		if err != nil {
			problems = append(problems, &missingModel{name, err})
			continue
		}
		found = append(found, &candidate{name, provider, prompt.Model{
			Provider: info.Provider, Name: info.Model, Form: inference.FormOf(provider),
			Window: t.window(info, name == own),
			Tokens: prompt.NewCounts(t.cfg.counter(name), name, cache),
		}})
	}
	return found, problems
}

// A missingModel is the error of a model that is not configured.
type missingModel struct {
	name string
	err  error
}

func (e *missingModel) Error() string { return e.err.Error() }

// window returns the context window of a model, in tokens. The agent's setting overrides
// the known window of its own model, and is the default for models with an unknown one.
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

// models holds the agent's chain of models and their health.
type models struct {
	*task
	cache     *prompt.Cache    // of the process
	chain     []*candidate     // set by the first model call at a survival level
	level     survival.Level   // for which chain was chosen
	health    modelHealth      // of models that are down
	sideUsage turnkeeper.Usage // of summaries, to be added to the next round
}

// candidates returns the agent's models in the order they are asked: its own or the
// default, then its fallbacks. It skips models that are not configured, and fails if none
// is.
func (m *models) candidates() ([]*candidate, error) {
	level := m.levelNow()
	if m.chain != nil && m.level == level {
		return m.chain, nil
	}
	names := m.def.ChainAt(level, m.cfg.DefaultModel)
	if len(names) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid,
			Detail: "the agent has no model and there is no default; set `model` in the agent's file, or a default model in the configuration"}
	}
	found, problems := m.find(names, m.ownModel(), m.cache)
	for _, err := range problems {
		missing, _ := errors.AsType[*missingModel](err)
		m.log.Warn("skipping a model of the agent", zap.String("model", missing.name), zap.Error(missing.err))
	}
	if len(found) == 0 {
		return nil, m.unconfigured(names, &inference.Error{Class: inference.ClassNotFound,
			Detail: errors.Join(problems...).Error()})
	}
	m.chain, m.level = found, level
	return found, nil
}

// sideModels returns the models for a side call. It skips models that are not configured,
// and fails if none is.
func (t *task) sideModels(names []string) ([]*candidate, error) {
	found, problems := t.find(names, t.ownModel(), nil)
	if len(found) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid, Detail: errors.Join(problems...).Error()}
	}
	return found, nil
}

// modelNames returns the names of the agent's chain at its survival level, without duplicates.
func (t *task) modelNames() []string { return t.def.ChainAt(t.levelNow(), t.cfg.DefaultModel) }

// ownModel returns the name of the agent's first model at its normal level, which is the one that its context_window is
// of.
func (t *task) ownModel() string { return cmp.Or(t.def.Model, t.cfg.DefaultModel) }

// sideAnswer returns the number of tokens reserved for the answer of a side call.
func (m *candidate) sideAnswer(d *agentdef.Definition) int { return min(d.OutputTokens(), m.Window/4) }

// sideUsage returns the usage of a side call, estimated if the provider reported none. It
// is safe for concurrent use.
func sideUsage(m *candidate, res inference.Response, estimate turnkeeper.Usage) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	counter := m.Tokens.Counter
	estimate.OutputTokens = int64(counter.CountText(res.Text) + counter.CountText(res.Reasoning))
	return estimate
}
