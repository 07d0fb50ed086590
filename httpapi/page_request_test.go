package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/httpapi"
	"turnkeeper/httpapi/page"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// TestTheRequestOfARound checks what the page shows of a request: what is new, where it differs from the one before,
// tools, long texts, and why it cannot be compared or rebuilt.
func TestTheRequestOfARound(t *testing.T) {
	var sent page.SentRequest
	var fails error
	h := newEnv(t, func(c *httpapi.Config) {
		c.Mask = func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
		c.Rebuild = func(_ context.Context, turn turnkeeper.TurnID, round int) (page.SentRequest, error) {
			sent.Turn, sent.Round = turn, round
			return sent, fails
		}
	})
	done := h.turn("clerk", "say hello")
	done.write(turnlog.Entry{Round: &turnkeeper.Round{Number: 1, Charged: true, Provider: "local", Model: "small",
		Attempts: 1, FinishReason: "stop", Text: "Hello.", Recipe: &turnkeeper.Recipe{}}}, turnlog.Consequence{})
	done.finish("Hello.")
	path := fmt.Sprintf("/turns/%d/requests/1", done.id)
	h.ask("GET", fmt.Sprintf("/turns/%d", done.id), "").wantPage(t, 200, `<a href="`+path+`">the request`)
	say := func(role inference.Role, text string) inference.Message {
		return inference.Message{Role: role, Text: text}
	}
	sent.Exact, sent.Recipe.Provider, sent.Recipe.Model = true, "local", "small"
	sent.Messages = []inference.Message{say("system", "You test."), say("user", "<b>old</b>"),
		{Role: "assistant", Calls: []inference.Call{{Name: "look", Arguments: `{"at":1}`}},
			Raw:         []byte(`{"signed":"x1"}`),
			RawProvider: "local"},
		{Role: "tool", Tool: "look", Text: strings.Repeat("é", 30_000)}, say("user", "")}
	sent.Tools = []inference.ToolDefinition{{Name: "look", Description: "Looks.", Parameters: []byte(`{"x":1}`)}}
	// marks checks how many messages or tools the page marks with a text, and how many are expanded.
	marks := func(a answer, marked int, text string, open int) {
		t.Helper()
		body := string(a.body)
		if n := strings.Count(body, "</span>"+text+"</span>"); n != marked {
			t.Errorf("%d pieces are marked as %s, not %d: %s", n, text, marked, body)
		}
		if n := strings.Count(body, "<details open>"); n != open {
			t.Errorf("%d pieces are open, not %d: %s", n, open, body)
		}
	}
	show := func(part string, says ...string) answer {
		t.Helper()
		a := h.ask("GET", path+part, "")
		a.wantPage(t, 200, says...)
		return a
	}
	marks(show("", "No request before it is on record", "local/small", "turnctl show "), 0, "new", 4)

	sent.Compared = &prompt.Comparison{Turn: 7, Round: 3, Repeated: 2}
	marks(show("", `begins with the 2 messages of <a href="/turns/7/requests/3">`, "You test.",
		"&lt;b&gt;old&lt;/b&gt;",
		"Call of look", "As local sent it", "{&#34;signed&#34;:&#34;x1&#34;}", "Empty.", "10,000 characters more",
		`aria-current="page">Messages`, path+"?part=tools"), 3, "new", 5)
	marks(show("?part=tools", "Looks.", "{\n  &#34;x&#34;: 1\n}", `aria-current="page">Tools`), 0, "new", 0)

	sent.Exact, sent.Compared.Repeated = false, 0
	sent.Compared.Differs = &prompt.Divergence{Kind: prompt.DifferentSystem, Number: 1, Byte: 5, Before: "You work.",
		After: "You test."}
	sent.Before, sent.After = "You work.", "You test."
	sent.Recipe.Start = &turnkeeper.Epoch{Reason: prompt.EpochDefinition}
	marks(show("", "It does not extend", "prompt, tools or settings had changed", `<a href="`+path+
		`#message-1">the system prompt differs from byte 5 on</a>`, "“You work.”", "“You test.”", "Not byte for byte"),
		5, "read anew", 4)
	marks(show("?part=tools"), 0, "read anew", 0)
	*sent.Compared.Differs = prompt.Divergence{Kind: prompt.DifferentMessage, Number: 4, Name: "tool", Byte: 9,
		Before: "was", After: "is"}
	sent.Compared.Repeated = 3
	marks(show("", `#message-4">message 4 (tool) differs`), 2, "read anew", 5)
	*sent.Compared.Differs = prompt.Divergence{Kind: prompt.DifferentTool, Number: 1, Name: "look",
		Byte: 1, After: "{}"}
	sent.Compared.Repeated, sent.Before = 0, ""
	marks(show("?part=tools", `<a href="`+path+`?part=tools#tool-1">tool 1 (look) was added</a>`), 1, "read anew", 1)
	*sent.Compared.Differs = prompt.Divergence{Kind: prompt.DifferentTool, Number: 2, Name: "go", Byte: 1, Before: "{}"}
	marks(show("?part=tools", "tool 2 (go) is missing. "), 0, "read anew", 0)

	sent.Compared, sent.Unknown = nil, errors.New("the part hunter2 is not stored")
	marks(show("", "It cannot be compared with the request before it: the part [redacted] is not stored."), 0, "new", 4)
	sent.Unknown, fails = nil, sent.Unknown
	show("", "It cannot be built again: the part [redacted] is not stored.")
	fails = &net.OpError{Op: "dial", Err: errors.New("refused")} // the database is away
	h.ask("GET", path, "").wantPage(t, 503, "The database does not answer")
	for _, round := range []string{"0", "9", "x"} {
		h.ask("GET", fmt.Sprintf("/turns/%d/requests/%s", done.id, round), "").wantPage(t, 404, "has no answered round")
	}
}
