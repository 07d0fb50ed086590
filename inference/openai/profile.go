package openai

import (
	"encoding/json"
	"maps"
	"slices"
)

// A Profile is what an endpoint wants that the others do not. The zero value
// suits most servers that call themselves OpenAI-compatible.
type Profile struct {
	NoStream      bool // ask for whole answers; default: they stream
	NoStreamUsage bool // leave out stream_options, which the server refuses
	NoToolChoice  bool // leave out tool_choice, which the server refuses
	NoUser        bool // leave out user, which the server refuses

	// Deployments names the model in the path as well, as Azure's API by
	// deployments wants it: .../deployments/MODEL/chat/completions, where the
	// base URL ends in /openai.
	Deployments bool `json:"-"`
	// KeyHeader carries the key; empty: Authorization, as a bearer token.
	KeyHeader string `json:"-"`
	// Listing is how the server is asked for its models and their windows.
	Listing Listing `json:"-"`

	TokenField   string          // the limit of the answer's length; empty: max_tokens
	EmptyContent EmptyContent    // of an assistant message that holds only calls
	IDs          IDFormat        // of tool calls
	Reasoning    ReasoningReplay // of earlier answers of the same provider

	// Extra are more fields of the request's body, as JSON. They cannot
	// replace a field that the client itself sets.
	Extra map[string]json.RawMessage
}

// EmptyContent says how a message without text is written.
type EmptyContent string

// The ways to write no text. The zero value is ContentNull.
const (
	ContentNull   EmptyContent = "null"
	ContentString EmptyContent = "string" // ""
	ContentOmit   EmptyContent = "omit"
)

// IDFormat says which ids of tool calls the server takes.
type IDFormat string

// The id formats. The zero value is IDAny. An id that does not fit is replaced.
const (
	IDAny  IDFormat = "any"  // 1 to 64 visible ASCII characters
	IDNine IDFormat = "nine" // exactly 9 letters and digits
	IDWord IDFormat = "word" // 1 to 64 letters, digits, _ and -
)

// Listing selects the request that lists a server's models.
type Listing string

// The ways to list models. The zero value is listingOpenAI.
const (
	listingOpenAI    Listing = ""          // GET models
	listingAnthropic Listing = "anthropic" // the same in Anthropic's own API: another header for the key, and pages
	listingOllama    Listing = "ollama"    // GET models; context windows come from Ollama's own API
	listingLlamaCPP  Listing = "llamacpp"  // GET models; the context window comes from GET props
	listingNone      Listing = "none"      // the server cannot list the names that requests use
)

// ReasoningReplay says what the server gets back of its own reasoning.
type ReasoningReplay string

// The ways to replay reasoning. The zero value is ReasoningSame.
const (
	ReasoningSame    ReasoningReplay = "same"    // as it came
	ReasoningNever   ReasoningReplay = "never"   // nothing; signatures of calls stay
	ReasoningRequire ReasoningReplay = "require" // as ReasoningSame, and reasoning_content is never absent
)

var profiles = map[string]Profile{
	"openai":     {TokenField: "max_completion_tokens"},
	"azure":      {TokenField: "max_completion_tokens", Deployments: true, KeyHeader: "Api-Key", Listing: listingNone},
	"anthropic":  {IDs: IDWord, Reasoning: ReasoningNever, NoUser: true, Listing: listingAnthropic},
	"gemini":     {NoUser: true, Reasoning: ReasoningNever},
	"openrouter": {},
	"ollama":     {EmptyContent: ContentString, NoToolChoice: true, Listing: listingOllama},
	"vllm":       {EmptyContent: ContentString},
	"llamacpp":   {EmptyContent: ContentString, Listing: listingLlamaCPP},
	"mistral":    {EmptyContent: ContentString, IDs: IDNine, NoStreamUsage: true, NoUser: true},
	"deepseek":   {EmptyContent: ContentString, Reasoning: ReasoningRequire},
	"generic":    {},
}

// ProfileNamed is the profile of a kind of server, and whether there is one.
func ProfileNamed(name string) (Profile, bool) {
	p, ok := profiles[name]
	return p, ok
}

// ProfileNames lists the names of ProfileNamed, in order.
func ProfileNames() []string { return slices.Sorted(maps.Keys(profiles)) }
