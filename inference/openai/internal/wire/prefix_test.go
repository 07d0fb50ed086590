package wire

import (
	"testing"

	"turnkeeper/inference"
)

// TestWhatIsKeptOfAConversation asks for what was kept with requests that begin alike and with others.
func TestWhatIsKeptOfAConversation(t *testing.T) {
	said := func(key string, texts ...string) (req inference.Request) {
		req.CacheKey = key
		for _, text := range texts {
			req.Messages = append(req.Messages, inference.Message{Role: inference.RoleUser, Text: text})
		}
		return req
	}
	changed := func(change func(*inference.Message)) inference.Request {
		req := said("a", "one", "two", "three")
		change(&req.Messages[1])
		return req
	}
	var kept Prefixes[string]
	kept.Keep(said("a", "other"), "chat", "replaced", 10)
	kept.Keep(said("a", "one", "two"), "chat", "written", maxPrefixes/4)
	kept.Keep(said("b", "one"), "chat", "too large", maxPrefixes/4+1)
	kept.Keep(said("", "one"), "chat", "of no conversation", 1)
	for name, c := range map[string]struct {
		req      inference.Request
		settings any
		n        int
	}{
		"longer":                {said("a", "one", "two", "three"), "chat", 2},
		"the same":              {said("a", "one", "two"), "chat", 2},
		"shorter":               {said("a", "one"), "chat", 0},
		"of other settings":     {said("a", "one", "two"), "messages", 0},
		"too large to keep":     {said("b", "one"), "chat", 0},
		"of no conversation":    {said("", "one"), "chat", 0},
		"another text":          {changed(func(m *inference.Message) { m.Text = "2" }), "chat", 0},
		"another role":          {changed(func(m *inference.Message) { m.Role = inference.RoleTool }), "chat", 0},
		"a call":                {changed(func(m *inference.Message) { m.Calls = []inference.Call{{}} }), "chat", 0},
		"another call's result": {changed(func(m *inference.Message) { m.CallID = "x" }), "chat", 0},
		"another tool's result": {changed(func(m *inference.Message) { m.Tool = "x" }), "chat", 0},
		"another raw form":      {changed(func(m *inference.Message) { m.Raw = []byte("{}") }), "chat", 0},
		"another provider's":    {changed(func(m *inference.Message) { m.RawProvider = "x" }), "chat", 0},
	} {
		written, n := kept.Of(c.req, c.settings)
		if want := map[int]string{2: "written"}[c.n]; n != c.n || written != want {
			t.Errorf("%s: %d messages as %q, want %d as %q", name, n, written, c.n, want)
		}
	}
}
