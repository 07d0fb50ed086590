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
	"turnkeeper/inference"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A sampling is one question of a tool to the models of the turn's chain. It
// touches nothing of the turn that changes, and asks nothing of the turn but what
// the question says.
type sampling struct {
	tools.Sampling
	t     *turn
	used  *meter // of the call
	log   *zap.Logger
	stop  context.CancelCauseFunc // ends the sampling, whatever attempts are left
	spent int64                   // by all attempts
}

// A samplingError is why a question has no answer: told to whoever asked, and to
// those who watch.
type samplingError struct{ why string }

func (e *samplingError) Error() string { return e.why }

// sampler is how a call asks models. What that takes is added to used.
func (t *turn) sampler(call *turnkeeper.ToolCall, used *meter) func(context.Context, tools.Sampling) (tools.Sampled, error) {
	key, name := call.Key, call.Name
	return func(ctx context.Context, asked tools.Sampling) (answer tools.Sampled, err error) {
		s := &sampling{Sampling: asked, t: t, used: used, log: t.log.With(zap.Stringer("call", key), zap.String("tool", name))}
		err = t.guard(func() (err error) { // the goroutine may be of whoever asks
			answer, err = s.ask(ctx)
			return err
		})
		if err != nil {
			s.log.Warn("a tool's question to a model was not answered", zap.Error(err))
			err = &samplingError{samplingReason(ctx, err)}
			t.progress.keep(key, name, "asked a model, and got no answer: "+err.Error())
			return tools.Sampled{Tokens: s.spent}, err
		}
		s.log.Info("a tool's question to a model was answered", zap.String("model", answer.Model), zap.Int64("tokens", answer.Tokens))
		t.progress.keep(key, name, fmt.Sprintf("asked the model %s, which took %d tokens", answer.Model, answer.Tokens))
		return answer, nil
	}
}

// ask has the models of the chain answer, one after the other.
func (s *sampling) ask(ctx context.Context) (tools.Sampled, error) {
	if ctx.Err() != nil {
		return tools.Sampled{}, context.Cause(ctx)
	}
	models, err := s.t.sideModels(s.t.modelNames())
	if err != nil {
		return tools.Sampled{}, err
	}
	ctx, end := beforeTheEnd(ctx)
	defer end()
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	retry := s.t.cfg.Retry
	retry.Provider = nil
	retry.OnRetry = func(attempt int, err *inference.Error, wait time.Duration) {
		s.log.Warn("model call for a tool failed, trying again", zap.Int("attempt", attempt),
			zap.String("class", string(err.Class)), zap.Duration("wait", wait), zap.Error(err))
	}
	chain := inference.Chain{Retry: retry}
	for _, m := range models {
		chain.Models = append(chain.Models, inference.Candidate{Name: m.info.Provider, Model: m.info.Model, Provider: &samplingAttempt{s, m}})
	}
	res, err := chain.Generate(ctx, inference.Request{}, nil)
	if err != nil {
		return tools.Sampled{}, err
	}
	return tools.Sampled{
		Text: outputs.Clean(res.Text), Model: res.Model, Cut: res.FinishReason == finishLength, Tokens: s.spent,
	}, nil
}

// finishLength is how providers say that an answer reached its bound.
const finishLength = "length"

// A samplingAttempt is the Provider of one model within a sampling: each Generate
// is one attempt, which the budget is asked for and which is accounted.
type samplingAttempt struct {
	*sampling
	model *sideModel
}

func (a *samplingAttempt) Generate(ctx context.Context, _ inference.Request, _ func(inference.Delta)) (inference.Response, error) {
	request, estimate, err := a.request()
	if err != nil {
		return inference.Response{}, err
	}
	t := a.t
	spend, err := t.reserveCall(ctx, estimate)
	if err != nil {
		a.stop(err)
		return inference.Response{}, err
	}
	a.debug("model request", request)
	ctx, told := t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: PurposeSample, Agent: t.record.Turn.Agent, Provider: a.model.info.Provider, Model: a.model.info.Model, Request: request,
	})
	heard := &overheard{}
	res, err := a.model.provider.Generate(ctx, request, heard.hear)
	if err != nil {
		told(ModelEnd{Err: err})
		used := failedUsage(err, estimate.InputTokens, heard, a.model.tokens)
		a.account(used)
		t.settleSpend(ctx, spend, used)
		return inference.Response{}, err
	}
	res.Usage = a.model.usageOf(res, estimate)
	told(ModelEnd{Response: res})
	a.debug("model response", res)
	a.account(res.Usage)
	t.settleSpend(ctx, spend, res.Usage)
	res.Text, res.Model = cmp.Or(res.Text, res.Refusal), a.model.info.Model
	if strings.TrimSpace(res.Text) == "" {
		return inference.Response{}, a.failure(inference.ClassBadOutput, "the answer is empty")
	}
	return res, nil
}

// account counts what an attempt took. Attempts come one after the other.
func (s *sampling) account(used turnkeeper.Usage) {
	s.used.add(used)
	s.spent += used.Total()
}

// request is the question for the model, with what the call is taken to use. One
// that does not fit into its bounds is an error, and is not sent.
func (a *samplingAttempt) request() (inference.Request, turnkeeper.Usage, error) {
	request := inference.Request{Model: a.model.info.Model, Temperature: a.Temperature, User: fmt.Sprintf("turn-%d", a.t.record.Turn.ID)}
	bytes, left := 0, a.Tokens-a.spent
	say := func(role inference.Role, text string) {
		bytes += len(text)
		request.Messages = append(request.Messages, inference.Message{Role: role, Text: outputs.Clean(text)})
	}
	if a.System != "" {
		say(inference.RoleSystem, a.System)
	}
	for _, m := range a.Messages {
		role := inference.RoleUser
		if m.FromModel {
			role = inference.RoleAssistant
		}
		say(role, m.Text)
	}
	if a.Tokens > 0 && int64(bytes) > left*mostTokenBytes { // it need not be counted
		return request, turnkeeper.Usage{}, a.tooLong(int64(bytes)/mostTokenBytes, left)
	}
	asked := 0
	for _, m := range request.Messages {
		asked += a.model.tokens.CountText(m.Text) + messageTokens
	}
	answer := a.t.sideAnswer(a.model)
	if room := splitWindow(a.model.window, answer).room(); asked > room {
		return request, turnkeeper.Usage{}, a.failure(inference.ClassContextOverflow, fmt.Sprintf(
			"the question takes about %d tokens, and %d of the model's window of %d are left for it", asked, room, a.model.window))
	}
	if a.MaxTokens > 0 {
		answer = min(answer, a.MaxTokens)
	}
	if a.Tokens > 0 {
		if int64(asked) >= left {
			return request, turnkeeper.Usage{}, a.tooLong(int64(asked), left)
		}
		answer = min(answer, int(left)-asked)
	}
	request.MaxOutputTokens = answer
	return request, turnkeeper.Usage{InputTokens: int64(asked), OutputTokens: int64(answer), Estimated: true}, nil
}

// mostTokenBytes is more than a token has in any text that is worth counting.
const mostTokenBytes = 64

func (a *samplingAttempt) tooLong(asked, left int64) error {
	err := &samplingError{fmt.Sprintf("the question takes about %d tokens, and %d are left for the questions of this call", asked, max(left, 0))}
	a.stop(err)
	return err
}

func (a *samplingAttempt) failure(class inference.Class, detail string) error {
	return &inference.Error{Class: class, Provider: a.model.info.Provider, Model: a.model.info.Model, Detail: detail}
}

// debug logs what goes to a model or comes from it, as rounds do.
func (a *samplingAttempt) debug(message string, content any) {
	entry := a.log.Check(zap.DebugLevel, message)
	if entry == nil {
		return
	}
	text, err := json.Marshal(content)
	if err != nil {
		text = []byte(err.Error())
	}
	entry.Write(zap.String("purpose", string(PurposeSample)), zap.String("model", a.model.info.Model), zap.String("content", string(text)))
}

// samplingReason is what whoever asked is told, in the call's context. It says
// nothing of how the worker is set up.
func samplingReason(ctx context.Context, err error) string {
	if own, ok := errors.AsType[*samplingError](err); ok {
		return own.why
	}
	switch {
	case ctx.Err() != nil:
		return "the call has ended"
	case errors.Is(err, errExtractTime):
		return "there was no time left for it"
	}
	return sideReason(err)
}
