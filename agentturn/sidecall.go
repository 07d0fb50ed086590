package agentturn

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/survival"
)

// A sideCall is a model call outside the turn's rounds, with all its attempts. It does not
// use the turn's mutable state, so several may run at once.
type sideCall struct {
	task     *task
	spending *spending
	purpose  ModelPurpose
	log      *zap.Logger
	models   []*candidate // asked one after the other
	retry    inference.Retry
	level    survival.Level               // for which the models were chosen; empty: they do not depend on it
	again    func() ([]*candidate, error) // chooses the models again; nil: never
	logged   bool                         // log the content at debug level
	retried  string                       // log message before a retry
	within   time.Duration                // limit of the time of an answer, without the reservation; 0: the provider's
	// request builds the request for a model and estimates its usage. It returns an error
	// if the request does not fit.
	request func(m *candidate) (inference.Request, turnkeeper.Usage, error)
	account func(turnkeeper.Usage) // receives the usage of each attempt
	// accept checks and completes an answer. An error makes it a failed attempt.
	accept func(m *candidate, res *inference.Response) error
	stop   context.CancelCauseFunc // cancels the call and all its retries

	blocked error // set if the budget blocked an attempt
}

// ask asks the models one after the other, each with its retries. If the agent's survival level has changed since they
// were chosen, it chooses again.
func (c *sideCall) ask(ctx context.Context) (inference.Response, error) {
	for {
		res, err := c.askOnce(ctx)
		changed, ok := errors.AsType[*levelError](c.blocked)
		if !ok || c.again == nil {
			return res, err
		}
		c.level, c.blocked = changed.level, nil
		if c.models, err = c.again(); err != nil {
			return inference.Response{}, err
		}
	}
}

func (c *sideCall) askOnce(ctx context.Context) (inference.Response, error) {
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
		chain.Models = append(chain.Models, inference.Candidate{Name: m.Provider, Model: m.Name,
			Provider: &sideAttempt{c, m}})
	}
	return chain.Generate(ctx, inference.Request{}, nil)
}

// A sideAttempt is the Provider of one model within a side call. Each Generate is one
// attempt, reserved in the budget and accounted.
type sideAttempt struct {
	*sideCall
	model *candidate
}

func (a *sideAttempt) Generate(ctx context.Context, _ inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	request, estimate, err := a.request(a.model)
	if err != nil {
		return inference.Response{}, err
	}
	spend, err := a.spending.reserve(ctx, estimate, a.level)
	if err != nil {
		a.blocked = err
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request)
	ctx, end := a.task.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: a.purpose, Agent: a.task.record.Turn.Agent, Provider: a.model.Provider, Model: a.model.Name,
		Request: request,
	})
	partial := &partialAnswer{}
	res, err := a.generate(ctx, request, partial.add)
	if err != nil {
		end(ModelEnd{Err: err})
		used := failedUsage(err, estimate.InputTokens, partial, a.model.Tokens.Counter)
		a.account(used)
		a.spending.settle(ctx, spend, used)
		return inference.Response{}, err
	}
	res.Usage = sideUsage(a.model, res, estimate)
	end(ModelEnd{Response: res})
	a.debug("model response", res)
	a.account(res.Usage)
	a.spending.settle(ctx, spend, res.Usage)
	if err := a.accept(a.model, &res); err != nil {
		return inference.Response{}, err
	}
	return res, nil
}

// generate sends the request to the model. It fails with class transport if the answer takes too long.
func (a *sideAttempt) generate(ctx context.Context, request inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if a.within == 0 {
		return a.model.provider.Generate(ctx, request, onDelta)
	}
	late := a.model.failure(inference.ClassTransport, "no answer to a "+string(a.purpose)+" within "+a.within.String())
	limited, stop := context.WithTimeoutCause(ctx, a.within, late)
	defer stop()
	res, err := a.model.provider.Generate(limited, request, onDelta)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = late
	}
	return res, err
}

// debug logs a request or response at debug level, if the call's content is logged.
func (a *sideAttempt) debug(message string, content any) {
	if a.logged {
		logContent(a.log, message, content, zap.String("purpose", string(a.purpose)), zap.String("model", a.model.Name))
	}
}

// failure returns an *inference.Error of a call of the model.
func (m *candidate) failure(class inference.Class, detail string) error {
	return &inference.Error{Class: class, Provider: m.Provider, Model: m.Name, Detail: detail}
}

// sideReason describes the failure of a model call for a tool or a model. It reveals nothing
// about the worker's configuration.
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
