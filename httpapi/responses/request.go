package responses

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"turnkeeper"
)

// A Request is the body of POST /v1/responses as described to clients. The table parameters has all
// accepted parameters.
type Request struct {
	Model        string            `json:"model" doc:"an agent's name, optionally with the prefix turnkeeper/"`
	Input        any               `json:"input" doc:"a text, or a list of text messages with the role user"`
	Background   bool              `json:"background,omitempty" schema:"default=false"`
	Stream       bool              `json:"stream,omitempty" schema:"default=false"`
	Store        bool              `json:"store,omitempty" schema:"const=true"`
	PreviousID   string            `json:"previous_response_id,omitempty" schema:"nullable"`
	Conversation any               `json:"conversation,omitempty" doc:"a name, or {\"id\": name}"`
	User         string            `json:"user,omitempty" schema:"nullable,maxLength=200" doc:"whose conversation it is; two users never share one"`
	Metadata     map[string]string `json:"metadata,omitempty" schema:"nullable,maxProperties=16"`
}

// A request is the parsed body of POST /v1/responses.
type request struct {
	agent        string
	body         string
	previous     string // id of a response; empty: none
	user         string // whose conversation it is; empty: no user's
	conversation string // empty: not given
	metadata     map[string]string
	background   bool
	stream       bool
}

// OpenAI's limits of metadata.
const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

// A parameter stores its value, which is not null, in the request.
type parameter func(*request, json.RawMessage) error

// parameters are the accepted parameters. A parameter that would change the answer and is not
// supported is refused; one that only tunes the model or its provider is ignored, because the agent's
// definition sets that.
var parameters = map[string]parameter{
	"model": takeModel,
	"input": takeInput,
	"background": func(r *request, v json.RawMessage) error {
		return scalar("background", "true or false", v, &r.background)
	},
	"stream": func(r *request, v json.RawMessage) error { return scalar("stream", "true or false", v, &r.stream) },
	"previous_response_id": func(r *request, v json.RawMessage) error {
		return scalar("previous_response_id", "a string", v, &r.previous)
	},
	"user":         takeUser,
	"conversation": takeConversation,
	"metadata":     takeMetadata,

	"store":             takeStore,
	"instructions":      refuseUnless("instructions", "the agent's instructions are in its definition: send the text as input, or change the definition", `""`),
	"tools":             refuseUnless("tools", "the agent's tools are in its definition, and the server runs them", `[]`),
	"tool_choice":       refuseUnless("tool_choice", "the agent chooses its tools", `"auto"`),
	"text":              takeText,
	"max_output_tokens": refuseUnless("max_output_tokens", "the agent's definition limits the length and cost of answers"),
	"max_tool_calls":    refuseUnless("max_tool_calls", "the agent's definition limits its tool calls"),
	"prompt":            refuseUnless("prompt", "stored prompts are not supported: use an agent"),
	"top_logprobs":      refuseUnless("top_logprobs", "probabilities are not stored", `0`),

	"temperature": ignore, "top_p": ignore, "reasoning": ignore, "parallel_tool_calls": ignore, "truncation": ignore,
	"service_tier": ignore, "include": ignore, "stream_options": ignore, "safety_identifier": ignore,
	"prompt_cache_key": ignore, "prompt_cache_retention": ignore, "context_management": ignore,
}

func parse(body []byte) (*request, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, invalid("", "invalid_json", "the request's body is not a JSON object")
	}
	r := &request{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		take, known := parameters[name]
		if !known {
			return nil, invalid(name, "unknown_parameter", "unknown parameter: %.80q", name)
		}
		if string(fields[name]) == "null" {
			continue
		}
		if err := take(r, fields[name]); err != nil {
			return nil, err
		}
	}
	return r, r.check()
}

func (r *request) check() error {
	switch {
	case r.agent == "":
		return invalid("model", "missing_required_parameter", "model is missing: set it to an agent's name")
	case strings.TrimSpace(r.body) == "":
		return invalid("input", "empty_input", "%s", turnkeeper.ErrEmptyMessage)
	case r.previous != "" && r.conversation != "":
		return invalid("previous_response_id", "mutually_exclusive_parameters",
			"previous_response_id and conversation exclude each other: send one of them")
	default:
		return nil
	}
}

func scalar[T any](name, kind string, value json.RawMessage, to *T) error {
	if err := json.Unmarshal(value, to); err != nil {
		return invalid(name, "invalid_type", "%s must be %s", name, kind)
	}
	return nil
}

func ignore(*request, json.RawMessage) error { return nil }

// refuseUnless refuses every value except those equal to the default.
func refuseUnless(name, why string, nothing ...string) parameter {
	return func(_ *request, value json.RawMessage) error {
		if slices.Contains(nothing, string(value)) {
			return nil
		}
		return invalid(name, "unsupported_parameter", "%s cannot be set here: %s", name, why)
	}
}

// modelPrefix is an optional prefix of an agent's name, for clients that require provider/model.
const modelPrefix = "turnkeeper/"

func takeModel(r *request, value json.RawMessage) error {
	err := scalar("model", "a string", value, &r.agent)
	r.agent = strings.TrimPrefix(r.agent, modelPrefix)
	if err == nil && r.agent != "" && turnkeeper.CheckAgentName(r.agent) != nil {
		return noModel(r.agent)
	}
	return err
}

func takeStore(_ *request, value json.RawMessage) error {
	store := true
	if err := scalar("store", "true or false", value, &store); err != nil || store {
		return err
	}
	return invalid("store", "unsupported_value", "store cannot be false: turns are always stored; retention and \"turnctl purge\" delete them")
}

func takeText(_ *request, value json.RawMessage) error {
	var text struct {
		Format struct{ Type string }
	}
	if err := scalar("text", "an object", value, &text); err != nil {
		return err
	}
	if text.Format.Type != "" && text.Format.Type != "text" {
		return invalid("text.format", "unsupported_value", "text.format cannot be %.40q: agents answer in text", text.Format.Type)
	}
	return nil
}

func takeUser(r *request, value json.RawMessage) error {
	if err := scalar("user", "a string", value, &r.user); err != nil {
		return err
	}
	if err := (turnkeeper.ConversationKey{User: r.user}).CheckUser(); err != nil {
		return invalid("user", "invalid_value", "%s", err)
	}
	return nil
}

func takeConversation(r *request, value json.RawMessage) error {
	if json.Unmarshal(value, &r.conversation) == nil {
		return nil
	}
	var named struct{ ID string }
	if json.Unmarshal(value, &named) != nil || named.ID == "" {
		return invalid("conversation", "invalid_type", `conversation must be a name, or {"id": name}`)
	}
	r.conversation = named.ID
	return nil
}

func takeMetadata(r *request, value json.RawMessage) error {
	var pairs map[string]*string // nil: null, which is refused
	if err := scalar("metadata", "an object of strings", value, &pairs); err != nil {
		return err
	}
	r.metadata = map[string]string{}
	for name, v := range pairs {
		if v == nil {
			return invalid("metadata", "invalid_type", "metadata must be an object of strings")
		}
		r.metadata[name] = *v
	}
	if len(r.metadata) > maxPairs {
		return invalid("metadata", "object_above_max_properties", "metadata has %d pairs, the limit is %d", len(r.metadata), maxPairs)
	}
	for name, v := range r.metadata {
		if utf8.RuneCountInString(name) > maxKey || utf8.RuneCountInString(v) > maxValue {
			return invalid("metadata", "string_above_max_length", "metadata %.64q is too long: the limit is %d characters for a name, and %d for a value", name, maxKey, maxValue)
		}
		if strings.ContainsRune(name+v, 0) {
			return invalid("metadata", "invalid_value", "metadata %.64q has a NUL character", name)
		}
	}
	return nil
}

// takeInput reads a text, or a list of the user's messages.
func takeInput(r *request, value json.RawMessage) error {
	if json.Unmarshal(value, &r.body) == nil {
		return nil
	}
	var items []inputItem
	if json.Unmarshal(value, &items) != nil {
		return invalid("input", "invalid_type", "input must be a string, or a list of messages")
	}
	var texts []string
	for i, item := range items {
		said, err := item.texts(fmt.Sprintf("input[%d]", i))
		if err != nil {
			return err
		}
		texts = append(texts, said...)
	}
	r.body = strings.Join(texts, "\n\n")
	return nil
}

type inputItem struct {
	Type    string
	Role    string
	Content json.RawMessage
}

func (item inputItem) texts(at string) ([]string, error) {
	switch {
	case item.Type != "" && item.Type != "message":
		return nil, invalid(at+".type", "unsupported_value", "%s cannot be of type %.40q: only messages can be sent", at, item.Type)
	case item.Role == "assistant":
		return nil, invalid(at+".role", "unsupported_value", "%s has the role assistant: continue a conversation with previous_response_id or conversation instead", at)
	case item.Role != "user":
		return nil, invalid(at+".role", "unsupported_value", "%s has the role %.40q, it must be user: instructions are in the agent's definition", at, item.Role)
	}
	var text string
	if json.Unmarshal(item.Content, &text) == nil {
		return []string{text}, nil
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(item.Content, &parts) != nil {
		return nil, invalid(at+".content", "invalid_type", "%s.content must be a string, or a list of parts", at)
	}
	var texts []string
	for j, part := range parts {
		if part.Type != "input_text" {
			return nil, invalid(fmt.Sprintf("%s.content[%d].type", at, j), "unsupported_value",
				"%s.content[%d] cannot be of type %.40q: only text (input_text) is supported", at, j, part.Type)
		}
		texts = append(texts, part.Text)
	}
	return texts, nil
}
