package prompt

import (
	"strings"
	"unicode/utf8"

	"turnkeeper/inference"
)

// A TokenCounter counts the tokens of a text for a model. Implementations are safe for
// concurrent use.
type TokenCounter interface {
	CountText(text string) int // prose, code, or anything but JSON
	CountJSON(text string) int
}

// HeuristicTokens estimates tokens from characters: 2.8 characters per token for JSON, 3.2
// for other text, rounded up.
type HeuristicTokens struct{}

// CountText counts prose.
func (HeuristicTokens) CountText(text string) int { return (utf8.RuneCountInString(text)*10 + 31) / 32 }

// CountJSON counts JSON.
func (HeuristicTokens) CountJSON(text string) int { return (utf8.RuneCountInString(text)*10 + 27) / 28 }

// Overhead, in tokens.
const (
	messageTokens = 4 // of a message
	callTokens    = 8 // of a tool call: its id and framing
)

// Counts remembers the token counts of texts, because the requests of a turn repeat them.
// It belongs to one goroutine.
type Counts struct {
	Counter TokenCounter
	counts  map[memoKey]int
	model   string
	cache   *Cache // of the process, for a slow counter; nil: none
}

type memoKey struct {
	text string
	json bool
}

// NewCounts returns empty Counts for a counter. If the counter is the model's own
// tokenizer, which is slow, the counts are also kept in the cache under the model's name.
// cache may be nil.
func NewCounts(counter TokenCounter, model string, cache *Cache) *Counts {
	m := &Counts{Counter: counter, counts: map[memoKey]int{}}
	if Exact(counter) {
		m.model, m.cache = model, cache
	}
	return m
}

// Answer returns the estimated tokens of an answer.
func (m *Counts) Answer(res inference.Response) int {
	n := m.prose(res.Text) + m.prose(res.Reasoning)
	for _, call := range res.Calls {
		n += m.json(call.Arguments) + callTokens
	}
	return n
}

// Count returns the tokens of messages with these texts. It is safe for concurrent use.
func Count(c TokenCounter, texts ...string) int {
	n := 0
	for _, text := range texts {
		n += c.CountText(text) + messageTokens
	}
	return n
}

func (m *Counts) prose(text string) int { return m.count(memoKey{text, false}) }
func (m *Counts) json(text string) int  { return m.count(memoKey{text, true}) }

// content counts a text that may be prose or JSON, as tool results are.
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
