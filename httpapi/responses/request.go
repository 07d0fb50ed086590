package responses

import (
	"crypto/sha256"
	"encoding/json"
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
	Input        any               `json:"input" doc:"a text, or a list of text messages; the last one is the user's, and those before the last answer are a history"`
	Instructions string            `json:"instructions,omitempty" schema:"nullable" doc:"shown to the model with the message, as the sender's"`
	MaxOutput    int               `json:"max_output_tokens,omitempty" schema:"nullable,minimum=1" doc:"limit of each answer of the model, if the agent's own is higher"`
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
	entries      []entry
	instructions *string  // the parameter; nil: none
	guidance     []string // messages of the system and the developer
	maxOutput    int      // tokens; 0: no limit
	previous     string   // id of a response; empty: none
	user         string   // whose conversation it is; empty: no user's
	conversation string   // empty: not given
	metadata     map[string]string
	background   bool
	stream       bool
	drafts       bool // of the header, not of the body

	imported []entry // the history that the model is shown with the message; set by place, as news is
	news     []entry
}

// naming returns the parameter that names the conversation; empty: none.
func (r *request) naming() string {
	if r.previous != "" {
		return "previous_response_id"
	}
	return "conversation"
}

// sum returns a hash of everything that a repeat with the same idempotency key must repeat.
func (r *request) sum() [32]byte {
	texts := make([][]any, len(r.entries))
	for i, e := range r.entries {
		texts[i] = []any{e.assistant, e.ref, e.text}
		if e.ref != 0 {
			texts[i][2] = "" // it may have come since
		}
	}
	all, err := json.Marshal([]any{texts, r.instructions, r.guidance, r.maxOutput, r.previous,
		r.conversation, r.metadata})
	if err != nil {
		panic(err) // they are texts and numbers
	}
	return sha256.Sum256(all)
}

// OpenAI's limits of metadata.
const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

const maxTokens = 1_000_000

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

	"store": takeStore,
	"instructions": func(r *request, v json.RawMessage) error {
		return scalar("instructions", "a string", v, &r.instructions)
	},
	"tools": refuseUnless("tools", "the agent's tools are in its definition, and the server runs them",
		`[]`),
	"tool_choice":       refuseUnless("tool_choice", "the agent chooses its tools", `"auto"`),
	"text":              takeText,
	"max_output_tokens": takeMaxOutput,
	"max_tool_calls":    refuseUnless("max_tool_calls", "the agent's definition limits its tool calls"),
	"prompt":            refuseUnless("prompt", "stored prompts are not supported: use an agent"),
	"top_logprobs":      refuseUnless("top_logprobs", "probabilities are not stored", `0`),

	"temperature": ignore, "top_p": ignore, "presence_penalty": ignore, "frequency_penalty": ignore,
	"reasoning": ignore, "parallel_tool_calls": ignore, "truncation": ignore,
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
	case len(r.entries) == 0:
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

func takeMaxOutput(r *request, value json.RawMessage) error {
	if err := scalar("max_output_tokens", "a whole number", value, &r.maxOutput); err != nil {
		return err
	}
	if r.maxOutput < 1 || r.maxOutput > maxTokens {
		return invalid("max_output_tokens", "invalid_value", "max_output_tokens must be from 1 to %d", maxTokens)
	}
	return nil
}

func takeStore(_ *request, value json.RawMessage) error {
	store := true
	if err := scalar("store", "true or false", value, &store); err != nil || store {
		return err
	}
	return invalid("store", "unsupported_value",
		"store cannot be false: turns are always stored; retention and \"turnctl purge\" delete them")
}

func takeText(_ *request, value json.RawMessage) error {
	var text struct {
		Format struct{ Type string }
	}
	if err := scalar("text", "an object", value, &text); err != nil {
		return err
	}
	if text.Format.Type != "" && text.Format.Type != "text" {
		return invalid("text.format", "unsupported_value", "text.format cannot be %.40q: agents answer in text",
			text.Format.Type)
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
		return invalid("metadata", "object_above_max_properties", "metadata has %d pairs, the limit is %d",
			len(r.metadata), maxPairs)
	}
	for name, v := range r.metadata {
		if utf8.RuneCountInString(name) > maxKey || utf8.RuneCountInString(v) > maxValue {
			return invalid("metadata", "string_above_max_length",
				"metadata %.64q is too long: the limit is %d characters for a name, and %d for a value", name,
				maxKey, maxValue)
		}
	}
	return nil
}
