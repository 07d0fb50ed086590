package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// An entry is one message of a history as the client has it.
type entry struct {
	assistant bool // said by the agent; else by the user
	text      string
	ref       turnkeeper.MessageID // the response that it names in place of its text; 0: none
	words     []operate.Words      // what text is made of
}

// entryOf returns an entry of texts.
func entryOf(assistant bool, texts ...string) entry {
	whole := strings.Join(texts, separator)
	return entry{assistant: assistant, text: whole, words: wordsOf(append(texts, whole)...)}
}

func wordsOf(texts ...string) (all []operate.Words) {
	for _, text := range texts {
		all = append(all, operate.Words{Text: text})
	}
	return all
}

// separator is what stands between texts that become one.
const separator = "\n\n"

// takeInput reads a text, or a list of items.
func takeInput(r *request, value json.RawMessage) error {
	var text string
	if json.Unmarshal(value, &text) == nil {
		r.entries = []entry{entryOf(false, text)}
		return nil
	}
	var err error
	r.entries, r.guidance, err = itemsOf("input", value)
	return err
}

// itemsOf reads a list of items: the messages of the user and the agent, and those of the system and the developer.
func itemsOf(name string, value json.RawMessage) (all []entry, guidance []string, err error) {
	var items []inputItem
	if json.Unmarshal(value, &items) != nil {
		return nil, nil, invalid(name, "invalid_type", "%s must be a list of messages", name)
	}
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", name, i)
		switch kind := item.kind(); {
		case kind == "item_reference":
			e, err := item.reference(at)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, e)
		case kind == "reasoning": // of another model: it means nothing here
		case kind != "message":
			return nil, nil, invalid(at+".type", "unsupported_value",
				"%s cannot be of type %.40q: only messages can be sent", at, item.Type)
		case item.Role == "system" || item.Role == "developer":
			texts, err := item.texts(at, "input_text")
			if err != nil {
				return nil, nil, err
			}
			guidance = append(guidance, texts...)
		default:
			e, err := item.said(at)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, e...)
		}
	}
	return merged(all), guidance, nil
}

type inputItem struct {
	Type    string
	ID      string
	Role    string
	Phase   string
	Content json.RawMessage // a string, or a list of parts
}

type inputPart struct{ Type, Text, Refusal string }

func (item inputItem) kind() string {
	switch {
	case item.Type != "":
		return item.Type
	case item.Role == "" && item.ID != "":
		return "item_reference"
	default:
		return "message"
	}
}

// said returns what the user or the agent said; nothing for a comment of the agent before its answer.
func (item inputItem) said(at string) ([]entry, error) {
	switch item.Role {
	case "user":
		texts, err := item.texts(at, "input_text")
		return []entry{entryOf(false, texts...)}, err
	case "assistant":
		texts, err := item.texts(at, "output_text", "refusal", "input_text")
		if err != nil || item.Phase == phaseCommentary || strings.TrimSpace(strings.Join(texts, "")) == "" {
			return nil, err
		}
		return []entry{entryOf(true, texts...)}, nil
	default:
		return nil, invalid(at+".role", "unsupported_value",
			"%s has the role %.40q, it must be user, assistant, system or developer", at, item.Role)
	}
}

// texts returns the texts of an item whose parts have one of the types.
func (item inputItem) texts(at string, types ...string) (texts []string, _ error) {
	var text string
	if json.Unmarshal(item.Content, &text) == nil {
		return []string{text}, nil
	}
	var parts []inputPart
	if json.Unmarshal(item.Content, &parts) != nil {
		return nil, invalid(at+".content", "invalid_type", "%s.content must be a string, or a list of parts", at)
	}
	for j, part := range parts {
		if !slices.Contains(types, part.Type) {
			return nil, invalid(fmt.Sprintf("%s.content[%d].type", at, j), "unsupported_value",
				"%s.content[%d] cannot be of type %.40q: only text (%s) is supported", at, j, part.Type, types[0])
		}
		texts = append(texts, part.Text+part.Refusal)
	}
	return texts, nil
}

// reference returns the entry of a reference to an item of a response: its input, its reply, or a part of it that was
// streamed.
func (item inputItem) reference(at string) (entry, error) {
	rest, input := strings.CutPrefix(item.ID, inputPrefix)
	if !input {
		rest = strings.TrimPrefix(item.ID, outputPrefix)
	}
	digits, _, _ := strings.Cut(rest, "_")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || !strings.HasPrefix(item.ID, outputPrefix) {
		return entry{}, noItem(at, item.ID)
	}
	return entry{assistant: !input, ref: turnkeeper.MessageID(n)}, nil
}

func noItem(at, id string) *Error {
	return invalid(at, "item_not_found", "there is no item %.60q: send its text", id)
}

// merged joins adjacent entries of the agent, which are the parts of one reply. References to the same response are
// one.
func merged(all []entry) (some []entry) {
	for _, e := range all {
		last := len(some) - 1
		switch {
		case last < 0 || !e.assistant || !some[last].assistant:
			some = append(some, e)
		case e.ref != 0:
			some[last] = e
		case some[last].ref == 0:
			some[last].text += separator + e.text
			some[last].words = append(some[last].words, e.words...)
		}
	}
	return some
}
