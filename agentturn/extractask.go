package agentturn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/outputs"
)

// extractAttempts is how often a model is asked the same: once, and two retries.
const extractAttempts = 3

// choose finds the models to ask: the extraction model, or else those of the
// agent's turns.
func (e *extraction) choose() (err error) {
	names := e.t.modelNames()
	if name := cmp.Or(e.t.def.ExtractionModel, e.t.cfg.ExtractionModel); name != "" {
		names = []string{name}
	}
	e.models, err = e.t.sideModels(names)
	return err
}

// answer is how many tokens are left to a model for its answer.
func (e *extraction) answer(m *sideModel) int { return e.t.sideAnswer(m) }

// size is how many tokens the text is taken to have, and the window that a chunk
// fills half of: that of the model with the smallest, or less where its half and
// the question do not fit.
func (e *extraction) size(ctx context.Context) (textTokens, window int64, err error) {
	// Half of the window must hold in any script: one byte in three is about a
	// token in those where a character is one.
	textTokens = max(e.source.tokens, e.source.bytes*10/32)
	const sampleChars = 8000
	sample, err := e.source.Read(ctx, 0, sampleChars)
	if err != nil {
		return 0, 0, err
	}
	chars := max(int64(utf8.RuneCountInString(sample)), 1)
	question := outputs.SearchPrompt(e.query, outputs.Chunk{})
	window = int64(e.models[0].window)
	for _, m := range e.models {
		textTokens = max(textTokens, int64(m.tokens.CountText(sample))*e.source.chars/chars)
		asked := m.tokens.CountText(question.System) + m.tokens.CountText(question.User) + 2*messageTokens
		// What is counted before it is sent may be a little more than the share.
		fits := (splitWindow(m.window, e.answer(m)).room() - asked) * 3 / 4
		window = min(window, int64(m.window), int64(2*fits))
	}
	const least = 100
	if window < least {
		return 0, 0, &inference.Error{Class: inference.ClassContextOverflow, NoRetry: true,
			Detail: "the model's window leaves no room for a text to search"}
	}
	return textTokens, window, nil
}

// rankChars is how much of the snippets is shown to a model that ranks them:
// half the smallest window.
func (e *extraction) rankChars() int {
	smallest := e.models[0].window
	for _, m := range e.models {
		smallest = min(smallest, m.window)
	}
	return smallest
}

// ask has the models answer a prompt, each with its retries, until accept takes
// an answer. It is called by several goroutines at once.
func (e *extraction) ask(ctx context.Context, prompt outputs.Prompt, accept func(answer string) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	retry := e.t.cfg.Retry
	retry.Provider = nil
	retry.MaxAttempts, retry.MaxBadOutput = extractAttempts, extractAttempts-1
	retry.OnRetry = func(attempt int, err *inference.Error, wait time.Duration) {
		e.log.Warn("model call of an extraction failed, trying again", zap.Int("attempt", attempt),
			zap.String("class", string(err.Class)), zap.Duration("wait", wait), zap.Error(err))
	}
	chain := inference.Chain{Retry: retry}
	for _, m := range e.models {
		chain.Models = append(chain.Models, inference.Candidate{
			Name: m.info.Provider, Model: m.info.Model, Provider: &searchAttempt{e, m, prompt, accept, stop},
		})
	}
	_, err := chain.Generate(ctx, inference.Request{}, nil)
	return err
}

// A searchAttempt is the Provider of one model within a model call: each
// Generate is one attempt, which the budget is asked for and which is accounted.
type searchAttempt struct {
	e      *extraction
	model  *sideModel
	prompt outputs.Prompt
	accept func(answer string) error
	stop   context.CancelCauseFunc // ends the call, whatever attempts are left
}

func (a *searchAttempt) Generate(ctx context.Context, _ inference.Request, _ func(inference.Delta)) (inference.Response, error) {
	request, estimate, err := a.request()
	if err != nil {
		return inference.Response{}, err
	}
	t := a.e.t
	spend, err := t.reserveCall(ctx, estimate)
	if err != nil {
		a.e.halt(err)
		a.stop(err)
		return inference.Response{}, err
	}
	ctx, told := t.cfg.Observer.ModelCall(ctx, ModelBegin{
		Purpose: PurposeExtract, Agent: t.record.Turn.Agent, Provider: a.model.info.Provider, Model: a.model.info.Model, Request: request,
	})
	heard := &overheard{}
	res, err := a.model.provider.Generate(ctx, request, heard.hear)
	if err != nil {
		told(ModelEnd{Err: err})
		used := failedUsage(err, estimate.InputTokens, heard, a.model.tokens)
		a.e.used.add(used)
		t.settleSpend(ctx, spend, used)
		return inference.Response{}, err
	}
	res.Usage = a.model.usageOf(res, estimate)
	told(ModelEnd{Response: res})
	a.e.used.add(res.Usage)
	t.settleSpend(ctx, spend, res.Usage)
	if err := a.accept(res.Text); err != nil {
		return inference.Response{}, a.failure(inference.ClassBadOutput, err.Error())
	}
	return res, nil
}

// request is the prompt for the model, with what the call is taken to use. One
// that does not fit into the window is an error, and is not sent.
func (a *searchAttempt) request() (inference.Request, turnkeeper.Usage, error) {
	m, answer := a.model, a.e.answer(a.model)
	request := inference.Request{
		Model: m.info.Model,
		Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: a.prompt.System}, {Role: inference.RoleUser, Text: a.prompt.User},
		},
		User: fmt.Sprintf("turn-%d", a.e.t.record.Turn.ID),
	}
	if a.e.t.def.MaxOutputTokens > 0 {
		request.MaxOutputTokens = answer
	}
	tokens := m.tokens.CountText(a.prompt.System) + m.tokens.CountText(a.prompt.User) + 2*messageTokens
	if room := splitWindow(m.window, answer).room(); tokens > room {
		return request, turnkeeper.Usage{}, a.failure(inference.ClassContextOverflow, fmt.Sprintf(
			"the question takes about %d tokens, and %d of the model's window of %d are left for it", tokens, room, m.window))
	}
	return request, turnkeeper.Usage{InputTokens: int64(tokens), OutputTokens: int64(answer), Estimated: true}, nil
}

func (a *searchAttempt) failure(class inference.Class, detail string) error {
	return &inference.Error{Class: class, Provider: a.model.info.Provider, Model: a.model.info.Model, Detail: detail}
}

// extractReason is what a model is told of an extraction that failed. It says
// nothing of how the worker is set up.
func extractReason(err error) string {
	if errors.Is(err, errExtractTime) {
		return "there was no time left for it"
	}
	return sideReason(err)
}
