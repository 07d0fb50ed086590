package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// A sideCall is a model call beside the turn's rounds, through all its attempts. It
// touches nothing of the turn that changes, so several may run at once.
type sideCall struct {
	t       *task
	purpose ModelPurpose
	log     *zap.Logger
	models  []*candidate // asked one after the other
	retry   inference.Retry
	logged  bool   // with its content, at debug level
	retried string // logged when an attempt has failed and another follows
	// request makes the request for a model, with what it is taken to use. One that does
	// not fit is an error, and is not sent.
	request func(m *candidate) (inference.Request, turnkeeper.Usage, error)
	account func(turnkeeper.Usage) // takes what an attempt used
	// accept takes an answer or says why it is none.
	accept func(m *candidate, res *inference.Response) error
	stop   context.CancelCauseFunc // cancels the call and all its retries

	blocked error // why the budget did not allow an attempt; nil: it did
}

// ask has the models answer, each with its retries.
func (c *sideCall) ask(ctx context.Context) (inference.Response, error) {
	ctx, c.stop = context.WithCancelCause(ctx)
	defer c.stop(nil)
	retry := c.retry
	retry.Provider = nil
	retry.OnRetry = func(attempt int, err *inference.Error, wait time.Duration) {
		c.log.Warn(c.retried, zap.Int("attempt", attempt),
			zap.String("class", string(err.Class)), zap.Duration("wait", wait), zap.Error(err))
	}
	chain := inference.Chain{Retry: retry}
	for _, m := range c.models {
		chain.Models = append(chain.Models, inference.Candidate{Name: m.Provider, Model: m.Name, Provider: &sideAttempt{c, m}})
	}
	return chain.Generate(ctx, inference.Request{}, nil)
}

// A sideAttempt is the Provider of one model within a side call: each Generate is one
// attempt, which the budget is asked for and which is accounted.
type sideAttempt struct {
	*sideCall
	model *candidate
}

func (a *sideAttempt) Generate(ctx context.Context, _ inference.Request, _ func(inference.Delta)) (inference.Response, error) {
	request, estimate, err := a.request(a.model)
	if err != nil {
		return inference.Response{}, err
	}
	spend, err := a.t.reserveCall(ctx, estimate)
	if err != nil {
		a.blocked = err
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request)
	ctx, told := a.t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: a.purpose, Agent: a.t.record.Turn.Agent, Provider: a.model.Provider, Model: a.model.Name, Request: request,
	})
	heard := &overheard{}
	res, err := a.model.provider.Generate(ctx, request, heard.hear)
	if err != nil {
		told(ModelEnd{Err: err})
		used := failedUsage(err, estimate.InputTokens, heard, a.model.Tokens.Counter)
		a.account(used)
		a.t.settleSpend(ctx, spend, used)
		return inference.Response{}, err
	}
	res.Usage = sideUsage(a.model, res, estimate)
	told(ModelEnd{Response: res})
	a.debug("model response", res)
	a.account(res.Usage)
	a.t.settleSpend(ctx, spend, res.Usage)
	if err := a.accept(a.model, &res); err != nil {
		return inference.Response{}, err
	}
	return res, nil
}

// debug logs what goes to a model or comes from it, as rounds do.
func (a *sideAttempt) debug(message string, content any) {
	if a.logged {
		logContent(a.log, message, content, zap.String("purpose", string(a.purpose)), zap.String("model", a.model.Name))
	}
}

// failure is an error of a call of the model.
func (m *candidate) failure(class inference.Class, detail string) error {
	return &inference.Error{Class: class, Provider: m.Provider, Model: m.Name, Detail: detail}
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
