// Package inference is how a turn talks to language models: the Provider
// interface that every model client implements, the requests, responses and
// deltas that pass through it, the classes of errors a caller decides by, one
// retry loop (Retry) and a chain of fallback models (Chain).
//
// A Provider makes exactly one attempt a call. Retrying is Retry's alone, so
// that one place owns the turn's time. Implementations live in subfolders;
// this package imports no client library, no database and no telemetry SDK.
package inference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode"

	"turnkeeper"
)

// A Provider answers requests for its models. It is safe for concurrent use.
type Provider interface {
	// Generate makes one attempt. Deltas are passed to onDelta in order, from
	// the calling goroutine, while the answer streams; onDelta may be nil.
	// Every error is an *Error, or the cause of ctx when ctx has ended.
	// A response is whole: a stream that was cut is an error, however much of
	// it had arrived.
	Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error)
}

// Role says who speaks in a message.
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
	Model           string // the provider's own name for it
	Messages        []Message
	Tools           []ToolDefinition // nil: none are declared
	ToolChoice      ToolChoice
	MaxOutputTokens int      // 0: the provider's default
	Temperature     *float64 // nil: the provider's default
	User            string   // opaque label of the turn, for the provider's logs; may be empty
}

// A Message is one entry of a request.
type Message struct {
	Role   Role
	Text   string
	Calls  []Call // RoleAssistant: the calls it asked for
	CallID string // RoleTool: the call it answers
	Tool   string // RoleTool: the tool's name

	// Raw is the assistant message as RawProvider sent it. It is replayed
	// unchanged (apart from call ids and arguments) to that provider, whose
	// reasoning may depend on it, and is dropped for every other.
	Raw         json.RawMessage
	RawProvider string
}

// A Call is a tool call as a model asks for it.
type Call struct {
	ID        string // as the provider sent it; may be empty or repeated in a Response, never in a Request
	Name      string
	Arguments string // as the provider sent them; a valid JSON object in a Request
	Truncated bool   // the answer was cut off within or after this call: it must not run
}

// A ToolDefinition declares a tool to the model.
type ToolDefinition struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object
}

// A Delta is a piece of a streaming answer.
type Delta struct {
	Kind  DeltaKind
	Index int    // DeltaTool: ordinal of the call, from 0
	Name  string // DeltaTool: the tool's name, on the call's first delta
	Text  string
}

// DeltaKind says what a delta is part of.
type DeltaKind string

// The kinds of deltas.
const (
	DeltaText     DeltaKind = "text"
	DeltaThinking DeltaKind = "thinking"
	DeltaTool     DeltaKind = "tool_use"
)

// A Response is one whole answer of a model.
type Response struct {
	ID           string
	Provider     string // who answered, as configured
	Model        string // what answered, as the provider says
	Text         string
	Reasoning    string
	Refusal      string
	Calls        []Call
	FinishReason string           // the provider's own word
	Usage        turnkeeper.Usage // zero where the provider reported none
	Cost         string           // money as the provider reported it, decimal; empty: not reported
	Raw          json.RawMessage  // for Message.Raw; nil: nothing worth replaying
	Sent         Sent             // what was sent for it; zero: the provider does not say
	Attempts     int              // model calls made for it; set by Retry and Chain
}

// Filtered reports whether a finish reason says that the provider's content filter stopped the
// answer. Providers have several words for it.
func Filtered(finishReason string) bool {
	reason := strings.ToLower(finishReason)
	return strings.HasPrefix(reason, "content_filter") || reason == "sensitive" || reason == "safety"
}

// Blank reports whether a text has nothing to read: no character other than white space, and
// control and format characters, such as NUL and the byte order mark.
func Blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.In(r, unicode.Cc, unicode.Cf)
	})
}

// A Sent says what a provider put on the wire for a request.
type Sent struct {
	Form   string // how the request is written, in a way that its package can write it again
	SHA256 string // hex, of the body
	Bytes  int    // size of the body
}

// SentAs is the Sent of a body.
func SentAs(form string, body []byte) Sent {
	sum := sha256.Sum256(body)
	return Sent{Form: form, SHA256: hex.EncodeToString(sum[:]), Bytes: len(body)}
}
