package agentturn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A toolAsker asks models for the tools of a turn. It does not use the turn's mutable state, and is safe for concurrent
// use.
type toolAsker struct {
	task      *task
	roster    *roster
	spending  *spending
	questions *questions
	searches  chan struct{}     // semaphore of the model calls that search stored results
	progress  *toolrun.Progress // of running calls
}

// A sampling is one question of a tool to the models of the turn's chain. The request
// contains nothing but the question.
type sampling struct {
	tools.Sampling
	asker *toolAsker
	used  *toolrun.Meter // of the call
	log   *zap.Logger
	call  *sideCall
	spent int64 // tokens used by all attempts
}

// A samplingError says why a question has no answer. The tool and the turn's events show it.
type samplingError struct{ why string }

func (e *samplingError) Error() string { return e.why }

// sampler returns the function by which a call asks models. Its usage is added to used.
func (t *toolAsker) sampler(call *calls.Call, used *toolrun.Meter) func(context.Context,
	tools.Sampling) (tools.Sampled, error) {
	key, name := call.Key, call.Name
	return func(ctx context.Context, asked tools.Sampling) (answer tools.Sampled, err error) {
		s := &sampling{Sampling: asked, asker: t, used: used,
			log: t.task.log.With(zap.Stringer("call", key), zap.String("tool", name))}
		err = t.task.guard(func() (err error) { // it may run in a goroutine of the tool
			answer, err = s.ask(ctx)
			return err
		})
		if err != nil {
			s.log.Warn("a tool's question to a model was not answered", zap.Error(err))
			err = &samplingError{samplingReason(ctx, err)}
			t.progress.Keep(key, name, "asked a model and got no answer: "+err.Error())
			return tools.Sampled{Tokens: s.spent}, err
		}
		s.log.Info("a tool's question to a model was answered", zap.String("model", answer.Model),
			zap.Int64("tokens", answer.Tokens))
		t.progress.Keep(key, name, fmt.Sprintf("asked the model %s, which took %d tokens", answer.Model, answer.Tokens))
		return answer, nil
	}
}

// ask asks the models of the chain, one after the other.
func (s *sampling) ask(ctx context.Context) (tools.Sampled, error) {
	if ctx.Err() != nil {
		return tools.Sampled{}, context.Cause(ctx)
	}
	level, choose := s.asker.roster.levelNow(), func() ([]*candidate, error) {
		return s.asker.roster.sideModels(s.asker.roster.names())
	}
	models, err := choose()
	if err != nil {
		return tools.Sampled{}, err
	}
	ctx, end := extract.BeforeTheEnd(ctx)
	defer end()
	if err := s.asker.questions.take(); err != nil {
		return tools.Sampled{}, err
	}
	s.call = &sideCall{
		task: s.asker.task, spending: s.asker.spending, purpose: PurposeSample, log: s.log, models: models,
		level: level, again: choose, retry: s.asker.task.cfg.Retry, logged: true,
		retried: "model call for a tool failed, trying again", account: s.account, request: s.request,
		accept: acceptSample,
	}
	res, err := s.call.ask(ctx)
	if err != nil {
		return tools.Sampled{}, err
	}
	return tools.Sampled{
		Text: outputs.Clean(res.Text), Model: res.Model,
		Cut: inference.FinishOf(res.FinishReason) == inference.FinishCut, Tokens: s.spent,
	}, nil
}

// acceptSample refuses an empty answer.
func acceptSample(m *candidate, res *inference.Response) error {
	res.Text, res.Model = cmp.Or(res.Text, res.Refusal), m.Name
	if strings.TrimSpace(res.Text) == "" {
		return m.failure(inference.ClassBadOutput, "the answer is empty")
	}
	return nil
}

// account adds the usage of an attempt. Attempts do not overlap.
func (s *sampling) account(used turnkeeper.Usage) {
	s.used.Add(used)
	s.spent += used.Total()
}

// request returns the request for a model and an estimate of its usage. It fails if the
// question does not fit the model's window or the call's token limit.
func (s *sampling) request(m *candidate) (inference.Request, turnkeeper.Usage, error) {
	request := inference.Request{Model: m.Name, Temperature: s.Temperature, User: fmt.Sprintf("turn-%d",
		s.asker.task.record.Turn.ID)}
	bytes, left := 0, s.Tokens-s.spent
	say := func(role inference.Role, text string) {
		bytes += len(text)
		request.Messages = append(request.Messages, inference.Message{Role: role, Text: outputs.Clean(text)})
	}
	if s.System != "" {
		say(inference.RoleSystem, s.System)
	}
	for _, said := range s.Messages {
		role := inference.RoleUser
		if said.FromModel {
			role = inference.RoleAssistant
		}
		say(role, said.Text)
	}
	if s.Tokens > 0 && int64(bytes) > left*maxTokenBytes { // avoids counting the tokens of a huge text
		return request, turnkeeper.Usage{}, s.tooLong(int64(bytes)/maxTokenBytes, left)
	}
	asked := 0
	for _, message := range request.Messages {
		asked += prompt.Count(m.Tokens.Counter, message.Text)
	}
	answer := m.sideAnswer(s.asker.task.def)
	if room := prompt.Room(m.Window, answer); asked > room {
		return request, turnkeeper.Usage{}, m.failure(inference.ClassContextOverflow, fmt.Sprintf(
			"the question takes about %d tokens, and %d of the model's window of %d are left for it", asked,
			room, m.Window))
	}
	if s.MaxTokens > 0 {
		answer = min(answer, s.MaxTokens)
	}
	if s.Tokens > 0 {
		if int64(asked) >= left {
			return request, turnkeeper.Usage{}, s.tooLong(int64(asked), left)
		}
		answer = min(answer, int(left)-asked)
	}
	request.MaxOutputTokens = answer
	return request, turnkeeper.Usage{InputTokens: int64(asked), OutputTokens: int64(answer), Estimated: true}, nil
}

// maxTokenBytes is more than any realistic token has.
const maxTokenBytes = 64

func (s *sampling) tooLong(asked, left int64) error {
	err := &samplingError{
		fmt.Sprintf("the question takes about %d tokens, but only %d are left for this call's questions", asked,
			max(left, 0))}
	s.call.stop(err)
	return err
}

// samplingReason describes an error to the tool. ctx is that of the call. The text reveals
// nothing about the worker's configuration.
func samplingReason(ctx context.Context, err error) string {
	if own, ok := errors.AsType[*samplingError](err); ok {
		return own.why
	}
	switch {
	case ctx.Err() != nil:
		return "the call has ended"
	case errors.Is(err, extract.ErrTime):
		return "there was no time left for it"
	}
	return sideReason(err)
}
