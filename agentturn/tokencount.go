package agentturn

import (
	"strings"
	"unicode/utf8"
)

// A TokenCounter says what text costs a model. Implementations are safe for
// concurrent use.
type TokenCounter interface {
	CountText(text string) int // prose, code, or anything but JSON
	CountJSON(text string) int
}

// HeuristicTokens counts by characters: 2.8 a token for JSON, 3.2 for all
// else, rounded up.
type HeuristicTokens struct{}

// CountText counts prose.
func (HeuristicTokens) CountText(text string) int { return (utf8.RuneCountInString(text)*10 + 31) / 32 }

// CountJSON counts JSON.
func (HeuristicTokens) CountJSON(text string) int { return (utf8.RuneCountInString(text)*10 + 27) / 28 }

// Costs beside the content, in tokens.
const (
	messageTokens = 4 // of a message
	callTokens    = 8 // of a tool call: its id and frame
)

// A tokenMemo counts each text once: a turn's requests repeat what was there
// before. It belongs to one goroutine.
type tokenMemo struct {
	counter TokenCounter
	counts  map[memoKey]int
	model   string
	cache   *tokenCache // of all turns, for a counter that takes its time; nil: none
}

type memoKey struct {
	text string
	json bool
}

func newTokenMemo(counter TokenCounter) *tokenMemo {
	return &tokenMemo{counter: counter, counts: map[memoKey]int{}}
}

func (m *tokenMemo) prose(text string) int { return m.count(memoKey{text, false}) }
func (m *tokenMemo) json(text string) int  { return m.count(memoKey{text, true}) }

// content counts text that may be either, as tool results are.
func (m *tokenMemo) content(text string) int {
	start := strings.TrimLeft(text, " \t\r\n")
	return m.count(memoKey{text, strings.HasPrefix(start, "{") || strings.HasPrefix(start, "[")})
}

func (m *tokenMemo) count(key memoKey) int {
	if key.text == "" {
		return 0
	}
	n, ok := m.counts[key]
	if !ok {
		n = m.cache.count(m.model, key, func() int {
			if key.json {
				return m.counter.CountJSON(key.text)
			}
			return m.counter.CountText(key.text)
		})
		m.counts[key] = n
	}
	return n
}

// exact says that the counter is the model's own tokenizer.
func exact(c TokenCounter) bool {
	tokenizer, ok := c.(interface{ Exact() bool })
	return ok && tokenizer.Exact()
}
