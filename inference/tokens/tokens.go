// Package tokens counts the tokens of texts, without a network: exactly for OpenAI's models,
// and by characters for all others. Only this package imports the tokenizer.
package tokens

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"turnkeeper/inference"
)

// PerMessage is the overhead of a message, in tokens.
const PerMessage = 4

const (
	charsPerJSONToken  = 2.8
	charsPerProseToken = 3.2

	// maxExact is the maximum size of a text that is tokenized, in bytes. The tokenizer
	// takes up to half a millisecond per kilobyte.
	maxExact = 64 << 10
)

// A Counter counts tokens for one model. The zero value counts by characters.
// It is safe for concurrent use.
type Counter struct{ exact func(string) (int, error) }

// For returns the counter of a model, named with or without its provider.
func For(model string) Counter {
	name := strings.ToLower(model)
	name = name[strings.LastIndexByte(name, '/')+1:]
	for _, prefix := range []string{"gpt-", "chatgpt-", "o1", "o3", "o4", "codex-"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && (strings.HasSuffix(prefix, "-") || rest == "" ||
			rest[0] == '-') {
			return Counter{exact: countO200k}
		}
	}
	return Counter{}
}

// Exact reports whether the model's own tokenizer counts, which it does for texts up to 64 KB.
func (c Counter) Exact() bool { return c.exact != nil }

// CountText returns the number of tokens of prose, code, or anything but JSON.
func (c Counter) CountText(s string) int { return c.count(s, charsPerProseToken) }

// CountJSON returns the number of tokens of JSON.
func (c Counter) CountJSON(s string) int { return c.count(s, charsPerJSONToken) }

// CountMessage returns the number of tokens of a message of a request.
func (c Counter) CountMessage(m inference.Message) int {
	n := PerMessage + c.CountText(m.Text) + c.CountText(m.CallID)
	for _, call := range m.Calls {
		n += PerMessage + c.CountText(call.ID) + c.CountText(call.Name) + c.CountJSON(call.Arguments)
	}
	return n
}

// CountTools returns the number of tokens of tool definitions.
func (c Counter) CountTools(tools []inference.ToolDefinition) int {
	n := 0
	for _, tool := range tools {
		declared, err := json.Marshal(tool)
		if err != nil { // parameters that are not JSON
			n += c.CountText(tool.Name) + c.CountText(tool.Description) + c.CountJSON(string(tool.Parameters))
			continue
		}
		n += PerMessage + c.CountJSON(string(declared))
	}
	return n
}

// o200k is loaded on first use, because that takes about 80 ms and 6 MB.
var o200k struct {
	load sync.Once
	*codec.Codec
}

// countO200k is reached only from For, and no variable of the package is set to the tokenizer at start: a program that
// does not call For contains no vocabulary.
func countO200k(s string) (int, error) {
	o200k.load.Do(func() { o200k.Codec = codec.NewO200kBase() })
	return o200k.Count(s)
}

func (c Counter) count(s string, charsPerToken float64) int {
	if c.exact != nil && len(s) <= maxExact {
		if n, err := c.exact(s); err == nil {
			return n
		}
	}
	return int(math.Ceil(float64(utf8.RuneCountInString(s)) / charsPerToken))
}
