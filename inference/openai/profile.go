package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"turnkeeper/inference/openai/internal/wire"
)

// An API is the protocol that an endpoint speaks.
type API string

// The protocols. The zero value means APIChat.
const (
	APIChat      API = "chat"      // OpenAI's Chat Completions, which most servers have
	APIResponses API = "responses" // OpenAI's Responses
	APIMessages  API = "messages"  // Anthropic's Messages
)

// apis holds the APIs of the profiles that do not have all of them.
var apis = map[string][]API{
	"openai": {APIChat, APIResponses}, "azure": {APIChat, APIResponses}, "anthropic": {APIChat, APIMessages},
	"gemini": {APIChat}, "mistral": {APIChat}, "deepseek": {APIChat, APIMessages},
}

// A Profile describes how an endpoint differs from others. The zero value suits most
// OpenAI-compatible servers.
type Profile struct {
	API           API  `json:",omitempty"` // empty: APIChat
	NoStream      bool // do not stream answers
	NoStreamUsage bool // omit stream_options, which the server refuses
	NoToolChoice  bool // omit tool_choice, which the server refuses
	NoUser        bool // omit user, which the server refuses

	// Deployments adds the model to the path if the base URL ends in /openai, as Azure's
	// API by deployments requires: .../deployments/MODEL/chat/completions.
	Deployments bool `json:"-"`
	// KeyHeader is the header of the key; empty: Authorization, as a bearer token.
	KeyHeader string `json:"-"`
	// Separates says that the service separates the reasoning of its models from their text.
	Separates bool `json:"-"`
	// Listing selects how to list the server's models and their windows.
	Listing Listing `json:"-"`

	TokenField   string          // field for the limit of the answer; empty: max_tokens
	EmptyContent EmptyContent    // content of an assistant message with only calls
	IDs          IDFormat        // of tool calls
	Reasoning    ReasoningReplay // of earlier answers of the same provider

	// Extra holds more fields of the request's body, as JSON. It cannot replace a field
	// that the client sets.
	Extra map[string]json.RawMessage
}

// An EmptyContent is the content of a message without text.
type EmptyContent string

// The values of EmptyContent. The zero value means ContentNull.
const (
	ContentNull   EmptyContent = "null"
	ContentString EmptyContent = "string" // ""
	ContentOmit   EmptyContent = "omit"
)

// An IDFormat is the format of tool call ids that a server accepts. Other ids are replaced.
type IDFormat string

// The id formats. The zero value means IDAny.
const (
	IDAny  IDFormat = "any"                 // 1 to 64 visible ASCII characters
	IDNine IDFormat = IDFormat(wire.IDNine) // exactly 9 letters and digits
	IDWord IDFormat = IDFormat(wire.IDWord) // 1 to 64 letters, digits, _ and -
)

// A Listing selects the requests that list a server's models.
type Listing string

// The ways to list models. The zero value is GET models, as OpenAI has it.
const (
	// GET models of Anthropic's own API, with pages and another header for the key
	listingAnthropic Listing = "anthropic"
	listingOllama    Listing = "ollama"   // GET models; context windows come from Ollama's own API
	listingLlamaCPP  Listing = "llamacpp" // GET models; the context window comes from GET props
	listingNone      Listing = "none"     // the server does not list the names that requests use
)

// A ReasoningReplay selects the reasoning that is sent back to the server.
type ReasoningReplay string

// The ways to replay reasoning. The zero value means ReasoningSame.
const (
	ReasoningSame    ReasoningReplay = "same"    // unchanged
	ReasoningNever   ReasoningReplay = "never"   // none, except for signatures of calls
	ReasoningRequire ReasoningReplay = "require" // as ReasoningSame, and reasoning_content is always present
)

var profiles = map[string]Profile{
	"openai": {TokenField: "max_completion_tokens", Separates: true},
	"azure": {TokenField: "max_completion_tokens", Separates: true, Deployments: true, KeyHeader: "Api-Key",
		Listing: listingNone},
	"anthropic":  {Separates: true, IDs: IDWord, Reasoning: ReasoningNever, NoUser: true, Listing: listingAnthropic},
	"gemini":     {Separates: true, NoUser: true, Reasoning: ReasoningNever},
	"openrouter": {Separates: true},
	"ollama":     {EmptyContent: ContentString, NoToolChoice: true, Listing: listingOllama},
	"vllm":       {EmptyContent: ContentString},
	"llamacpp":   {EmptyContent: ContentString, Listing: listingLlamaCPP},
	"mistral":    {Separates: true, EmptyContent: ContentString, IDs: IDNine, NoStreamUsage: true, NoUser: true},
	"deepseek":   {Separates: true, EmptyContent: ContentString, Reasoning: ReasoningRequire},
	"generic":    {},
}

// ProfileNamed returns the profile with a name, and whether there is one.
func ProfileNamed(name string) (Profile, bool) {
	p, ok := profiles[name]
	return p, ok
}

// ProfileFor returns the profile with a name for an API; empty: generic. It fails, in plain words, if servers of
// this kind do not have
// the API, or if this release does not speak it.
func ProfileFor(name string, api API) (Profile, error) {
	p, ok := profiles[cmp.Or(name, "generic")]
	if !ok {
		return p, fmt.Errorf("there is no profile %q", name)
	}
	if has, some := apis[name]; some && !slices.Contains(has, api) {
		return p, fmt.Errorf("the profile %s has no API %s: set another api or profile", name, api)
	}
	if _, err := protocolOf(api); err != nil {
		return p, err
	}
	p.API = api
	switch api {
	case APIChat:
		p.API = "" // as in the forms of older releases
	case APIResponses:
		p = responsesProfile(p)
	case APIMessages: // the rest is for requests of chat completions
		p = Profile{API: api, NoStream: p.NoStream, Separates: p.Separates, Listing: p.Listing}
	}
	return p, nil
}

// ProfileNames returns the names of all profiles, sorted.
func ProfileNames() []string { return slices.Sorted(maps.Keys(profiles)) }
