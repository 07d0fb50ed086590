package agentturn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/transcript"
	"turnkeeper/inference"
	"turnkeeper/internal/pause"
	"turnkeeper/outputs"
)

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
		if err := pause.For(ctx, wait); err != nil {
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
	stop       context.CancelCauseFunc // cancels the call and all its retries
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
		c.given[models[i].ref] = err
		c.t.models.gaveUp(&c.t.pending, models[i].ref, err)
	}}
	for _, model := range models {
		chain.Models = append(chain.Models, inference.Candidate{
			Name: model.Provider, Model: model.Name, Provider: &attempt{c, model}, Once: c.t.models.health.probed(model.ref),
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
	c.stream.Rollback(string(err.Class))
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
		a.stream.Rollback(string(inference.ClassContextOverflow))
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
	a.t.models.health.asked[a.model.ref] = true
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
			Class: inference.ClassBadOutput, Provider: a.model.Provider, Model: a.model.Name, Detail: "the answer is empty",
		}
		a.failed(err, heard, res.Usage, time.Since(started))
		return inference.Response{}, err
	}
	a.answered = a.model.ref
	return res, nil
}

// answeredTo completes a request that was answered, for the record.
func (a *attempt) answeredTo(request prompt.Request, res inference.Response) prompt.Request {
	request = a.t.prompt.Answered(a.model.Model, a.t.rounds, request, res)
	if r := request.Recipe; r.Cut {
		a.t.log.Warn("the provider seems to have cut the request: it counted far fewer tokens than were sent",
			zap.String("model", a.model.Provider+"/"+a.model.Name), zap.Int("round", len(a.t.rounds)+1),
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
		zap.Int("round", a.number), zap.String("model", a.model.Provider+"/"+a.model.Name),
		zap.Int("context_window", refused.Recipe.Window.Size), zap.Int("their_window", failure.Limit), zap.Int("tokens", refused.Tokens),
		zap.Int("room", a.t.prompt.Room()), zap.Int("tokens_then", smaller.Tokens),
		zap.NamedError("refusal", err), zap.NamedError("too_long_still", tooLong))
	return smaller, tooLong == nil && smaller.Tokens < refused.Tokens
}

// observe tells of a request that is about to be sent.
func (a *attempt) observe(ctx context.Context, purpose ModelPurpose, n int, request inference.Request) (context.Context, func(ModelEnd)) {
	return a.t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: purpose, Agent: a.t.record.Turn.Agent, Provider: a.model.Provider, Model: a.model.Name,
		Attempt: n, Request: request,
	})
}

// debug logs what goes to a model or comes from it, as text, so that whatever
// masks secrets in the log finds them.
func (a *attempt) debug(message string, content any) {
	logContent(a.t.log, message, content, zap.Int("round", a.number), zap.String("model", a.model.Name))
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

// ahead is how many pieces a stream may be ahead of the turn: a short answer comes
// whole without waiting for it piece by piece.
const ahead = 64

// listen makes a model call and hands on what it streams. Text of the round's stream
// is written when it has waited long enough, whether or not more comes. The call has a
// goroutine of its own, so that all that the turn holds stays with the turn's.
func (c *modelCall) listen(ctx context.Context, provider inference.Provider, request inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
	ctx, leave := context.WithCancel(ctx) // also where a panic ends the turn
	defer leave()
	deltas, done := make(chan inference.Delta, ahead), make(chan struct{})
	var (
		res    inference.Response
		err    error
		broken any
	)
	go func() {
		defer close(done)
		defer func() { broken = recover() }() // told where the turn's own are
		res, err = provider.Generate(ctx, request, func(d inference.Delta) {
			select {
			case deltas <- d:
			case <-ctx.Done():
			}
		})
	}()
	for {
		select {
		case d := <-deltas:
			onDelta(d)
		case <-c.overdue():
			c.flush()
		case <-done:
			for len(deltas) > 0 {
				onDelta(<-deltas)
			}
			if broken != nil {
				panic(broken)
			}
			return res, err
		}
	}
}

// delta takes in a piece of the answer, and writes what has waited long enough.
func (c *modelCall) delta(d inference.Delta) {
	if c.unwritable != nil {
		return
	}
	point := pointModelMore
	if !c.stream.Started() {
		point = pointModelFirst
	}
	c.t.at(c.ctx, point)
	if c.stream.Delta(d) {
		c.flush()
	}
}

// flush writes the events so far by themselves.
func (c *modelCall) flush() {
	c.stream.Flush()
	if err := c.t.commit(c.ctx); err != nil {
		c.unwritable = err
		c.stop(err)
	}
}

// overdue fires when text has waited long enough to be written; nil: none waits, or it
// could not be written.
func (c *modelCall) overdue() <-chan time.Time {
	if c.unwritable != nil {
		return nil
	}
	return c.stream.Overdue()
}

// keptChars is how much is kept of what a failed model call has streamed: of its text, and
// of its reasoning.
const keptChars = 8000

// An overheard is what a model call has streamed so far.
type overheard struct {
	text, reasoning, calls strings.Builder
}

// hear notes a piece of an answer.
func (o *overheard) hear(d inference.Delta) {
	switch d.Kind {
	case inference.DeltaThinking:
		o.reasoning.WriteString(d.Text)
	case inference.DeltaTool:
		if d.Name != "" {
			fmt.Fprintf(&o.calls, "\n[call of %s] ", transcript.CleanName(d.Name))
		}
		o.calls.WriteString(d.Text)
	default:
		o.text.WriteString(d.Text)
	}
}

// kept is what is kept of it: text, and below it the calls that were begun.
func (o *overheard) kept() (text, reasoning string) {
	text = strings.TrimPrefix(o.text.String()+o.calls.String(), "\n")
	return prompt.Ends(outputs.Clean(text), keptChars), prompt.Ends(outputs.Clean(o.reasoning.String()), keptChars)
}

// A textCounter counts the tokens of texts.
type textCounter interface{ CountText(text string) int }

// failedUsage is what a failed model call took. What its provider did not report is
// estimated: the request, and what had been streamed. A call that did not reach a model,
// or was refused by its server, took nothing.
func failedUsage(err error, request int64, heard *overheard, counter textCounter) turnkeeper.Usage {
	var used turnkeeper.Usage
	said := int64(counter.CountText(heard.text.String()) + counter.CountText(heard.reasoning.String()) + counter.CountText(heard.calls.String()))
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		used = failure.Usage
		if said == 0 && used.Total() == 0 && failure.Unworked() {
			return used
		}
	}
	if used.InputTokens == 0 {
		used.InputTokens, used.Estimated = request, true
	}
	if used.OutputTokens < said {
		used.OutputTokens, used.Estimated = said, true
	}
	return used
}

// failed keeps a model call that gave no answer to a round, with the next write.
func (a *attempt) failed(err error, heard *overheard, used turnkeeper.Usage, took time.Duration) {
	class := "interrupted" // by the end of the turn, or of its dispatch
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		class = string(failure.Class)
	}
	text, reasoning := heard.kept()
	a.t.pending.Failed = append(a.t.pending.Failed, turnkeeper.FailedAttempt{
		Round: a.number, Attempt: a.sends, Provider: outputs.Clean(a.model.Provider), Model: outputs.Clean(a.model.Name), Class: class,
		Error: firstChars(outputs.Clean(err.Error()), maxOperatorErrors), Text: text, Reasoning: reasoning, Latency: took, Usage: used,
	})
}

// keepSide keeps what model calls beside the rounds took, where no round followed to
// count it.
func (m *models) keepSide(next *pending, round int) {
	if m.sideUsage == (turnkeeper.Usage{}) {
		return
	}
	next.Failed = append(next.Failed, turnkeeper.FailedAttempt{
		Round: round, Class: "interrupted", Error: "older turns were summarised for a round that has no answer", Usage: m.sideUsage,
	})
	m.sideUsage = turnkeeper.Usage{}
}
