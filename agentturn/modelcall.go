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
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
)

// An asker makes the model calls of a turn's rounds. Only the execution's goroutine uses it.
type asker struct {
	*turnState
	prompt   *prompt.State // builds the requests
	models   *models       // the chain that answers them
	spending *spending
	stream   *turnevents.Stream // of the current model call; nil: none
}

// generate calls the models of the chain until one answers. Once an effect has happened,
// it asks the whole chain again after a pause, as long as time is left. early hears the answers.
func (k *asker) generate(ctx context.Context, early *earlyReads) (modelAnswer, error) {
	all, err := k.models.candidates()
	if err != nil {
		return modelAnswer{}, err
	}
	models := k.models.usable(all, k.calls.Effected())
	if len(models) == 0 {
		return modelAnswer{}, k.models.faultOf(all, nil, k.models.allDown(all))
	}
	round := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	call := &modelCall{asker: k, early: early, round: round, ctx: ctx, stop: stop, number: len(k.calls.Rounds) + 1}
	finish := k.finishing()
	call.at = prompt.Moment{Rounds: k.calls.Rounds, Final: finish || k.calls.NextIsLast(), Finish: finish, Age: k.age}
	call.stream = k.events.NewStream(call.number,
		turnevents.RoundStartData{Of: k.bounds.MaxRounds, Final: call.at.Final},
		turnevents.Sink{Guarded: k.replySink() != policy.ReplyAllow, Known: k.offered.Has})
	k.stream = call.stream

	started := time.Now()
	res, all, err := call.askAtLevel(ctx, all, models)
	for times := 1; err != nil; times++ {
		if cause := call.unwritable; cause != nil {
			return modelAnswer{}, cause
		}
		if ctx.Err() == nil { // else the error says nothing about the models
			err = k.models.faultOf(all, call.given, err)
		}
		wait, again := longPause(ctx, err, times, k.calls.Effected())
		if !again {
			return modelAnswer{}, call.failed(ctx, err)
		}
		call.longRetried(err, wait)
		if err := pause.For(ctx, wait); err != nil {
			return modelAnswer{}, err
		}
		res, all, err = call.askAtLevel(ctx, all, all)
	}
	if cause := call.unwritable; cause != nil {
		return modelAnswer{}, cause
	}
	if k.pending.Round != nil { // an entry has one
		k.pending.next(k.events.Unwritten())
		k.events.Written()
	}
	k.models.answered(&k.pending, call.answered)
	k.stream.Complete(res)
	k.stream = nil
	res.Attempts += call.again
	return modelAnswer{number: call.number, latency: time.Since(started), sent: call.sent,
		Response: res}, nil
}

// said returns what the current model call has streamed.
func (k *asker) said() string {
	if k.stream == nil {
		return ""
	}
	return outputs.Clean(k.stream.Text())
}

// endStream takes back what a model call that has given no answer has streamed, because the turn ends.
func (k *asker) endStream() {
	if k.stream != nil {
		k.stream.Rollback("the turn ended")
		k.stream = nil
	}
}

// keepRequest adds to a round, and to the next write, how the request that the round answers was made.
func (k *asker) keepRequest(round *turnkeeper.Round, sent *prompt.Request) {
	round.Recipe, k.pending.Parts = &sent.Recipe, k.prompt.Unwritten(sent.Recipe, sent.Parts)
	k.pending.Summary = k.prompt.TakeSummary()
}

// A modelCall is the model call of one round, through all its attempts.
type modelCall struct {
	asker  *asker
	early  *earlyReads
	round  context.Context //nolint:containedctx // of the round, which goes on after the call
	ctx    context.Context //nolint:containedctx // of all attempts
	number int
	at     prompt.Moment
	stream *turnevents.Stream
	// unwritable is the error of writing events of the stream. It ends the call.
	unwritable error
	stop       context.CancelCauseFunc // cancels the call and all its retries
	leave      context.CancelCauseFunc // cancels the retries of the models that were chosen
	again      int                     // attempts that the chain's result does not count
	sends      int                     // requests sent, for the Observer
	sent       prompt.Request          // of the newest answer

	answered string                      // name of the model that answered
	given    map[string]*inference.Error // last failures of the models that were given up, by name
	hinted   map[string]bool             // models that were told that they wrote a tool call as text
}

// askAtLevel is ask. If the agent's survival level has changed since the models were chosen, it chooses again. It
// returns the whole chain of those that it asked.
func (c *modelCall) askAtLevel(ctx context.Context, all,
	models []*candidate) (inference.Response, []*candidate, error) {
	for {
		res, err := c.ask(ctx, models)
		if _, ok := errors.AsType[*levelError](err); !ok {
			return res, all, err
		}
		now, err := c.asker.models.candidates()
		if err != nil { // the level's models are not configured here
			return res, all, err
		}
		all = now
		if models = c.asker.models.usable(all, c.asker.calls.Effected()); len(models) == 0 {
			return res, all, c.asker.models.allDown(all)
		}
	}
}

// ask asks the models one after the other, each with its retries.
func (c *modelCall) ask(ctx context.Context, models []*candidate) (inference.Response, error) {
	retry := c.asker.cfg.Retry
	retry.Provider, retry.OnRetry = nil, c.retried
	c.given = map[string]*inference.Error{}
	ctx, c.leave = context.WithCancelCause(ctx)
	defer c.leave(nil)
	clear(c.asker.models.health.asked)
	chain := inference.Chain{Retry: retry, OnGiveUp: func(i int, err *inference.Error) {
		c.given[models[i].ref] = err
		c.asker.models.gaveUp(&c.asker.pending, models[i].ref, err)
		if i < len(models)-1 || c.asker.calls.Effected() {
			c.tell()
		}
	}}
	health := &c.asker.models.health
	for _, model := range models {
		chain.Models = append(chain.Models, inference.Candidate{
			Name: model.Provider, Model: model.Name, Provider: &attempt{modelCall: c, model: model},
			Once: health.probed(model.ref) && !health.inDoubt(model.ref), Doubtful: health.suspects[model.ref].Paired(),
		})
	}
	return chain.Generate(ctx, inference.Request{}, c.delta)
}

// tell writes at once that a model has failed or answered, for all workers, while the turn goes on with another
// request.
func (c *modelCall) tell() {
	if c.unwritable == nil && c.asker.pending.news() {
		c.flush()
	}
}

// longRetried logs that the whole chain failed and is asked again after a pause.
func (c *modelCall) longRetried(err error, wait time.Duration) {
	failure, ok := errors.AsType[*inference.Error](err)
	if !ok {
		failure = &inference.Error{Class: inference.ClassTransport}
	}
	c.retried(failure.Attempts, failure, wait)
	c.again += failure.Attempts
}

func (c *modelCall) retried(attempt int, err *inference.Error, wait time.Duration) {
	c.asker.log.Warn("model call failed, trying again", zap.Int("round", c.number), zap.Int("attempt", attempt+c.again),
		zap.String("class", string(err.Class)), zap.Duration("wait", wait), zap.Error(err))
	c.stream.Rollback(string(err.Class))
	c.writeBefore()
}

// writeBefore writes an answer and results that wait, before a pause or a model call of another kind, which may take
// long.
func (c *modelCall) writeBefore() {
	if c.unwritable == nil && c.asker.pending.hasStep() {
		c.write()
	}
}

// failed returns err, as a *silentError if the model gave no usable answer in the
// announced last round.
func (c *modelCall) failed(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*inference.Error](err); ok && ctx.Err() == nil && c.at.Final &&
		e.Class == inference.ClassBadOutput {
		return &silentError{err, c.at.Finish}
	}
	return err
}

// An attempt is the Provider of one model within a round's call. Each Generate is one
// attempt, with a request built for this model and reserved in the budget.
type attempt struct {
	*modelCall
	model *candidate
}

func (a *attempt) Generate(ctx context.Context, _ inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	if err := a.probe(ctx); err != nil {
		return inference.Response{}, err
	}
	if err := a.readParts(ctx); err != nil {
		return inference.Response{}, err
	}
	request, err := a.asker.prompt.Build(a.model.Model, a.moment())
	if err != nil {
		return inference.Response{}, err
	}
	if request, err = a.withSummary(ctx, request); err != nil {
		return inference.Response{}, err
	}
	res, err := a.send(ctx, request, onDelta)
	for range maxMended {
		mended, why, ok := a.mend(request, err)
		if !ok {
			break
		}
		a.stream.Rollback(why)
		a.again++
		request = mended
		res, err = a.send(ctx, request, onDelta)
	}
	return res, err
}

// readParts reads the parts of the request that another program wrote.
func (a *attempt) readParts(ctx context.Context) error {
	missing := a.asker.prompt.MissingParts(a.at.Rounds)
	if len(missing) == 0 {
		return nil
	}
	parts, err := a.asker.journal.RequestParts(ctx, missing...)
	if err == nil {
		a.asker.prompt.AddParts(missing, parts)
	}
	return err
}

// maxMended is the maximum number of requests of an attempt that differ from what was refused.
const maxMended = 4

// mend returns another request for the model after it has refused one, or has answered with tool markup. ok is false if
// there is none.
func (a *attempt) mend(refused prompt.Request, err error) (mended prompt.Request, why string, ok bool) {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne {
		return prompt.Request{}, "", false
	}
	if failure.Code == inference.CodeMarkup {
		mended, ok = a.hint()
		return mended, failure.Code, ok
	}
	if mended, ok = a.compact(refused, err); ok {
		return mended, string(inference.ClassContextOverflow), true
	}
	mended, ok = a.asker.prompt.Rewrite(a.model.Model, a.moment(), refused, err)
	if ok {
		a.asker.log.Warn(
			"the provider refused the request; sending the record of the conversation in another form, which later requests keep",
			zap.Int("round", a.number), zap.String("model", a.model.ref), zap.String("record", string(failure.Record)),
			zap.String("note", prompt.RecordNote(*mended.Recipe.Start)), zap.NamedError("refusal", err))
	}
	return mended, string(failure.Class), ok
}

// hint returns a request that says that the last answer was a tool call as text. It is made once for each model.
func (a *attempt) hint() (prompt.Request, bool) {
	if a.hinted[a.model.ref] {
		return prompt.Request{}, false
	}
	if a.hinted == nil {
		a.hinted = map[string]bool{}
	}
	a.hinted[a.model.ref] = true
	request, err := a.asker.prompt.Build(a.model.Model, a.moment())
	return request, err == nil
}

// moment returns the state of the turn that the next request to the model is built from.
func (a *attempt) moment() prompt.Moment {
	at := a.at
	at.Unparsed = a.hinted[a.model.ref]
	return at
}

// send makes one call with a request.
func (a *attempt) send(ctx context.Context, request prompt.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	spend, err := a.reserve(ctx, request)
	if _, ok := errors.AsType[*levelError](err); ok {
		a.leave(err)
		return inference.Response{}, err
	}
	if err != nil {
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request.Request)
	a.sends++
	a.asker.models.health.asked[a.model.ref]++
	ctx, end := a.observe(ctx, PurposeRound, a.sends, request.Request)
	a.asker.at(ctx, PointModelBefore)
	a.stream.Sending(request.Recipe.Start)
	a.early.begin(a.round, modelAnswer{number: a.number, sent: request})
	started, partial := time.Now(), &partialAnswer{}
	res, err := a.listen(ctx, a.model.provider, request.Request, func(d inference.Delta) {
		if !d.Done {
			partial.add(d)
			onDelta(d)
		}
		a.early.heard(d)
	})
	if err != nil {
		a.early.drop("the answer was cut")
		end(ModelEnd{Err: err})
		used := failedUsage(err, int64(request.Tokens), partial, a.model.Tokens.Counter)
		a.failed(err, partial, used, time.Since(started))
		a.asker.spending.settle(ctx, spend, used)
		return inference.Response{}, err
	}
	a.debug("model response", res)
	a.sent = a.answeredTo(request, res)
	res.Usage = a.usageOf(res, request.Tokens)
	end(ModelEnd{Response: res})
	a.asker.spending.settle(ctx, spend, res.Usage)
	res.Text = cmp.Or(res.Text, res.Refusal)
	if inference.Blank(res.Text) && len(res.Calls) == 0 {
		err := &inference.Error{
			Class: inference.ClassBadOutput, Provider: a.model.Provider, Model: a.model.Name,
			Detail: "the answer is empty",
		}
		a.failed(err, partial, res.Usage, time.Since(started))
		return inference.Response{}, err
	}
	a.answered = a.model.ref
	return res, nil
}

// reserve reserves the call with a request in the budget.
func (a *attempt) reserve(ctx context.Context, request prompt.Request) (Reservation, error) {
	return a.asker.spending.reserve(ctx, turnkeeper.Usage{InputTokens: int64(request.Tokens),
		OutputTokens: int64(a.asker.def.OutputTokens()), Estimated: true}, a.asker.models.level)
}

// answeredTo returns the answered request with the recipe completed from the response.
func (a *attempt) answeredTo(request prompt.Request, res inference.Response) prompt.Request {
	request = a.asker.prompt.Answered(a.model.Model, a.asker.calls.Rounds, request, res)
	if r := request.Recipe; r.Cut {
		a.asker.log.Warn("the provider seems to have truncated the request: it counted far fewer tokens than were sent",
			zap.String("model", a.model.Provider+"/"+a.model.Name), zap.Int("round", len(a.asker.calls.Rounds)+1),
			zap.Int("estimated_tokens", r.Window.Corrected()), zap.Int64("reported_tokens", res.Usage.InputTokens),
			zap.Int64("cached_tokens", res.Usage.CachedTokens), zap.Int("context_window", r.Window.Size))
	}
	return request
}

// compact returns a smaller request after one was refused as too long. ok is false if err
// is another error, if this was done before in this turn, or if there is no smaller one.
func (a *attempt) compact(refused prompt.Request, err error) (smaller prompt.Request, ok bool) {
	if !a.asker.prompt.Refuse(a.model.Model, a.moment(), refused, err) {
		return prompt.Request{}, false
	}
	failure, _ := errors.AsType[*inference.Error](err)
	smaller, tooLong := a.asker.prompt.Build(a.model.Model, a.moment())
	ok = tooLong == nil && smaller.Tokens < refused.Tokens
	said := "the provider refused the request as too long; sending a smaller one"
	if !ok {
		said = "the provider refused the request as too long; it cannot be made smaller"
	}
	a.asker.log.Warn(said,
		zap.Int("round", a.number), zap.String("model", a.model.Provider+"/"+a.model.Name),
		zap.Int("context_window", refused.Recipe.Window.Size), zap.Int("their_window", failure.Limit),
		zap.Int("tokens", refused.Tokens),
		zap.Int("room", a.asker.prompt.Room()), zap.Int("tokens_then", smaller.Tokens),
		zap.NamedError("refusal", err), zap.NamedError("too_long_still", tooLong))
	return smaller, ok
}

// observe reports a request that is about to be sent.
func (a *attempt) observe(ctx context.Context, purpose ModelPurpose, n int,
	request inference.Request) (context.Context, func(ModelEnd)) {
	return a.asker.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: purpose, Agent: a.asker.record.Turn.Agent, Provider: a.model.Provider, Model: a.model.Name,
		Attempt: n, Request: request,
	})
}

// debug logs a request or response at debug level.
func (a *attempt) debug(message string, content any) {
	logContent(a.asker.log, message, content, zap.Int("round", a.number), zap.String("model", a.model.Name))
}

// logContent logs content as text, because the log's redaction searches text.
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

// usageOf returns the usage of an answer, estimated if the provider reported none.
func (a *attempt) usageOf(res inference.Response, requestTokens int) turnkeeper.Usage {
	if res.Usage.InputTokens != 0 || res.Usage.OutputTokens != 0 {
		return res.Usage
	}
	return turnkeeper.Usage{InputTokens: int64(requestTokens), OutputTokens: int64(a.model.Tokens.Answer(res)),
		Estimated: true}
}

// deltaBuffer is the number of deltas that a provider may send before the turn takes them.
// It is enough for a short answer.
const deltaBuffer = 16

// listen makes a model call and passes on its deltas. It also flushes buffered text when that is overdue, and what was
// to be written with the answer if that takes long. The provider runs in another goroutine, so that only the turn's own
// goroutine uses the turn's state.
func (c *modelCall) listen(ctx context.Context, provider inference.Provider, request inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	ctx, leave := context.WithCancel(ctx) // also where a panic ends the turn
	defer leave()
	deltas, done := make(chan inference.Delta, deltaBuffer), make(chan struct{})
	var (
		res      inference.Response
		err      error
		panicked any
	)
	go func() {
		defer close(done)
		defer func() { panicked = recover() }() // raised again in the turn's goroutine
		cut := false
		res, err = provider.Generate(ctx, request, func(d inference.Delta) {
			if cut {
				return // what comes after a hole is no part of the answer
			}
			select {
			case deltas <- d:
			case <-ctx.Done():
				cut = true
			}
		})
	}()
	later := c.asker.pending.due(c.asker.events)
	for !isReady(done) {
		select {
		case d := <-deltas:
			onDelta(d)
			continue
		default:
		}
		select {
		case d := <-deltas:
			onDelta(d)
		case <-c.overdue():
			c.flush()
		case <-later:
			later = nil
			if c.unwritable == nil && isReady(c.overdue()) {
				c.flush()
			} else if c.unwritable == nil && len(c.asker.events.Unwritten()) > 0 {
				c.write()
			}
		case <-done:
		}
	}
	for len(deltas) > 0 {
		onDelta(<-deltas)
	}
	if panicked != nil {
		panic(panicked)
	}
	return res, err
}

// isReady reports whether a channel is closed or has a value, which it takes. What has happened comes before what is
// due, so that a turn that was slow does the same each time.
func isReady[T any](c <-chan T) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// delta adds a delta to the round's stream, and flushes it when due.
func (c *modelCall) delta(d inference.Delta) {
	if c.unwritable != nil {
		return
	}
	point := pointModelMore
	if !c.stream.Started() {
		point = pointModelFirst
	}
	c.asker.at(c.ctx, point)
	if c.stream.Delta(d) {
		c.flush()
	}
}

// flush writes the stream's events. An error stops the call.
func (c *modelCall) flush() {
	c.stream.Flush()
	c.write()
}

// write writes what is pending. An error stops the call.
func (c *modelCall) write() {
	if err := c.asker.commit(c.ctx); err != nil {
		c.unwritable = err
		c.stop(err)
	}
}

// overdue returns a channel that fires when buffered text is due. It is nil if there is
// none, or if writing has failed.
func (c *modelCall) overdue() <-chan time.Time {
	if c.unwritable != nil {
		return nil
	}
	return c.stream.Overdue()
}

// keptChars is the maximum number of characters stored of a failed call's text, and of its
// reasoning.
const keptChars = 8000

// A partialAnswer collects what a model call has streamed so far.
type partialAnswer struct {
	text, reasoning, calls strings.Builder
}

// add appends a delta.
func (o *partialAnswer) add(d inference.Delta) {
	switch d.Kind {
	case inference.DeltaThinking:
		o.reasoning.WriteString(d.Text)
	case inference.DeltaTool:
		if d.Name != "" {
			fmt.Fprintf(&o.calls, "\n[call of %s] ", turnevents.CleanName(d.Name))
		}
		o.calls.WriteString(d.Text)
	default:
		o.text.WriteString(d.Text)
	}
}

// stored returns the text, followed by the calls that were begun, and the reasoning, both
// shortened for the journal.
func (o *partialAnswer) stored() (text, reasoning string) {
	text = strings.TrimPrefix(o.text.String()+o.calls.String(), "\n")
	return prompt.Ends(outputs.Clean(text), keptChars), prompt.Ends(outputs.Clean(o.reasoning.String()), keptChars)
}

// A textCounter counts the tokens of texts.
type textCounter interface{ CountText(text string) int }

// failedUsage returns the usage of a failed model call. What the provider did not report
// is estimated from the request and the deltas. A call that did not reach a model, or that
// its server refused, used nothing.
func failedUsage(err error, request int64, partial *partialAnswer, counter textCounter) turnkeeper.Usage {
	var used turnkeeper.Usage
	said := int64(counter.CountText(partial.text.String()) + counter.CountText(partial.reasoning.String()) +
		counter.CountText(partial.calls.String()))
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

// failed adds a failed attempt to the next write.
func (a *attempt) failed(err error, partial *partialAnswer, used turnkeeper.Usage, took time.Duration) {
	class := "interrupted" // by the end of the dispatch
	if failure, ok := errors.AsType[*inference.Error](err); ok {
		class = string(failure.Class)
	}
	text, reasoning := partial.stored()
	a.asker.pending.Failed = append(a.asker.pending.Failed, turnlog.FailedAttempt{
		Round: a.number, Attempt: a.sends, Provider: outputs.Clean(a.model.Provider),
		Model: outputs.Clean(a.model.Name), Class: class,
		Error: firstChars(outputs.Clean(err.Error()), maxOperatorErrors), Text: text, Reasoning: reasoning,
		Latency: took, Usage: used,
	})
}
