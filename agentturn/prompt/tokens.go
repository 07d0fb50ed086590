package prompt

import (
	"strings"
	"unicode/utf8"

	"turnkeeper/inference"
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

// Counts count each text once: a turn's requests repeat what was there
// before. It belongs to one goroutine.
type Counts struct {
	Counter TokenCounter
	counts  map[memoKey]int
	model   string
	cache   *Cache // of all turns, for a counter that takes its time; nil: none
}

type memoKey struct {
	text string
	json bool
}

// NewCounts returns counts by a counter. Those of a model's own tokenizer, which takes
// its time, are kept in the cache under the model's name; nil: in none.
func NewCounts(counter TokenCounter, model string, cache *Cache) *Counts {
	m := &Counts{Counter: counter, counts: map[memoKey]int{}}
	if Exact(counter) {
		m.model, m.cache = model, cache
	}
	return m
}

// Answer returns what an answer takes of which the provider reported nothing.
func (m *Counts) Answer(res inference.Response) int {
	n := m.prose(res.Text) + m.prose(res.Reasoning)
	for _, call := range res.Calls {
		n += m.json(call.Arguments) + callTokens
	}
	return n
}

// Count returns what messages take. It may be called by several goroutines.
func Count(c TokenCounter, texts ...string) int {
	n := 0
	for _, text := range texts {
		n += c.CountText(text) + messageTokens
	}
	return n
}

func (m *Counts) prose(text string) int { return m.count(memoKey{text, false}) }
func (m *Counts) json(text string) int  { return m.count(memoKey{text, true}) }

// content counts text that may be either, as tool results are.
func (m *Counts) content(text string) int {
	start := strings.TrimLeft(text, " \t\r\n")
	return m.count(memoKey{text, strings.HasPrefix(start, "{") || strings.HasPrefix(start, "[")})
}

func (m *Counts) count(key memoKey) int {
	if key.text == "" {
		return 0
	}
	n, ok := m.counts[key]
	if !ok {
		n = m.cache.count(m.model, key, func() int {
			if key.json {
				return m.Counter.CountJSON(key.text)
			}
			return m.Counter.CountText(key.text)
		})
		m.counts[key] = n
	}
	return n
}

// Exact reports whether the counter is the model's own tokenizer.
func Exact(c TokenCounter) bool {
	tokenizer, ok := c.(interface{ Exact() bool })
	return ok && tokenizer.Exact()
}
