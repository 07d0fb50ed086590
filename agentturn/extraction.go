package agentturn

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/inference"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// extractAttempts is the number of attempts at one question: one, and two retries.
const extractAttempts = 3

// extract answers a query over a stored result. The usage of its model calls is added to used.
func (t *toolAsker) extract(ctx context.Context, source extract.Source, query string,
	used *toolrun.Meter) (tools.Result, error) {
	log := t.task.log.With(zap.String("output", source.ID))
	return extract.Search(ctx, extract.Query{
		Source: source, Text: query, Turn: t.task.record.Turn.ID, Asker: &searchAsker{asker: t, used: used, log: log},
		Cache: t.task.cfg.Extractions, Slots: t.searches, Log: log, Guard: t.task.guard,
	})
}

// A searchAsker asks the extraction model or, if none is set, the agent's models.
type searchAsker struct {
	asker  *toolAsker
	used   *toolrun.Meter
	log    *zap.Logger
	models []*candidate
}

func (s *searchAsker) Models() (models []extract.Model, err error) {
	names := s.asker.roster.names()
	if name := cmp.Or(s.asker.task.def.ExtractionModel, s.asker.task.cfg.ExtractionModel); name != "" {
		names = []string{name}
	}
	if s.models, err = s.asker.roster.sideModels(names); err != nil {
		return nil, err
	}
	for _, m := range s.models {
		models = append(models, extract.Model{
			Name: m.ref, Window: m.Window, Count: m.Tokens.Counter.CountText,
			Room: func(p outputs.Prompt) int {
				return prompt.Room(m.Window, m.sideAnswer(s.asker.task.def)) - prompt.Count(m.Tokens.Counter,
					p.System, p.User)
			},
		})
	}
	return models, nil
}

func (s *searchAsker) Ask(ctx context.Context, asked outputs.Prompt, accept func(answer string) error) error {
	call := &sideCall{
		task: s.asker.task, spending: s.asker.spending, purpose: PurposeExtract, log: s.log, models: s.models,
		retry: s.asker.task.cfg.Retry, retried: "model call of an extraction failed, trying again", account: s.used.Add,
		request: func(m *candidate) (inference.Request, turnkeeper.Usage, error) { return s.request(m, asked) },
		accept: func(m *candidate, res *inference.Response) error {
			if err := accept(res.Text); err != nil {
				return m.failure(inference.ClassBadOutput, err.Error())
			}
			return nil
		},
	}
	call.retry.MaxAttempts, call.retry.MaxBadOutput = extractAttempts, extractAttempts-1
	_, err := call.ask(ctx)
	if call.blocked != nil {
		return extract.Stop(err)
	}
	return err
}

// request returns the request for a model and an estimate of its usage.
func (s *searchAsker) request(m *candidate, asked outputs.Prompt) (inference.Request, turnkeeper.Usage, error) {
	answer := m.sideAnswer(s.asker.task.def)
	request := inference.Request{
		Model: m.Name,
		Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: asked.System}, {Role: inference.RoleUser, Text: asked.User},
		},
		User: fmt.Sprintf("turn-%d", s.asker.task.record.Turn.ID),
	}
	if s.asker.task.def.MaxOutputTokens > 0 {
		request.MaxOutputTokens = answer
	}
	tokens := prompt.Count(m.Tokens.Counter, asked.System, asked.User)
	if room := prompt.Room(m.Window, answer); tokens > room {
		return request, turnkeeper.Usage{}, m.failure(inference.ClassContextOverflow, fmt.Sprintf(
			"the question takes about %d tokens, and %d of the model's window of %d are left for it", tokens,
			room, m.Window))
	}
	return request, turnkeeper.Usage{InputTokens: int64(tokens), OutputTokens: int64(answer), Estimated: true}, nil
}

// Reason describes an error. It reveals nothing about the worker's configuration.
func (s *searchAsker) Reason(err error) string {
	if errors.Is(err, extract.ErrTime) {
		return "there was no time left for it"
	}
	return sideReason(err)
}
