package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A ConversationRequest is the body of POST /v1/conversations as described to clients.
type ConversationRequest struct {
	Metadata map[string]string `json:"metadata,omitempty" schema:"nullable,maxProperties=16"`
	Items    []any             `json:"items,omitempty" schema:"nullable,maxItems=20" doc:"what was said before: text messages, the last one of the agent"`
}

// A Conversation is a conversation in OpenAI's format.
type Conversation struct {
	ID        string            `json:"id"`
	Object    string            `json:"object" schema:"const=conversation"`
	CreatedAt int64             `json:"created_at"`
	Metadata  map[string]string `json:"metadata" schema:"maxProperties=16"`
}

// maxItems is OpenAI's limit of the items of a new conversation.
const maxItems = 20

// Open creates a conversation without a message.
func (a *API) Open(c Call) error {
	created := operate.Created{ID: newConversation(), Items: json.RawMessage(`[]`)}
	if err := parseConversation(c.Body, &created); err != nil {
		return err
	}
	if len(created.Items) > a.cfg.MaxMessageBytes {
		return invalid("items", "string_above_max_length", "items have %d bytes, the limit is %d", len(created.Items),
			a.cfg.MaxMessageBytes)
	}
	var err error
	if created.At, err = a.cfg.Store.CreateConversation(c.Context(), created, c.Caller.TokenID,
		c.Caller.User); err != nil {
		return err
	}
	return write(c.W, http.StatusOK, conversationOf(created))
}

func conversationOf(c operate.Created) Conversation {
	return Conversation{c.ID, "conversation", c.At.Unix(), c.Metadata}
}

// parseConversation reads the body of a request to create a conversation; an empty one is {}.
func parseConversation(body []byte, to *operate.Created) error {
	r, fields := request{}, map[string]json.RawMessage{}
	if len(body) > 0 && (json.Unmarshal(body, &fields) != nil || fields == nil) {
		return invalid("", "invalid_json", "the request's body is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case name != "metadata" && name != "items":
			return invalid(name, "unknown_parameter", "unknown parameter: %.80q", name)
		case string(fields[name]) == "null":
		case name == "metadata":
			if err := takeMetadata(&r, fields[name]); err != nil {
				return err
			}
		default:
			items, err := storedItems(fields[name])
			if err != nil {
				return err
			}
			to.Items = items
		}
	}
	to.Metadata = r.metadata
	if to.Metadata == nil {
		to.Metadata = map[string]string{}
	}
	return nil
}

// storedItems checks items, and returns them with what is known of them alone: Postgres cannot store every number, for
// example.
func storedItems(value json.RawMessage) (json.RawMessage, error) {
	all, _, err := itemsOf("items", value)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.ref != 0 {
			return nil, invalid("items", "unsupported_value", "items cannot refer to items: send their texts")
		}
	}
	var items []inputItem
	if err := json.Unmarshal(value, &items); err != nil || len(items) > maxItems {
		return nil, invalid("items", "array_above_max_length", "there are %d items, the limit is %d",
			len(items), maxItems)
	}
	for i := range items {
		var parts []inputPart
		if json.Unmarshal(items[i].Content, &parts) == nil {
			items[i].Content = encoded(parts)
		}
	}
	return encoded(items), nil
}

func encoded(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it has only texts
	}
	return text
}

// Opened answers with a conversation that the caller has created.
func (a *API) Opened(c Call) error {
	id := c.PathValue("id")
	created, err := a.cfg.Store.CreatedConversation(c.Context(), id, c.Caller.TokenID, c.Caller.User)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return &Error{Status: http.StatusNotFound,
			Message: fmt.Sprintf("there is no conversation %.60q that this client has created", id),
			Code:    "conversation_not_found"}
	}
	if err != nil {
		return err
	}
	return write(c.W, http.StatusOK, conversationOf(created))
}
