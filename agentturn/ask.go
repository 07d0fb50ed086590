package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/pause"
)

// ask makes the model call of the next round.
func (t *turn) ask(ctx context.Context) (state, error) {
	if t.next.Round != nil || len(t.next.Results) > 0 {
		if err := t.commit(ctx); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx = t.enterRound(ctx, len(t.rounds)+1, false)
	a, err := t.generate(ctx)
	t.at(ctx, PointModelAfter)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (state, error) { return t.plan(ctx, a) }, nil
}

// generate calls the models of the chain until one answers.
func (t *turn) generate(ctx context.Context) (answer, error) {
	all, err := t.candidates()
	if err != nil {
		return answer{}, err
	}
	models := t.usable(all)
	if len(models) == 0 {
		return answer{}, t.faultOf(all, nil, t.allDown(all))
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	call := &modelCall{t: t, number: len(t.rounds) + 1, final: t.lastRound(), stop: stop}
	t.stream = &stream{t: t, ctx: ctx, round: call.number, final: call.final, stop: stop}

	started := time.Now()
	res, err := call.ask(ctx, models)
	for times := 1; err != nil; times++ {
		if cause := t.stream.err; cause != nil {
			return answer{}, cause
		}
		if ctx.Err() == nil { // else it says nothing of the models
			err = t.faultOf(all, call.given, err)
		}
		wait, again := t.longPause(ctx, err, times)
		if !again {
			return answer{}, call.failed(ctx, err)
		}
		call.longRetried(err, wait)
		if err := pause.For(ctx, wait); err != nil {
			return answer{}, err
		}
		res, err = call.ask(ctx, all)
	}
	if cause := t.stream.err; cause != nil {
		return answer{}, cause
	}
	t.answeredBy(call.answered)
	t.stream.complete(res)
	t.stream = nil
	res.Attempts += call.again
	return answer{number: call.number, final: call.final, latency: time.Since(started), sent: call.sent, Response: res}, nil
}

// A modelCall is the model call of one round, through all its attempts.
type modelCall struct {
	t      *turn
	number int
	final  bool
	stop   context.CancelCauseFunc // ends the call, whatever attempts are left
	again  int                     // attempts beside those that the chain counts
	sends  int                     // requests sent, for the Observer
	sent   sentRequest             // of the newest answer

	answered string                      // the model that has answered
	given    map[string]*inference.Error // failures of the models that the chain gave up, by name
}

// ask asks the models in turn, each through its retries.
func (c *modelCall) ask(ctx context.Context, models []*candidate) (inference.Response, error) {
	retry := c.t.cfg.Retry
	retry.Provider, retry.OnRetry = nil, c.retried
	c.given = map[string]*inference.Error{}
	clear(c.t.health.asked)
	chain := inference.Chain{Retry: retry, OnGiveUp: func(i int, err *inference.Error) {
		c.given[models[i].name] = err
		c.t.gaveUp(models[i].name, err)
	}}
	for _, model := range models {
		chain.Models = append(chain.Models, inference.Candidate{
			Name: model.info.Provider, Model: model.info.Model, Provider: &attempt{c, model}, Once: c.t.health.probed(model.name),
		})
	}
	return chain.Generate(ctx, inference.Request{}, c.t.stream.delta)
}

// longRetried tells that the whole chain has failed and is asked again after a pause.
func (c *modelCall) longRetried(err error, wait time.Duration) {
	failure, ok := errors.AsType[*inference.Error](err)
	if !ok {
		failure = &inference.Error{Class: inference.ClassTransport}
	}
	c.retried(failure.Attempts, failure, wait)
	c.again += failure.Attempts
}

func (c *modelCall) retried(attempt int, err *inference.Error, wait time.Duration) {
	c.t.log.Warn("model call failed, trying again", zap.Int("round", c.number), zap.Int("attempt", attempt+c.again),
		zap.String("class", string(err.Class)), zap.Duration("wait", wait), zap.Error(err))
	c.t.abandonAttempt(string(err.Class))
}

// failed tells an announced last round in which the model said nothing, or
// something its own server could not read, from a call that failed.
func (c *modelCall) failed(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*inference.Error](err); ok && ctx.Err() == nil && c.final && e.Class == inference.ClassBadOutput {
		return &silentError{err}
	}
	return err
}

// An attempt is the Provider of one model within a round's call: each Generate
// is one attempt at a request that fits that model, checked by the budget.
type attempt struct {
	*modelCall
	model *candidate
}

func (a *attempt) Generate(ctx context.Context, _ inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	request, err := a.t.compose(a.model, a.final)
	if err != nil {
		return inference.Response{}, err
	}
	if request, err = a.withSummary(ctx, request); err != nil {
		return inference.Response{}, err
	}
	res, err := a.send(ctx, request, onDelta)
	if smaller, ok := a.compact(request, err); ok {
		a.t.abandonAttempt(string(inference.ClassContextOverflow))
		a.again++
		return a.send(ctx, smaller, onDelta)
	}
	return res, err
}

// send makes one call with a request.
func (a *attempt) send(ctx context.Context, request composed, onDelta func(inference.Delta)) (inference.Response, error) {
	spend, err := a.t.reserve(ctx, request)
	if err != nil {
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request.Request)
	a.sends++
	a.t.health.asked[a.model.name] = true
	ctx, told := a.observe(ctx, PurposeRound, a.sends, request.Request)
	a.t.at(ctx, PointModelBefore)
	started, heard := time.Now(), &overheard{}
	res, err := a.t.stream.listen(ctx, a.model.provider, request.Request, func(d inference.Delta) {
		heard.hear(d)
		onDelta(d)
	})
	if err != nil {
		told(ModelEnd{Err: err})
		used := failedUsage(err, int64(request.tokens), heard, a.model.tokens.counter)
		a.failed(err, heard, used, time.Since(started))
		a.t.settleSpend(ctx, spend, used)
		return inference.Response{}, err
	}
	a.debug("model response", res)
	a.sent = a.t.sent(a.model, request, res)
	res.Usage = a.usageOf(res, request.tokens)
	told(ModelEnd{Response: res})
	a.t.settleSpend(ctx, spend, res.Usage)
	res.Text = cmp.Or(res.Text, res.Refusal)
	if inference.Blank(res.Text) && len(res.Calls) == 0 {
		err := &inference.Error{
			Class: inference.ClassBadOutput, Provider: a.model.info.Provider, Model: a.model.info.Model, Detail: "the answer is empty",
		}
		a.failed(err, heard, res.Usage, time.Since(started))
		return inference.Response{}, err
	}
	a.answered = a.model.name
	return res, nil
}

// observe tells of a request that is about to be sent.
func (a *attempt) observe(ctx context.Context, purpose ModelPurpose, n int, request inference.Request) (context.Context, func(ModelEnd)) {
	return a.t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: purpose, Agent: a.t.record.Turn.Agent, Provider: a.model.info.Provider, Model: a.model.info.Model,
		Attempt: n, Request: request,
	})
}

// debug logs what goes to a model or comes from it, as text, so that whatever
// masks secrets in the log finds them.
func (a *attempt) debug(message string, content any) {
	entry := a.t.log.Check(zap.DebugLevel, message)
	if entry == nil {
		return
	}
	text, err := json.Marshal(content)
	if err != nil {
		text = []byte(err.Error())
	}
	entry.Write(zap.Int("round", a.number), zap.String("model", a.model.info.Model), zap.String("content", string(text)))
}

// usageOf is what an answer took, estimated where the provider did not say.
func (a *attempt) usageOf(res inference.Response, requestTokens int) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	out := a.model.tokens.prose(res.Text) + a.model.tokens.prose(res.Reasoning)
	for _, call := range res.Calls {
		out += a.model.tokens.json(call.Arguments) + callTokens
	}
	return turnkeeper.Usage{InputTokens: int64(requestTokens), OutputTokens: int64(out), Estimated: true}
}
