package agentturn

import (
	"cmp"
	"errors"

	"turnkeeper"
	"turnkeeper/inference"
)

// A sideModel is one model that may be asked beside the turn's rounds, by several
// goroutines at once.
type sideModel struct {
	name     string // as configured
	provider inference.Provider
	info     ModelInfo
	window   int // tokens
	tokens   TokenCounter
}

// sideModels finds models by name. Those nobody configured are left out, unless no
// other is left.
func (t *turn) sideModels(names []string) (models []*sideModel, err error) {
	var problems []error
	for _, name := range names {
		provider, info, err := t.cfg.Models.Find(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		own := name == cmp.Or(t.def.Model, t.cfg.DefaultModel)
		models = append(models, &sideModel{name, provider, info, t.window(info, own), t.cfg.counter(name)})
	}
	if len(models) == 0 {
		return nil, &inference.Error{Class: inference.ClassInvalid, Detail: errors.Join(problems...).Error()}
	}
	return models, nil
}

// sideAnswer is how many tokens are left to a model for its answer.
func (t *turn) sideAnswer(m *sideModel) int { return min(t.def.OutputTokens(), m.window/4) }

// usageOf is what an answer took, estimated where the provider did not say.
func (m *sideModel) usageOf(res inference.Response, estimate turnkeeper.Usage) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	estimate.OutputTokens = int64(m.tokens.CountText(res.Text) + m.tokens.CountText(res.Reasoning))
	return estimate
}

// sideReason is what may be told of a model call that failed. It says nothing of
// how the worker is set up.
func sideReason(err error) string {
	if _, ok := errors.AsType[*blockedError](err); ok {
		return "the budget allows no more model calls"
	}
	failure, ok := errors.AsType[*inference.Error](err)
	if !ok {
		return "something went wrong inside the service"
	}
	switch failure.Class {
	case inference.ClassRateLimited, inference.ClassOverloaded, inference.ClassTransport:
		return "the model could not be reached"
	case inference.ClassBadOutput:
		return "the model gave no usable answer"
	case inference.ClassContextOverflow:
		return "the text does not fit into the model's window"
	case inference.ClassRefused:
		return "the model declined to answer"
	default:
		return "the model is not available at present"
	}
}
