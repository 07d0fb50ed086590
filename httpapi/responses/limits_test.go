package responses

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/limittest"
	"turnkeeper/storage/operate"
)

// A memory is a Store that knows what was said.
type memory struct {
	Store
	said string // in each message
}

func (m memory) Saids(
	_ context.Context, _ turnkeeper.ConversationKey, ids []turnkeeper.MessageID,
) (map[turnkeeper.MessageID]operate.Said, error) {
	known := map[turnkeeper.MessageID]operate.Said{}
	for _, id := range ids {
		known[id] = operate.Said{Sent: operate.Words{Text: m.said}, Reply: operate.Words{Text: m.said}}
	}
	return known, nil
}

// TestLimits tries each limit of a request.
func TestLimits(t *testing.T) {
	parses := func(member string, args ...any) bool {
		_, err := parse(fmt.Appendf(nil, `{"model":"clerk","input":"hi",`+member+`}`, args...))
		return err == nil
	}
	text := func(n int) string { return strings.Repeat("ü", n) } // limits of text count characters
	refers := func(t *testing.T, n int, said string) bool {
		var all []entry
		for i := range n {
			all = append(all, entry{ref: turnkeeper.MessageID(i + 1)})
		}
		a := &API{cfg: Config{Store: memory{said: said}}}
		return a.resolve(t.Context(), turnkeeper.ConversationKey{}, all) == nil
	}
	rows := map[string]limittest.Row{
		"maxPairs": {At: 16, Takes: func(t *testing.T, n int) bool {
			pairs := map[string]string{}
			for i := range n {
				pairs[fmt.Sprint(i)] = "x"
			}
			encoded, err := json.Marshal(pairs)
			if err != nil {
				t.Fatal(err)
			}
			taken := parses(`"metadata":%s`, encoded)
			if created := (parseConversation(fmt.Appendf(nil, `{"metadata":%s}`, encoded),
				&operate.Created{}) == nil); created != taken {
				t.Errorf("%d pairs of a conversation are taken: %t, of a response: %t", n, created, taken)
			}
			return taken
		}},
		"maxKey":   {At: 64, Takes: func(_ *testing.T, n int) bool { return parses(`"metadata":{%q:"x"}`, text(n)) }},
		"maxValue": {At: 512, Takes: func(_ *testing.T, n int) bool { return parses(`"metadata":{"x":%q}`, text(n)) }},
		"maxTokens": {At: 1_000_000, Takes: func(_ *testing.T, n int) bool {
			return parses(`"max_output_tokens":%d`, n)
		}},
		"maxItems": {At: 20, Takes: func(_ *testing.T, n int) bool {
			items := strings.Repeat(`{"role":"user","content":"hi"},`, n)
			return parseConversation([]byte(`{"items":[`+strings.TrimSuffix(items, ",")+`]}`),
				&operate.Created{}) == nil
		}},
		"maxReferences": {At: 200, Takes: func(t *testing.T, n int) bool { return refers(t, n, "hi") }},
		"maxReferred": {At: 4 << 20, Takes: func(t *testing.T, n int) bool { // together
			return refers(t, 1, strings.Repeat("x", n)) && (n%2 == 1 || refers(t, 2, strings.Repeat("x", n/2)))
		}},
		"pieceBytes": {At: 1024, Takes: func(_ *testing.T, n int) bool {
			return len(pieces(strings.Repeat("x", n))) == 1
		}},
	}
	for name, why := range map[string]string{
		"pollTime": "without it, waits only take longer", "writeTimeout": "it is for clients that do not read",
		"cancelTime": "it is for workers that do not answer",
	} {
		rows[name] = limittest.Row{None: why}
	}
	limittest.Check(t, rows)
	if parses(`"max_output_tokens":0`) || !parses(`"max_output_tokens":1`) {
		t.Error("the least limit of an answer is not 1 token")
	}
}
