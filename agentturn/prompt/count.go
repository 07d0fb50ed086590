package prompt

import (
	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A sizer counts the tokens of the parts of a request for one model.
type sizer struct {
	*Counts
	messageWriter
	provider string // of the model
}

func (s *sizer) message(text string) int { return messageTokens + s.prose(text) }

// pastSizes remembers the sizes of earlier turns, which all requests of a turn repeat.
type pastSizes map[pastKey]pastLoad

type pastKey struct {
	turn     turnkeeper.TurnID
	counts   *Counts
	provider string
	plain    bool
	record   recordForm
}

// of counts an earlier turn once.
func (p pastSizes) of(s *sizer, past turnlog.Past) pastLoad {
	key := pastKey{past.TurnID, s.Counts, s.provider, s.plain, s.record}
	l, known := p[key]
	if !known {
		l = s.past(past)
		p[key] = l
	}
	return l
}

// past counts an earlier turn, with and without its results.
func (s *sizer) past(past turnlog.Past) pastLoad {
	count := func(lean bool) int {
		n := s.message(past.Body)
		for _, message := range s.appendAnswers(nil, past, lean) {
			n += s.answer(message)
		}
		return n
	}
	l := pastLoad{whole: count(false)}
	l.lean = l.whole
	for _, round := range past.Rounds {
		if len(round.Calls) > 0 {
			l.lean = min(l.whole, count(true))
			break
		}
	}
	return l
}

func (s *sizer) answer(m inference.Message) int {
	n := messageTokens + s.content(m.Text)
	for _, call := range m.Calls {
		n += callTokens + s.prose(call.Name) + s.json(call.Arguments)
	}
	if m.Raw != nil && m.RawProvider == s.provider { // sent instead of the rest, with reasoning
		n = max(n, messageTokens+s.json(string(m.Raw)))
	}
	return n
}

func (s *sizer) round(round turnkeeper.Round) roundLoad {
	l := roundLoad{answer: s.answer(s.answerOf(round))}
	if len(round.Calls) == 0 {
		l.answer += s.message(answerUnsent)
	}
	for _, call := range round.Calls {
		l.results = append(l.results, resultLoad{
			whole: messageTokens + s.content(shownOf(call)),
			line:  messageTokens + s.prose(s.droppedLine(call)),
		})
	}
	return l
}
