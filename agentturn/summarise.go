package agentturn

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

const (
	summaryTime  = 30 * time.Second
	summaryChars = 4000 // maximum length of a stored summary
)

// withSummary adds a summary to a request that leaves out earlier turns, if it may have one
// and has none. This makes one model call per turn. If the call fails, withSummary logs it
// and returns the request unchanged, which says how many turns are not shown.
func (a *attempt) withSummary(ctx context.Context, request prompt.Request) (prompt.Request, error) {
	turns := a.asker.prompt.ToSummarise(a.model.Model, a.moment(), request)
	if len(turns) == 0 {
		return request, nil
	}
	made, err := a.summarise(ctx, turns)
	if _, ok := errors.AsType[*levelError](err); ok {
		a.asker.prompt.SummaryUnsent()
		a.leave(err)
		return request, err
	}
	if err != nil {
		a.asker.log.Warn("cannot summarise older turns of the conversation; leaving them out",
			zap.Int("turns", len(turns)), zap.Error(err))
		return request, nil
	}
	a.asker.log.Info("older turns of the conversation were summarised", zap.Int("turns", len(turns)),
		zap.Int64("up_to_turn", int64(made.UpTo)), zap.Int("characters", utf8.RuneCountInString(made.Text)))
	a.asker.prompt.SetSummary(made)
	return a.asker.prompt.Build(a.model.Model, a.moment())
}

// summarise asks the model for a summary of the turns.
func (a *attempt) summarise(ctx context.Context, turns []turnlog.Past) (turnlog.Summary, error) {
	a.writeBefore()
	ctx, cancel := context.WithTimeout(ctx, summaryTime)
	defer cancel()
	request := a.asker.prompt.SummaryRequest(a.model.Model, a.moment(), turns)
	spend, err := a.reserve(ctx, request)
	if err != nil {
		return turnlog.Summary{}, err
	}
	a.debug("summary request", request.Request)
	ctx, end := a.observe(ctx, PurposeSummary, 0, request.Request)
	partial := &partialAnswer{}
	res, err := a.model.provider.Generate(ctx, request.Request, partial.add)
	if err != nil {
		end(ModelEnd{Err: err})
		used := failedUsage(err, int64(request.Tokens), partial, a.model.Tokens.Counter)
		a.asker.spending.settle(ctx, spend, used)
		a.asker.sideUsage = a.asker.sideUsage.Add(used)
		return turnlog.Summary{}, err
	}
	used := a.usageOf(res, request.Tokens)
	res.Usage = used
	end(ModelEnd{Response: res})
	a.asker.spending.settle(ctx, spend, used)
	a.asker.sideUsage = a.asker.sideUsage.Add(used)
	text := firstChars(strings.TrimSpace(outputs.Clean(res.Text)), summaryChars)
	if text == "" {
		return turnlog.Summary{}, errors.New("the model gave no summary")
	}
	return turnlog.Summary{UpTo: turns[len(turns)-1].TurnID, Text: text, Labels: a.asker.calls.Before}, nil
}
