package messagesbody

import (
	"bytes"
	"encoding/json"
	"slices"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/wire"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/kept"
)

const (
	user      = "user"
	assistant = "assistant"
)

// noQuestion stands before an answer that begins a conversation, which a user's message must.
const noQuestion = "(no message)"

// A turn is a message of the API: consecutive messages with one role.
type turn struct {
	role   string
	blocks []wire.Encoded // never empty
}

// A writer writes messages as turns.
type writer struct {
	written

	provider string
	results  *wire.Results
	ids      *wire.IDs
}

// A written holds messages as they were written.
type written struct {
	system []wire.Encoded // blocks of the system prompt
	turns  []turn
	ids    kept.List[string] // of the calls
}

// histories keeps what was written of conversations, by the provider whose answers are sent back as they came.
var histories wire.Prefixes[written]

// write returns the messages of a request, written for a provider.
func write(provider string, req inference.Request) *writer {
	known, n := histories.Of(req, provider)
	w := &writer{written: known, provider: provider, results: wire.NewResults(req.Messages),
		ids: wire.NewIDs(wire.IDWord, known.ids)}
	w.system = slices.Clip(w.system)
	if w.turns = slices.Clone(w.turns); len(w.turns) > 0 {
		last := &w.turns[len(w.turns)-1]
		last.blocks = slices.Clip(last.blocks)
	}
	w.all(req.Messages[n:], n)
	return w
}

// remember keeps the messages for the next request of the conversation.
func (w *writer) remember(req inference.Request) {
	if !w.results.Complete() {
		return
	}
	size := 0
	for _, t := range w.turns {
		for _, block := range t.blocks {
			size += len(block)
		}
	}
	histories.Keep(req, w.provider, written{w.system, w.turns, w.ids.All()}, size)
}

// all writes messages, the first of which has this index in the request.
func (w *writer) all(messages []inference.Message, first int) {
	for i, m := range messages {
		switch m.Role {
		case inference.RoleAssistant:
			w.answer(first+i, m)
		case inference.RoleTool: // written after its call; without one it is left out
		case inference.RoleSystem:
			if len(w.turns) == 0 {
				w.system = appendTextBlock(w.system, m.Text)
				continue
			}
			w.add(user, appendTextBlock(nil, m.Text)...) // in the system prompt it would change what stands before
		default:
			w.add(user, appendTextBlock(nil, m.Text)...)
		}
	}
}

// add adds blocks to the last turn if it has the role, else to a new one.
func (w *writer) add(role string, blocks ...wire.Encoded) {
	if len(blocks) == 0 {
		return
	}
	n := len(w.turns)
	switch {
	case n > 0 && w.turns[n-1].role == role:
		w.turns[n-1].blocks = append(w.turns[n-1].blocks, blocks...)
		return
	case n == 0 && role == assistant:
		w.add(user, appendTextBlock(nil, noQuestion)...)
	}
	w.turns = append(w.turns, turn{role, blocks})
}

// answer adds an answer, and after it the results of its calls.
func (w *writer) answer(at int, m inference.Message) {
	ids := make([]string, len(m.Calls))
	for i, c := range m.Calls {
		ids[i] = w.ids.Take(c.ID)
	}
	blocks, ok := w.replayed(m, ids)
	if !ok {
		blocks = appendTextBlock(nil, m.Text)
		for i, c := range m.Calls {
			blocks = append(blocks, call(ids[i], c))
		}
	}
	w.add(assistant, blocks...)
	for i, c := range m.Calls {
		w.add(user, result(ids[i], w.results.Of(at, c.ID)))
	}
}

// replayed returns the blocks of an answer as its provider sent them, with other ids and arguments of calls if these
// have changed. ok is false if the answer is of another provider or API, or does not have these calls.
func (w *writer) replayed(m inference.Message, ids []string) (blocks []wire.Encoded, ok bool) {
	var raw []json.RawMessage
	if m.RawProvider == "" || m.RawProvider != w.provider || json.Unmarshal(m.Raw, &raw) != nil || len(raw) == 0 {
		return nil, false
	}
	calls, says := 0, false
	for _, data := range raw {
		var block struct {
			Type  string          `json:"type"`
			Text  loose.Text      `json:"text"`
			ID    loose.Text      `json:"id"`
			Name  loose.Text      `json:"name"`
			Input json.RawMessage `json:"input"`
		}
		if json.Unmarshal(data, &block) != nil || block.Type == "" {
			return nil, false
		}
		text, name := compact(data), wire.ToolName(string(block.Name))
		switch block.Type {
		case "text":
			says = says || block.Text != ""
		case "tool_use":
			if calls == len(ids) || name != wire.ToolName(m.Calls[calls].Name) {
				return nil, false
			}
			id, input := ids[calls], wire.Arguments(m.Calls[calls].Arguments)
			if !sameValue(block.Input, input) || string(block.ID) != id || string(block.Name) != name {
				text = changed(data, id, name, input)
			}
			calls++
		}
		blocks = append(blocks, text)
	}
	return blocks, calls == len(ids) && (says || inference.Blank(m.Text))
}

// changed returns a call with another id, name and input.
func changed(block json.RawMessage, id, name, input string) wire.Encoded {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(block, &members) // it was decoded before
	object := wire.Object{}
	for name, value := range members {
		object[name] = value
	}
	object["id"], object["name"], object["input"] = id, name, compact(json.RawMessage(input))
	text, _ := wire.Append(nil, object) // texts, and JSON that was decoded
	return text
}

// sameValue reports whether two JSON texts have the same value. What is on record of a call has its members sorted.
func sameValue(a json.RawMessage, b string) bool {
	if string(a) == b {
		return true
	}
	x, failed := arguments.Parse(string(a))
	y, err := arguments.Parse(b)
	return failed == nil && err == nil && x.Canonical() == y.Canonical()
}

// compact returns JSON without white space, in valid UTF-8.
func compact(text json.RawMessage) wire.Encoded {
	var out bytes.Buffer
	out.Grow(len(text))
	if json.Compact(&out, bytes.ToValidUTF8(text, []byte("\uFFFD"))) != nil {
		return wire.Encoded("{}")
	}
	return out.Bytes()
}

// appendTextBlock appends a block with a text. The API refuses a blank one.
func appendTextBlock(blocks []wire.Encoded, text string) []wire.Encoded {
	if inference.Blank(text) {
		return blocks
	}
	return append(blocks, append(wire.AppendText([]byte(`{"text":`), text), `,"type":"text"}`...))
}

func call(id string, c inference.Call) wire.Encoded {
	b := append(wire.AppendText([]byte(`{"id":`), id), `,"input":`...)
	b = append(b, compact(json.RawMessage(wire.Arguments(c.Arguments)))...)
	b = wire.AppendText(append(b, `,"name":`...), wire.ToolName(c.Name))
	return append(b, `,"type":"tool_use"}`...)
}

// result returns the result of a call. A blank one has no content, because the API refuses a blank text.
func result(id, text string) wire.Encoded {
	b := []byte("{")
	if !inference.Blank(text) {
		b = append(wire.AppendText(append(b, `"content":`...), text), ',')
	}
	return append(wire.AppendText(append(b, `"tool_use_id":`...), id), `,"type":"tool_result"}`...)
}

// appendMessages appends the list of messages, with a cache mark at the end of the last two of the user.
func (w *writer) appendMessages(b []byte) []byte {
	marked, left := map[int]bool{}, maxTail
	for i := len(w.turns) - 1; i >= 0 && left > 0; i-- {
		if w.turns[i].role == user {
			marked[i] = true
			left--
		}
	}
	b = append(b, '[')
	for i, t := range w.turns {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendObjects(append(b, `{"role":"`+t.role+`","content":`...), t.blocks, marked[i])
		b = append(b, '}')
	}
	return append(b, ']')
}
