package prompt

import (
	"strings"
	"testing"

	"turnkeeper/inference"
)

// TestSizeOfAnAnswer checks that an answer counts as what its provider is sent: what came from the same provider is
// sent back as it came, and else the text and the calls.
func TestSizeOfAnAnswer(t *testing.T) {
	raw := `{"content":"` + strings.Repeat("so it is thought. ", 100) + `"}`
	answer := inference.Message{Role: inference.RoleAssistant, Text: "main", Calls: []inference.Call{{ID: "c1",
		Name: "look", Arguments: `{"n":1}`}}}
	s := newSizer(Model{Provider: "main", Name: "model", Tokens: NewCounts(HeuristicTokens{}, "model", nil)},
		&epoch{model: modelKey{"main", "model"}})
	plain := s.of(answer)
	whole := messageTokens + HeuristicTokens{}.CountJSON(raw)
	for name, c := range map[string]struct {
		raw, provider string
		size          int
	}{
		"nothing came but this":  {"", "main", plain},
		"of the provider":        {raw, "main", whole},
		"less, of the provider":  {"{}", "main", plain},
		"of another provider":    {raw, "other", plain},
		"of an unknown provider": {raw, "", plain},
	} {
		answer.RawProvider = c.provider
		if answer.Raw = nil; c.raw != "" {
			answer.Raw = []byte(c.raw)
		}
		if got := s.of(answer); got != c.size || plain >= whole {
			t.Errorf("%s: %d tokens, want %d", name, got, c.size)
		}
	}
}

// TestACountIsCached checks that a text is counted once for a model and a kind of text, unless it is short.
func TestACountIsCached(t *testing.T) {
	var c Cache
	counted := 0
	count := func(model, text string, json bool) int {
		return c.count(model, memoKey{text, json}, func() int { counted++; return counted })
	}
	long, short := strings.Repeat("x", 256), strings.Repeat("x", 255)
	for i, got := range []int{
		count("a", long, false), count("a", long, false), count("b", long, false), count("a", long, true),
		count("a", long+"y", false), count("a", long, false), count("b", long, false),
		count("a", short, false), count("a", short, false),
	} {
		if want := []int{1, 1, 2, 3, 4, 1, 2, 5, 6}[i]; got != want {
			t.Errorf("count %d is %d, want %d", i, got, want)
		}
	}
}
