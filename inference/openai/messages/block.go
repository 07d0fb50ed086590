package messages

import (
	"bytes"
	"encoding/json"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"turnkeeper/inference/openai/internal/loose"
)

// The types of blocks that are read. Others are only sent back.
const (
	kindText     = "text"
	kindThinking = "thinking"
	kindRedacted = "redacted_thinking"
	kindCall     = "tool_use"
)

// The members of blocks that deltas add to.
const (
	memberText      = "text"
	memberThinking  = "thinking"
	memberSignature = "signature"
	memberCitations = "citations"
)

// A block is a block of content. It keeps everything that came, because it must be sent back unchanged.
type block struct {
	at       int // its position in the answer
	kind     string
	id, name string                     // of a call
	ordinal  int                        // of a call among calls
	members  map[string]json.RawMessage // as it began
	texts    map[string]*loose.Growing  // members that are texts, once a delta has come for them
	cited    []json.RawMessage          // citations that came as deltas
	input    loose.Growing              // pieces of the input
	whole    json.RawMessage            // the block, if it did not come in pieces
	ended    bool
}

func newBlock(data json.RawMessage, at int) *block {
	b := &block{at: at, members: map[string]json.RawMessage{}, texts: map[string]*loose.Growing{},
		input: loose.Growing{Alone: loose.Escaped}}
	_ = json.Unmarshal(data, &b.members) // what is no object has no members
	if b.members == nil {
		b.members = map[string]json.RawMessage{}
	}
	b.kind = loose.Scalar(b.members["type"])
	if b.kind == kindCall {
		b.id, b.name = loose.Scalar(b.members["id"]), loose.Scalar(b.members["name"])
	}
	return b
}

// text returns a member that is a text.
func (b *block) text(name string) string {
	if grown := b.texts[name]; grown != nil {
		return grown.String()
	}
	return loose.Scalar(b.members[name])
}

// take adds a delta other than one of input, and returns the texts that were added to members.
func (b *block) take(d sdk.RawContentBlockDeltaUnion) map[string]string {
	switch d.Type {
	case "text_delta":
		return b.addText(memberText, d.JSON.Text.Raw())
	case "thinking_delta":
		return b.addText(memberThinking, d.JSON.Thinking.Raw())
	case "signature_delta":
		return b.addText(memberSignature, d.JSON.Signature.Raw())
	case "citations_delta":
		if citation := json.RawMessage(d.JSON.Citation.Raw()); loose.IsObject(citation) && len(b.cited) < maxBlocks {
			b.cited = append(b.cited, citation)
		}
		return nil
	}
	// Of an unknown type: it likely adds to texts, and sets other members.
	var members map[string]json.RawMessage
	_ = json.Unmarshal([]byte(d.RawJSON()), &members) // it was decoded before
	added := map[string]string{}
	for name, value := range members {
		switch {
		case name == "type":
		case len(value) > 0 && value[0] == '"':
			for name, text := range b.addText(name, string(value)) {
				added[name] = text
			}
		default:
			delete(b.texts, name)
			b.members[name] = value
		}
	}
	return added
}

func (b *block) addText(name, piece string) map[string]string {
	grown := b.texts[name]
	if grown == nil {
		grown = &loose.Growing{}
		grown.Add(loose.FragmentOf(b.members[name]))
		b.texts[name] = grown
	}
	return map[string]string{name: grown.Add(loose.FragmentOf([]byte(piece)))}
}

// end completes the texts, and returns what was added to them.
func (b *block) end() map[string]string {
	added := map[string]string{}
	for name, grown := range b.texts {
		added[name] = grown.End()
	}
	return added
}

// given returns the input that the block began with, without white space; empty: none.
func (b *block) given() string {
	if loose.IsNull(b.members["input"]) {
		return ""
	}
	return compact(string(b.members["input"]))
}

// plain reports whether the block is a text or a call without anything else.
func (b *block) plain() bool {
	if b.kind != kindText && b.kind != kindCall || len(b.cited) > 0 {
		return false
	}
	for name := range b.texts {
		if b.kind != kindText || name != memberText {
			return false
		}
	}
	for name, value := range b.members {
		switch {
		case name == "type", loose.IsNull(value):
		case b.kind == kindText && name == memberText:
		case b.kind == kindCall && (name == "id" || name == "name" || name == "input"):
		default:
			return false
		}
	}
	return true
}

// encoded returns the block as it is sent back.
func (b *block) encoded() json.RawMessage {
	if b.whole != nil {
		return b.whole
	}
	members := map[string]any{}
	for name, value := range b.members {
		members[name] = value
	}
	for name, grown := range b.texts {
		members[name] = grown.String()
	}
	if len(b.cited) > 0 {
		var before []json.RawMessage
		_ = json.Unmarshal(b.members[memberCitations], &before) // null and absent: none
		members[memberCitations] = append(before, b.cited...)
	}
	if input := b.input.String(); strings.TrimSpace(input) != "" {
		members["input"] = json.RawMessage("{}") // of a call that was cut
		if loose.IsObject([]byte(input)) {
			members["input"] = json.RawMessage(input)
		}
	}
	return marshal(members)
}

// marshal returns JSON without escapes for HTML, so that a block differs as little as possible from what came.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// compact returns JSON without white space, and other text as it is.
func compact(text string) string {
	var out bytes.Buffer
	if json.Compact(&out, []byte(text)) != nil {
		return strings.TrimSpace(text)
	}
	return out.String()
}
