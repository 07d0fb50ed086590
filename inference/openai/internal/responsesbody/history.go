package responsesbody

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/inference/openai/internal/wire"
	"turnkeeper/internal/kept"
)

// A history writes messages as items.
type history struct {
	historyForm

	ids     *wire.IDSet // of the items that are written
	calls   *wire.IDs
	results *wire.Results
	stem    wire.Stem // what a request before had of the items; empty: none
	out     []byte    // the list of the others, without its end
}

// A historyForm is what the text of items depends on besides the messages.
type historyForm struct {
	provider    string
	noReasoning bool
	idFormat    wire.IDFormat
}

// A written is what was written of the items of a request, with the ids of its items and calls.
type written struct {
	wire.Stem

	ids   kept.List[string]
	calls kept.List[string]
}

// histories keeps what was written of conversations.
var histories wire.Prefixes[written]

// write returns the items of a request.
func write(form historyForm, req inference.Request) *history {
	known, n := histories.Of(req, form)
	h := &history{historyForm: form, ids: wire.NewIDSet(known.ids), calls: wire.NewIDs(form.idFormat, known.calls),
		results: wire.NewResults(req.Messages), stem: known.Stem,
		out: make([]byte, 0, sizeOf(req.Messages[n:]))}
	for i, m := range req.Messages[n:] {
		if n+i > 0 || m.Role != inference.RoleSystem { // those are the instructions
			h.add(n+i, m)
		}
	}
	return h
}

func (h *history) isEmpty() bool { return h.stem.Len()+len(h.out) == 0 }

// grow returns what is written of all items, after head, and keeps it for the next request of the conversation.
func (h *history) grow(req inference.Request, head []byte) wire.Stem {
	stem := h.stem.Grow(head, h.out)
	if h.results.Complete() {
		histories.Keep(req, h.historyForm, written{stem, h.ids.All(), h.calls.All()}, stem.Len())
	}
	return stem
}

// sizeOf returns about the size of messages as items, in bytes.
func sizeOf(messages []inference.Message) (size int) {
	for _, m := range messages {
		size += len(m.Text) + len(m.Raw) + itemBytes*(1+len(m.Calls))
	}
	return size
}

func (h *history) next() {
	if h.isEmpty() {
		h.out = append(h.out, '[')
	} else {
		h.out = append(h.out, ',')
	}
}

// add writes the message at an index of the request.
func (h *history) add(at int, m inference.Message) {
	switch m.Role {
	case inference.RoleAssistant:
		h.answer(at, m)
	case inference.RoleTool: // written after its call; without one it is left out
	case inference.RoleSystem:
		h.message("system", m.Text)
	default:
		h.message("user", m.Text)
	}
}

func (h *history) message(role, text string) {
	if text != "" {
		h.next()
		h.out = append(wire.AppendText(append(h.out, `{"content":`...), text),
			`,"role":"`+role+`","type":"message"}`...)
	}
}

// answer writes an answer as its provider sent it, if that says what the message says, and the results of its calls.
func (h *history) answer(at int, m inference.Message) {
	if m.Text == "" && len(m.Calls) == 0 {
		return
	}
	ids := make([]string, len(m.Calls))
	for i, c := range m.Calls {
		ids[i] = h.calls.Take(c.ID)
	}
	if items, ok := h.received(m); ok {
		h.replay(items, m.Calls, ids)
	} else {
		h.message("assistant", m.Text)
		for i, c := range m.Calls {
			h.call(map[string]json.RawMessage{}, c, ids[i])
		}
	}
	for i, c := range m.Calls {
		h.next()
		h.out = wire.AppendText(append(h.out, `{"call_id":`...), ids[i])
		h.out = wire.AppendText(append(h.out, `,"output":`...), h.results.Of(at, c.ID))
		h.out = append(h.out, `,"type":"`+TypeResult+`"}`...)
	}
}

// foreign holds the types of content blocks of Anthropic's Messages, which are no items.
var foreign = []string{
	"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use", "image", "document",
}

// received returns the items of an answer as its provider sent them. ok is false if it has none, or others than the
// message has: another API's answer, or a damaged one.
func (h *history) received(m inference.Message) (items []Item, ok bool) {
	if m.RawProvider == "" || m.RawProvider != h.provider {
		return nil, false
	}
	items, ok = readItems(m.Raw)
	if !ok || Said(items) != m.Text {
		return nil, false
	}
	calls := m.Calls
	for _, item := range items {
		switch {
		case slices.Contains(foreign, item.Type), item.Type == TypeMessage && item.text("role") != "assistant":
			return nil, false
		case item.Type != TypeCall:
		case len(calls) == 0 || wire.ToolName(item.text("name")) != wire.ToolName(calls[0].Name):
			return nil, false
		default:
			calls = calls[1:]
		}
	}
	return items, len(calls) == 0
}

// A sentItem is sent back. It is nameless if its id must be left out, because a server would then ask for the
// reasoning that it belongs to.
type sentItem struct {
	Item

	nameless bool
}

// keep returns the items that can be sent back. Servers refuse reasoning without what it led to directly after it, and
// they cannot read reasoning without its encrypted form. Without it, what follows cannot have an id, and tools of the
// provider's own need theirs.
func (h *history) keep(items []Item) (all []sentItem) {
	missing := h.known(items)
	for n, item := range items {
		switch {
		case item.Type == TypeReasoning && (h.noReasoning || item.text("encrypted_content") == "" ||
			!leads(items[n+1:])):
			missing = true
		case item.Unanswered() || item.isResult(), missing && item.id() != "" && !slices.Contains(plain, item.Type):
		default:
			all = append(all, sentItem{item, missing})
		}
	}
	followed := false
	for n, item := range slices.Backward(all) {
		if item.Type != TypeReasoning {
			followed = true
		} else if !followed || n+1 < len(all) && !adjacent(items, item.Item, all[n+1].Item) {
			all = slices.Delete(all, n, n+1)
		}
	}
	return all
}

// plain holds the types of items that need no id.
var plain = []string{TypeMessage, TypeCall, TypeReasoning, "compaction"}

// leads reports whether reasoning before these items has led to one that can be sent.
func leads(items []Item) bool {
	n := slices.IndexFunc(items, func(i Item) bool { return i.Type != TypeReasoning })
	return n >= 0 && !items[n].Unanswered() && !items[n].isResult()
}

// adjacent reports whether there is nothing but reasoning between two items.
func adjacent(items []Item, a, b Item) bool {
	same := func(i Item) func(Item) bool { return func(other Item) bool { return &i.Raw[0] == &other.Raw[0] } }
	from, to := slices.IndexFunc(items, same(a)), slices.IndexFunc(items, same(b))
	return !slices.ContainsFunc(items[from:to], func(i Item) bool { return i.Type != TypeReasoning })
}

// known reports whether an item has an id that an item before has too. It takes the ids of the items otherwise.
func (h *history) known(items []Item) bool {
	var fresh []string
	for _, item := range items {
		id := item.id()
		if id == "" {
			continue
		}
		if h.ids.Has(id) || slices.Contains(fresh, id) {
			return true
		}
		fresh = append(fresh, id)
	}
	h.ids.Add(fresh...)
	return false
}

// replay writes the items of an answer.
func (h *history) replay(items []Item, calls []inference.Call, ids []string) {
	for _, item := range h.keep(items) {
		members := maps.Clone(item.Members)
		maps.DeleteFunc(members, func(_ string, value json.RawMessage) bool { return loose.IsNull(value) })
		if item.nameless || item.id() == "" {
			delete(members, "id")
		}
		switch item.Type {
		case TypeMessage:
			h.said(item.Item, members)
		case TypeCall:
			h.call(members, calls[0], ids[0])
			calls, ids = calls[1:], ids[1:]
		case TypeReasoning:
			delete(members, "status") // refused in a request
			if members["summary"] == nil {
				members["summary"] = json.RawMessage("[]")
			}
			h.item(item.Item, members)
		default:
			h.item(item.Item, members)
		}
	}
}

// said writes a message. Without an id, the API documents another form for it, which has only text.
func (h *history) said(item Item, members map[string]json.RawMessage) {
	text, refusal, regular := item.Said()
	switch {
	case members["id"] == nil || !regular:
		members["content"] = wire.AppendText(nil, cmp.Or(text, refusal))
		maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool {
			return name != "content" && name != "role" && name != "phase"
		})
	case members["status"] == nil:
		members["status"] = json.RawMessage(`"completed"`) // required
	}
	members["type"] = json.RawMessage(`"` + TypeMessage + `"`)
	h.item(item, members)
}

// call writes a call with the members that its provider sent.
func (h *history) call(members map[string]json.RawMessage, c inference.Call, id string) {
	if arguments := loose.Scalar(members["arguments"]); arguments != c.Arguments || !loose.IsObject([]byte(arguments)) {
		members["arguments"] = wire.AppendText(nil, wire.Arguments(c.Arguments))
	}
	members["type"] = json.RawMessage(`"` + TypeCall + `"`)
	members["call_id"], members["name"] = wire.AppendText(nil, id), wire.AppendText(nil, wire.ToolName(c.Name))
	h.item(Item{}, members)
}

// item writes an item as it was received, if its members are those that were received.
func (h *history) item(item Item, members map[string]json.RawMessage) {
	h.next()
	if maps.EqualFunc(members, item.Members, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		h.out = appendCompact(h.out, item.Raw)
		return
	}
	h.out = append(h.out, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			h.out = append(h.out, ',')
		}
		h.out = appendCompact(append(wire.AppendText(h.out, name), ':'), members[name])
	}
	h.out = append(h.out, '}')
}

// appendCompact appends JSON in UTF-8 without white space.
func appendCompact(b []byte, text json.RawMessage) []byte {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	out := bytes.NewBuffer(b)
	_ = json.Compact(out, text) // it was decoded before
	return out.Bytes()
}
