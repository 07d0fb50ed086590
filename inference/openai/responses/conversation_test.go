package responses_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
)

// A strictServer follows the documentation of OpenAI's API to the letter, for one conversation. It refuses what
// inferencetest.ResponsesViolations finds, a request that does not begin with the items of the one before and those
// of its answer, and an item with an id that is not what it has sent under the id.
type strictServer struct {
	t         *testing.T
	r         *rand.Rand
	encrypted bool              // reasoning is
	n         int               // items that were sent
	answered  [][]byte          // items that the next request must begin with; nil: none yet
	rest      map[string][]byte // instructions and tools of the first request
	sent      map[string][]byte // items by their id, without members that are not sent back
	refusals  []string
}

func (s *strictServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	faults := append(inferencetest.ResponsesViolations(body), s.changed(body)...)
	if len(faults) > 0 {
		s.refusals = append(s.refusals, faults...)
		return s.respond(r, http.StatusBadRequest, "application/json",
			fmt.Sprintf(`{"error":{"message":%q,"type":"invalid_request_error","param":"input","code":null}}`,
				strings.Join(faults, "; "))), nil
	}
	output := s.output()
	var request struct {
		Stream bool              `json:"stream"`
		Input  []json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(body, &request) // it was read before
	s.answered = nil
	for _, item := range request.Input {
		s.answered = append(s.answered, item)
	}
	plain := isPlain(output)
	for _, item := range output {
		back := s.comesBack(item)
		if plain {
			back = []byte(encode(short(item)))
		}
		if back != nil {
			s.answered = append(s.answered, back)
		}
	}
	if request.Stream {
		return s.respond(r, http.StatusOK, "text/event-stream", s.stream(output)), nil
	}
	return s.respond(r, http.StatusOK, "application/json", encode(s.response("completed", output))), nil
}

func (s *strictServer) respond(r *http.Request, status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ProtoMajor: 1, ProtoMinor: 1}
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// changed returns where a request differs from what the server has seen and sent.
func (s *strictServer) changed(body []byte) (faults []string) {
	var request struct {
		Input        []json.RawMessage `json:"input"`
		Instructions json.RawMessage   `json:"instructions"`
		Tools        json.RawMessage   `json:"tools"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return []string{err.Error()}
	}
	rest := map[string][]byte{"instructions": request.Instructions, "tools": request.Tools}
	if s.rest == nil {
		s.rest = rest
	}
	for name, value := range rest {
		if !bytes.Equal(s.rest[name], value) {
			faults = append(faults, name+" has changed")
		}
	}
	for n, want := range s.answered {
		if n >= len(request.Input) {
			return append(faults, fmt.Sprintf("input[%d] is missing: %s", n, want))
		}
		if got := request.Input[n]; !sameJSON(got, want) {
			return append(faults, fmt.Sprintf("input[%d] is %s, not %s", n, got, want))
		}
	}
	for _, item := range request.Input {
		var named struct{ ID string }
		if json.Unmarshal(item, &named) == nil && named.ID != "" && !sameJSON(item, s.sent[named.ID]) {
			faults = append(faults, fmt.Sprintf("the item %s is not the one that was sent: %s", item, s.sent[named.ID]))
		}
	}
	return faults
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equalJSON(x, y)
}

// comesBack returns the form in which an item must come back; nil: it must not.
func (s *strictServer) comesBack(item map[string]any) []byte {
	back := map[string]any{}
	for name, value := range item {
		if value != nil {
			back[name] = value
		}
	}
	if item["type"] == "reasoning" {
		delete(back, "status")
		if !s.encrypted {
			return nil
		}
	}
	if !s.encrypted { // nothing has an id without its reasoning
		delete(back, "id")
		if item["type"] == "message" {
			delete(back, "status")
			back["content"] = item["content"].([]any)[0].(map[string]any)["text"] //nolint:forcetypeassert // it is
		}
	} else {
		s.sent[item["id"].(string)] = []byte(encode(back)) //nolint:forcetypeassert // it is
	}
	return []byte(encode(back))
}

// isPlain reports whether an answer is a text, calls after it, and nothing else that a client must keep.
func isPlain(output []map[string]any) bool {
	for n, item := range output {
		if item["type"] != "function_call" && (item["type"] != "message" || n > 0) || item["phase"] != nil {
			return false
		}
	}
	return true
}

// short returns an item as it is built without Raw: from its text or its call alone.
func short(item map[string]any) map[string]any {
	if item["type"] == "function_call" {
		return map[string]any{"type": "function_call", "call_id": item["call_id"], "name": item["name"],
			"arguments": strings.TrimSpace(item["arguments"].(string))} //nolint:forcetypeassert // it is
	}
	return map[string]any{"type": "message", "role": "assistant",
		"content": item["content"].([]any)[0].(map[string]any)["text"]} //nolint:forcetypeassert // it is
}

func (s *strictServer) id(kind string) string {
	s.n++
	return fmt.Sprintf("%s_%d", kind, s.n)
}

// output returns a random answer.
func (s *strictServer) output() (items []map[string]any) {
	reason := func() {
		for range 1 + s.r.IntN(2) {
			item := map[string]any{"type": "reasoning", "id": s.id("rs"), "summary": []any{}}
			if s.r.IntN(2) == 0 {
				item["summary"] = []any{map[string]any{"type": "summary_text", "text": s.word()}}
			}
			switch {
			case s.encrypted:
				item["encrypted_content"] = "gAAA" + s.word()
			case s.r.IntN(2) == 0:
				item["encrypted_content"] = nil
			}
			if s.r.IntN(3) == 0 {
				item["status"], item["content"] = one(s.r, any(nil), any("completed")), nil
			}
			items = append(items, item)
		}
	}
	if !s.encrypted {
		reason()
	}
	for range 1 + s.r.IntN(4) {
		if s.r.IntN(2) == 0 {
			reason()
		}
		switch s.r.IntN(5) {
		case 0, 1:
			message := map[string]any{"type": "message", "id": s.id("msg"), "role": "assistant", "status": "completed",
				"content": []any{map[string]any{"type": "output_text", "annotations": []any{}, "text": s.word()}}}
			if s.r.IntN(2) == 0 {
				message["phase"] = one(s.r, "commentary", "final_answer")
			}
			items = append(items, message)
		case 2, 3:
			items = append(items, map[string]any{"type": "function_call", "id": s.id("fc"), "call_id": s.id("call"),
				"name": one(s.r, "clock", "read_file"), "status": "completed",
				"arguments": one(s.r, "{}", `{"a": 1}`, `{"p":"é\"\\"}`, ` {"q":[]}`)})
		default:
			if s.encrypted {
				items = append(items, map[string]any{"type": one(s.r, "web_search_call", "code_interpreter_call"),
					"id": s.id("ws"), "status": "completed"})
			}
		}
	}
	text := func(i map[string]any) bool { return i["type"] == "message" || i["type"] == "function_call" }
	if last := len(items) - 1; last < 0 || items[last]["type"] == "reasoning" || !slices.ContainsFunc(items, text) {
		items = append(items, map[string]any{"type": "message", "id": s.id("msg"), "role": "assistant",
			"status": "completed", "content": []any{map[string]any{"type": "output_text", "text": s.word()}}})
	}
	return items
}

func (s *strictServer) word() string {
	return one(s.r, "yes", "no 🌍", "a <b> & \"c\"", "line\nline\u2028", "x y z", "\\u0041")
}

// one returns one of a few values.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func (s *strictServer) response(status string, output []map[string]any) map[string]any {
	return map[string]any{"id": "resp_1", "object": "response", "status": status, "model": "m-1", "output": output,
		"error": nil, "incomplete_details": nil, "usage": map[string]any{"input_tokens": 5, "output_tokens": 6}}
}

// stream returns an answer as events. Optional events are left out at random.
func (s *strictServer) stream(output []map[string]any) string {
	var stream strings.Builder
	number := 0
	event := func(kind string, members map[string]any) {
		members["type"], members["sequence_number"] = kind, number
		number++
		fmt.Fprintf(&stream, "event: %s\ndata: %s\n\n", kind, encode(members))
	}
	event("response.created", map[string]any{"response": s.response("in_progress", nil)})
	lean := s.r.IntN(4) == 0 // only whole items
	for at, item := range output {
		started := map[string]any{"type": item["type"], "id": item["id"], "status": "in_progress"}
		members := func(more ...any) map[string]any {
			all := map[string]any{"item_id": item["id"], "output_index": at}
			for n := 0; n < len(more); n += 2 {
				all[more[n].(string)] = more[n+1] //nolint:forcetypeassert // the callers pass names
			}
			return all
		}
		pieces := func(kind, text string, more ...any) {
			for text != "" && !lean {
				cut := 1 + s.r.IntN(len(text))
				for cut < len(text) && text[cut]&0xC0 == 0x80 {
					cut++
				}
				event(kind, members(append(more, "delta", text[:cut])...))
				text = text[cut:]
			}
		}
		switch item["type"] {
		case "message":
			started["role"], started["content"] = "assistant", []any{}
			event("response.output_item.added", map[string]any{"output_index": at, "item": started})
			text := item["content"].([]any)[0].(map[string]any)["text"].(string) //nolint:forcetypeassert // as made
			pieces("response.output_text.delta", text, "content_index", 0, "logprobs", []any{})
		case "function_call":
			started["name"], started["call_id"], started["arguments"] = item["name"], item["call_id"], ""
			event("response.output_item.added", map[string]any{"output_index": at, "item": started})
			text := item["arguments"].(string) //nolint:forcetypeassert // as made
			pieces("response.function_call_arguments.delta", text)
			event("response.function_call_arguments.done", members("arguments", item["arguments"]))
		default:
			event("response.output_item.added", map[string]any{"output_index": at, "item": started})
		}
		event("response.output_item.done", map[string]any{"output_index": at, "item": item})
	}
	whole := s.response("completed", output)
	if s.r.IntN(4) == 0 {
		whole["output"] = []any{}
	}
	event("response.completed", map[string]any{"response": whole})
	return stream.String()
}

// TestConversations has 200 random conversations with a strict server. Each request must extend the last one, item by
// item, with the server's own items, and the streamed text and arguments must be those of the answer.
func TestConversations(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := &strictServer{t: t, r: r, encrypted: r.IntN(4) > 0, sent: map[string][]byte{}}
		c := wired(t, s, openai.Profile{NoStream: r.IntN(3) == 0})
		req := inference.Request{Model: "m", CacheKey: "c", Tools: []inference.ToolDefinition{{Name: "clock"},
			{Name: "read_file", Parameters: json.RawMessage(`{"properties":{"p":{"type":"string"}}}`)}}}
		if r.IntN(2) == 0 {
			req.Messages = []inference.Message{{Role: inference.RoleSystem, Text: "Be brief."}}
		}
		req.Messages = append(req.Messages, user("begin"))
		for round := range 2 + r.IntN(8) {
			var heard, asked strings.Builder
			res, err := c.Generate(t.Context(), req, func(d inference.Delta) {
				switch d.Kind {
				case inference.DeltaText:
					heard.WriteString(d.Text)
				case inference.DeltaTool:
					asked.WriteString(d.Text)
				}
			})
			if err != nil || len(s.refusals) > 0 {
				t.Fatalf("seed %d, round %d: %v, %s", seed, round, err, strings.Join(s.refusals, "\n"))
			}
			var arguments strings.Builder
			for _, c := range res.Calls {
				arguments.WriteString(c.Arguments)
			}
			if heard.String() != res.Text || asked.String() != arguments.String() || res.Doubt != "" {
				t.Fatalf("seed %d, round %d: streamed %q and %q of %+v", seed, round, heard.String(), asked.String(), res)
			}
			req.Messages = append(req.Messages, inference.Message{Role: inference.RoleAssistant, Text: res.Text,
				Calls: res.Calls, Raw: res.Raw, RawProvider: res.Provider})
			results := []inference.Message{}
			for _, c := range res.Calls {
				results = append(results, result(c.ID, one(r, "", "done", "12:00")))
			}
			r.Shuffle(len(results), func(a, b int) { results[a], results[b] = results[b], results[a] })
			req.Messages = append(req.Messages, results...)
			if len(res.Calls) == 0 || r.IntN(4) == 0 {
				req.Messages = append(req.Messages, user(one(r, "go on", "more\n")))
			}
		}
	}
}
