package agentturn

import (
	"cmp"
	"errors"
	"sync/atomic"

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

// A roster finds the models that an agent may use. They are named in its file, allowed at its survival level, and
// configured in this process. It is safe for concurrent use.
type roster struct {
	cfg *Config
	def *agentdef.Definition
	log *zap.Logger
	// survival.Level of the agent at the newest reservation, or when the record was read; nil: unknown
	level atomic.Value
}

func newRoster(t *task) *roster {
	r := &roster{cfg: t.cfg, def: t.def, log: t.log}
	if level := t.record.Level; level != "" {
		r.level.Store(level)
	}
	return r
}

// at returns the names of the agent's models at a survival level in the order they are asked, without duplicates.
func (r *roster) at(level survival.Level) []string { return r.def.ChainAt(level, r.cfg.DefaultModel) }

// names returns the names of the agent's models at its survival level.
func (r *roster) names() []string { return r.at(r.levelNow()) }

// find looks up models by name, in order, and returns an error for each that is not configured.
func (r *roster) find(names []string, cache *prompt.Cache) (found []*candidate, problems []error) {
	own := cmp.Or(r.def.Model, r.cfg.DefaultModel) // the first at the normal level, which the context_window is of
	for _, name := range names {
		provider, info, err := r.cfg.Models.Find(name)
		if err != nil {
			problems = append(problems, &missingModel{name, err})
			continue
		}
		found = append(found, &candidate{name, provider, prompt.Model{
			Provider: info.Provider, Name: info.Model, Form: inference.FormOf(provider),
			Window: r.window(info, name == own),
			Tokens: prompt.NewCounts(r.cfg.counter(name), name, cache),
		}})
	}
	return found, problems
}

// sideModels returns the models for a side call. It skips models that are not configured,
// and fails if none is.
func (r *roster) sideModels(names []string) ([]*candidate, error) {
	found, problems := r.find(names, nil)
	if len(found) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid, Detail: errors.Join(problems...).Error()}
	}
	return found, nil
}

// A missingModel is the error of a model that is not configured.
type missingModel struct {
	name string
	err  error
}

func (e *missingModel) Error() string { return e.err.Error() }

// window returns the context window of a model, in tokens. The agent's setting overrides
// the known window of its own model, and is the default for models with an unknown one.
func (r *roster) window(info ModelInfo, own bool) int {
	if own {
		return cmp.Or(r.def.ContextWindow, info.ContextWindow, prompt.DefaultWindow)
	}
	return cmp.Or(info.ContextWindow, r.def.ContextWindow, prompt.DefaultWindow)
}

// A levelError is the error of a model call whose model was chosen for another survival level than the agent has.
type levelError struct{ level survival.Level }

func (e *levelError) Error() string { return "the agent's survival level is now " + string(e.level) }

// noteLevel keeps the agent's level for the next choice of a model. It returns a *levelError if the model was chosen
// for another one.
func (r *roster) noteLevel(chosen, now survival.Level) error {
	if now == "" {
		return nil
	}
	if before := r.levelNow(); r.level.Swap(now) != now && before != now {
		r.log.Info("the agent's survival level has changed", zap.String("level", string(now)),
			zap.String("before", string(before)), zap.Strings("models", r.names()))
	}
	if chosen != "" && chosen != now {
		return &levelError{now}
	}
	return nil
}

// levelNow returns the agent's survival level at the newest reservation; before the first, when the record was read.
func (r *roster) levelNow() survival.Level {
	level, ok := r.level.Load().(survival.Level)
	if !ok {
		return survival.Normal
	}
	return level
}

func (c *Config) counter(model string) prompt.TokenCounter {
	if c.Tokens == nil {
		return prompt.HeuristicTokens{}
	}
	return c.Tokens(model)
}

// models holds the agent's chain of models and their health.
type models struct {
	roster   *roster
	log      *zap.Logger
	cache    *prompt.Cache  // of the process
	chain    []*candidate   // set by the first model call at a survival level
	level    survival.Level // for which chain was chosen
	health   modelHealth    // of models that are down
	failures int            // failed turns of the lane in a row
}

// candidates returns the agent's models in the order they are asked: its own or the
// default, then its fallbacks. It skips models that are not configured, and fails if none
// is.
func (m *models) candidates() ([]*candidate, error) {
	level := m.roster.levelNow()
	if m.chain != nil && m.level == level {
		return m.chain, nil
	}
	names := m.roster.at(level)
	if len(names) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid,
			Detail: "the agent has no model and there is no default; set `model` in the agent's file, or a default model in the configuration"}
	}
	found, problems := m.roster.find(names, m.cache)
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
