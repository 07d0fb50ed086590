package prompt

import (
	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A sizer counts the tokens of the messages of an epoch for its model.
type sizer struct {
	*Counts
	messageWriter
}

func newSizer(m Model, e *epoch) *sizer {
	return &sizer{m.Tokens, messageWriter{epoch: e, ids: map[string]bool{}}}
}

func (s *sizer) message(text string) int { return messageTokens + s.prose(text) }

// messages counts messages other than the system message.
func (s *sizer) messages(messages []inference.Message) (n int) {
	for _, m := range messages {
		n += s.of(m)
	}
	return n
}

func (s *sizer) of(m inference.Message) int {
	if m.Role == inference.RoleUser {
		return s.message(m.Text)
	}
	n := messageTokens + s.content(m.Text)
	for _, call := range m.Calls {
		n += callTokens + s.prose(call.Name) + s.json(call.Arguments)
	}
	if m.Raw != nil && m.RawProvider == s.epoch.model.provider { // sent instead of the rest, with reasoning
		n = max(n, messageTokens+s.json(string(m.Raw)))
	}
	return n
}

// past counts an earlier turn of the epoch.
func (s *sizer) past(past turnlog.Past) int { return s.messages(s.appendPast(nil, past)) }

// load counts an earlier turn that may go into a new epoch, with and without its results.
func (s *sizer) load(past turnlog.Past) pastLoad {
	whole := s.past(past)
	l := pastLoad{whole, whole}
	for _, round := range past.Rounds {
		if len(round.Calls) > 0 {
			lean := *s.epoch
			lean.LeanPast = past.TurnID
			l.lean = min(whole, (&sizer{s.Counts, messageWriter{epoch: &lean, ids: map[string]bool{}}}).past(past))
			break
		}
	}
	return l
}

// round counts a round of the turn in which the epoch begins.
func (s *sizer) round(round *turnkeeper.Round) roundLoad {
	l := roundLoad{answer: s.of(s.answerOf(round))}
	if len(round.Calls) == 0 {
		l.answer += s.message(answerUnsent)
	}
	for _, call := range round.Calls {
		l.results = append(l.results, resultLoad{
			whole: messageTokens + s.content(shownOf(call)),
			line:  messageTokens + s.prose(droppedLine(call, s.epoch.reads())),
		})
	}
	return l
}
