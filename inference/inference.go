// Package inference defines how turns call language models: the Provider interface that
// every model client implements, its requests, responses and deltas, the classes of errors,
// a retry loop (Retry) and a chain of fallback models (Chain).
//
// A Provider makes exactly one attempt per call. Only Retry retries, so that one place
// manages the time of a turn. Implementations are in subfolders; this package imports no
// client library, database or telemetry SDK.
package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"turnkeeper"
)

// A Provider answers requests for its models. It is safe for concurrent use.
type Provider interface {
	// Generate makes one attempt. While the answer streams, it calls onDelta for each
	// delta, in order, from the calling goroutine; onDelta may be nil. Every error is an
	// *Error, or the cause of ctx if ctx has ended. A response is always complete: a
	// stream that was cut is an error.
	Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error)
}

// An Encoder is a Provider that tells how it encodes requests. If that changes, the requests of a conversation no
// longer extend each other.
type Encoder interface {
	// Form returns the Form of Sent.
	Form() string
}

// FormOf returns the Form of a Provider that is an Encoder, or "".
func FormOf(p Provider) string {
	if encoder, ok := p.(Encoder); ok {
		return encoder.Form()
	}
	return ""
}

// A Role is the author of a message.
type Role string

// The roles.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// ToolChoice says whether the model may call tools.
type ToolChoice string

// The tool choices. The zero value is ToolChoiceAuto.
const (
	ToolChoiceAuto ToolChoice = "auto"
	ToolChoiceNone ToolChoice = "none" // tools stay declared, none may be called
)

// A Request is one model call.
type Request struct {
	Model string // the provider's own name for it
	// Messages must not be changed: the requests of a conversation share them. Change a clone.
	Messages        []Message
	Tools           []ToolDefinition // nil: none are declared
	ToolChoice      ToolChoice
	MaxOutputTokens int      // 0: the provider's default
	Temperature     *float64 // nil: the provider's default
	User            string   // opaque label of the turn, for the provider's logs; may be empty
	// CacheKey is the same for all requests of a conversation, for a provider that finds its cache by it; empty: none.
	CacheKey string `json:",omitempty"`
	// Reasoned says that the provider demands reasoning on every answer in Messages: a text takes the place of what is
	// missing.
	Reasoned bool `json:",omitempty"`
}

// A Message is one entry of a request.
type Message struct {
	Role   Role
	Text   string
	Calls  []Call // of RoleAssistant: the calls it asks for
	CallID string // of RoleTool: the call it answers
	Tool   string // of RoleTool: the tool's name

	// Raw is the assistant message as RawProvider sent it. It is sent unchanged, except
	// for call ids and arguments, to that provider, whose reasoning may depend on it. It
	// is not sent to any other provider.
	Raw         json.RawMessage
	RawProvider string
}

// Equal reports whether two messages are the same. Texts that share their memory, as those of consecutive requests
// usually do, are not read.
func (m Message) Equal(other Message) bool {
	return m.Role == other.Role && m.Text == other.Text && m.CallID == other.CallID && m.Tool == other.Tool &&
		m.RawProvider == other.RawProvider && string(m.Raw) == string(other.Raw) && slices.Equal(m.Calls, other.Calls)
}

// A Call is a tool call that a model asks for.
type Call struct {
	ID        string // as the provider sent it; may be empty or repeated in a Response, but not in a Request
	Name      string
	Arguments string // as the provider sent them; a valid JSON object in a Request
	Truncated bool   // the answer was cut off in or after this call: it must not run
}

// A ToolDefinition declares a tool to the model.
type ToolDefinition struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object
}

// A Delta is a part of a streamed answer.
type Delta struct {
	Kind  DeltaKind
	Index int    // of DeltaTool: index of the call, from 0
	Name  string // of DeltaTool: the tool's name, in the call's first delta
	Text  string
	// Done, of DeltaTool, says that the call has come whole, as the provider tells. Such a delta has no Name and no
	// Text, and may come after deltas of later calls, and more than once. A provider tells what it knows: perhaps
	// nothing.
	Done bool
}

// A DeltaKind is the kind of content that a delta belongs to.
type DeltaKind string

// The kinds of deltas.
const (
	DeltaText     DeltaKind = "text"
	DeltaThinking DeltaKind = "thinking"
	DeltaTool     DeltaKind = "tool_use"
)

// A Response is the complete answer of a model.
type Response struct {
	ID        string
	Provider  string // as configured
	Model     string // as the provider reports it
	Text      string
	Reasoning string
	Refusal   string
	Calls     []Call
	// Doubt says why Calls may differ from what the model asked for, for example because a piece
	// of a stream fits no call. No call with an effect may run then. Empty: no doubt.
	Doubt        string
	FinishReason string           // as the provider reports it
	Usage        turnkeeper.Usage // zero if the provider reported none
	Cost         string           // as the provider reported it, decimal; empty: not reported
	Raw          json.RawMessage  // for Message.Raw; nil: not needed
	Sent         Sent             // of the request; zero: unknown
	Attempts     int              // number of model calls; set by Retry and Chain
}

// Blank reports whether a text has only white space, control and format characters, such as
// NUL and the byte order mark.
func Blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.In(r, unicode.Cc, unicode.Cf)
	})
}

// A Sent describes the body that a provider sent for a request.
type Sent struct {
	Form   string // how the request was encoded, for the provider's package to encode it again
	SHA256 string // hex, of the body
	Bytes  int    // size of the body
}

// SentAs returns the Sent of a body.
func SentAs(form string, body []byte) Sent {
	sum := sha256.Sum256(body)
	return Sent{Form: form, SHA256: hex.EncodeToString(sum[:]), Bytes: len(body)}
}
