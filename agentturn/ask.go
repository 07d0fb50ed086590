package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/transcript"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
)

// ask makes the model call of the next round.
func (t *execution) ask(ctx context.Context) (state, error) {
	if t.pending.Round != nil || len(t.pending.Results) > 0 {
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
func (t *execution) generate(ctx context.Context) (answer, error) {
	all, err := t.models.candidates()
	if err != nil {
		return answer{}, err
	}
	models := t.models.usable(all, t.rounds.effected())
	if len(models) == 0 {
		return answer{}, t.models.faultOf(all, nil, t.models.allDown(all))
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	call := &modelCall{t: t, ctx: ctx, number: len(t.rounds) + 1, final: t.rounds.nextIsLast(t.bounds), stop: stop}
	call.at = t.moment(call.final)
	call.stream = t.events.NewStream(call.number, transcript.RoundStartData{Of: t.bounds.MaxRounds, Final: call.final})
	t.stream = call.stream

	started := time.Now()
	res, err := call.ask(ctx, models)
	for times := 1; err != nil; times++ {
		if cause := call.unwritable; cause != nil {
			return answer{}, cause
		}
		if ctx.Err() == nil { // else it says nothing of the models
			err = t.models.faultOf(all, call.given, err)
		}
		wait, again := longPause(ctx, err, times, t.rounds.effected())
		if !again {
			return answer{}, call.failed(ctx, err)
		}
		call.longRetried(err, wait)
		if err := pauseFor(ctx, wait); err != nil {
			return answer{}, err
		}
		res, err = call.ask(ctx, all)
	}
	if cause := call.unwritable; cause != nil {
		return answer{}, cause
	}
	t.models.answered(&t.pending, call.answered)
	t.stream.Complete(res)
	t.stream = nil
	res.Attempts += call.again
	return answer{number: call.number, final: call.final, latency: time.Since(started), sent: call.sent, Response: res}, nil
}

// A modelCall is the model call of one round, through all its attempts.
type modelCall struct {
	t      *execution
	ctx    context.Context //nolint:containedctx // of the call, through all its attempts
	number int
	final  bool
	at     prompt.Moment
	stream *transcript.Stream
	// unwritable is why events of the stream could not be written; the call is over.
	unwritable error
	stop       context.CancelCauseFunc // ends the call, whatever attempts are left
	again      int                     // attempts beside those that the chain counts
	sends      int                     // requests sent, for the Observer
	sent       prompt.Request          // of the newest answer

	answered string                      // the model that has answered
	given    map[string]*inference.Error // failures of the models that the chain gave up, by name
}

// ask asks the models in turn, each through its retries.
func (c *modelCall) ask(ctx context.Context, models []*candidate) (inference.Response, error) {
	retry := c.t.cfg.Retry
	retry.Provider, retry.OnRetry = nil, c.retried
	c.given = map[string]*inference.Error{}
	clear(c.t.models.health.asked)
	chain := inference.Chain{Retry: retry, OnGiveUp: func(i int, err *inference.Error) {
		c.given[models[i].name] = err
		c.t.models.gaveUp(&c.t.pending, models[i].name, err)
	}}
	for _, model := range models {
		chain.Models = append(chain.Models, inference.Candidate{
			Name: model.Provider, Model: model.Model.Name, Provider: &attempt{c, model}, Once: c.t.models.health.probed(model.name),
		})
	}
	return chain.Generate(ctx, inference.Request{}, c.delta)
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
	request, err := a.t.prompt.Build(a.model.Model, a.at)
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
func (a *attempt) send(ctx context.Context, request prompt.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	spend, err := a.t.reserve(ctx, request)
	if err != nil {
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request.Request)
	a.sends++
	a.t.models.health.asked[a.model.name] = true
	ctx, told := a.observe(ctx, PurposeRound, a.sends, request.Request)
	a.t.at(ctx, PointModelBefore)
	started, heard := time.Now(), &overheard{}
	res, err := a.listen(ctx, a.model.provider, request.Request, func(d inference.Delta) {
		heard.hear(d)
		onDelta(d)
	})
	if err != nil {
		told(ModelEnd{Err: err})
		used := failedUsage(err, int64(request.Tokens), heard, a.model.Tokens.Counter)
		a.failed(err, heard, used, time.Since(started))
		a.t.settleSpend(ctx, spend, used)
		return inference.Response{}, err
	}
	a.debug("model response", res)
	a.sent = a.answeredTo(request, res)
	res.Usage = a.usageOf(res, request.Tokens)
	told(ModelEnd{Response: res})
	a.t.settleSpend(ctx, spend, res.Usage)
	res.Text = cmp.Or(res.Text, res.Refusal)
	if inference.Blank(res.Text) && len(res.Calls) == 0 {
		err := &inference.Error{
			Class: inference.ClassBadOutput, Provider: a.model.Provider, Model: a.model.Model.Name, Detail: "the answer is empty",
		}
		a.failed(err, heard, res.Usage, time.Since(started))
		return inference.Response{}, err
	}
	a.answered = a.model.name
	return res, nil
}

// answeredTo completes a request that was answered, for the record.
func (a *attempt) answeredTo(request prompt.Request, res inference.Response) prompt.Request {
	request = a.t.prompt.Answered(a.model.Model, a.t.rounds, request, res)
	if r := request.Recipe; r.Cut {
		a.t.log.Warn("the provider seems to have cut the request: it counted far fewer tokens than were sent",
			zap.String("model", a.model.Provider+"/"+a.model.Model.Name), zap.Int("round", len(a.t.rounds)+1),
			zap.Int("estimated_tokens", r.Window.Corrected()), zap.Int64("reported_tokens", res.Usage.InputTokens),
			zap.Int64("cached_tokens", res.Usage.CachedTokens), zap.Int("context_window", r.Window.Size))
	}
	return request
}

// compact makes a smaller request of one that was refused as too long; ok is false where
// err is something else, where it was done before in this turn, or where no smaller one
// can be made.
func (a *attempt) compact(refused prompt.Request, err error) (smaller prompt.Request, ok bool) {
	if !a.t.prompt.Refuse(a.model.Model, a.at, refused, err) {
		return prompt.Request{}, false
	}
	failure, _ := errors.AsType[*inference.Error](err)
	smaller, tooLong := a.t.prompt.Build(a.model.Model, a.at)
	a.t.log.Warn("the provider refused the request as too long; it is cut down and sent once more",
		zap.Int("round", a.number), zap.String("model", a.model.Provider+"/"+a.model.Model.Name),
		zap.Int("context_window", refused.Recipe.Window.Size), zap.Int("their_window", failure.Limit), zap.Int("tokens", refused.Tokens),
		zap.Int("room", a.t.prompt.Room()), zap.Int("tokens_then", smaller.Tokens),
		zap.NamedError("refusal", err), zap.NamedError("too_long_still", tooLong))
	return smaller, tooLong == nil && smaller.Tokens < refused.Tokens
}

// observe tells of a request that is about to be sent.
func (a *attempt) observe(ctx context.Context, purpose ModelPurpose, n int, request inference.Request) (context.Context, func(ModelEnd)) {
	return a.t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: purpose, Agent: a.t.record.Turn.Agent, Provider: a.model.Provider, Model: a.model.Model.Name,
		Attempt: n, Request: request,
	})
}

// debug logs what goes to a model or comes from it, as text, so that whatever
// masks secrets in the log finds them.
func (a *attempt) debug(message string, content any) {
	logContent(a.t.log, message, content, zap.Int("round", a.number), zap.String("model", a.model.Model.Name))
}

func logContent(log *zap.Logger, message string, content any, fields ...zap.Field) {
	entry := log.Check(zap.DebugLevel, message)
	if entry == nil {
		return
	}
	text, err := json.Marshal(content)
	if err != nil {
		text = []byte(err.Error())
	}
	entry.Write(append(fields, zap.String("content", string(text)))...)
}

// usageOf is what an answer took, estimated where the provider did not say.
func (a *attempt) usageOf(res inference.Response, requestTokens int) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	return turnkeeper.Usage{InputTokens: int64(requestTokens), OutputTokens: int64(a.model.Tokens.Answer(res)), Estimated: true}
}

// abandonAttempt voids what the model call under way has streamed, for another
// attempt.
func (t *execution) abandonAttempt(reason string) {
	if t.stream != nil {
		t.stream.Rollback(reason)
	}
}

// abandonStream does so for good.
func (t *execution) abandonStream(reason string) {
	t.abandonAttempt(reason)
	t.stream = nil
}
