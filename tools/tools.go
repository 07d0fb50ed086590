// Package tools defines the Tool and its Spec, the Registry of an agent's
// tools, and the checks of every call's arguments before it runs.
//
// A tool is registered with New, from a function whose argument is a struct
// with JSON tags; the schema is derived from the struct. The package imports
// no database, no model client and no queue. A function of package storage gets
// the transaction of a transactional tool from its context.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"turnkeeper"
	"turnkeeper/policy"
)

// A Spec describes a tool and how to run it.
type Spec struct {
	Name        string            // 1 to 64 of a-z, A-Z, 0-9, _ and -
	Description string            // for the model
	Parameters  json.RawMessage   // JSON Schema of the arguments, of type object
	Effect      turnkeeper.Effect // zero: EffectOnce
	Timeout     time.Duration     // of one call; 0: the turn's tool_timeout

	// Freshness is the window for skipping calls: in the first round of a turn of a
	// schedule, a call is not run if an equal one succeeded within it. 0: the turn's
	// freshness_window for a tool with an effect, and FreshnessOff for one of effect none.
	Freshness time.Duration

	// Repeat says whether to run a call directly after an equal one that succeeded.
	// Empty: RepeatAllow for a tool of effect none, else RepeatGuard.
	Repeat Repeat

	// Early allows a call to start while the answer that asks for it still streams, if no rule,
	// sink or call before it can be in its way. The run has no effect on the turn until the answer
	// is complete: reports of progress, questions to models and reads of Call.Outputs wait for
	// that. If the answer is not used, the run is cancelled. Only for effect none.
	Early bool

	// Cache is how long the process keeps the result of a call that succeeded. An equal call
	// within this time gets it, with a sentence that says how old it is. At most MaxCache; 0: not
	// at all. Only for effect none.
	Cache time.Duration

	// CacheScope says whose calls share results. Empty: CacheConversation.
	CacheScope CacheScope

	// MaxResultChars is the maximum number of characters of a result shown to the model
	// at once. 0: the turn's max_tool_result_chars.
	MaxResultChars int

	// Transactional runs the tool in the transaction that records its result, which
	// commits both or neither. The tool's only effect must be in the journal's
	// database. The transaction holds its locks until the tool returns or times out.
	Transactional bool

	// Detached runs a call in its own job, on any worker that has the tool, while
	// its turn waits as a database row. Timeout is required and replaces the turn's time
	// limit; Call.Outputs is nil.
	Detached bool

	// Background says whether a call that takes longer than async_timeout continues in
	// the background while the turn continues. nil: only for effect none. A later call
	// with an effect in the same answer always waits for its end.
	Background *bool

	// Paging marks a tool that only reads stored outputs. Its calls are not
	// counted as executed, a round with only such calls is not charged, and equal
	// calls in a row all run.
	Paging bool

	// AsksInput allows calls to end with an InputRequest. Such calls do not continue in the
	// background, and their start is recorded whatever their effect.
	AsksInput bool

	// Approve is the rule that decides which calls a person must approve: policy.Always,
	// policy.Never, or a rule of package policy/cel. Empty: only the rules of the agent and
	// the settings apply.
	Approve string

	// Flow defines the labels of results, and the sinks and destinations of calls. The zero
	// value has none.
	Flow policy.Flow

	// DefinitionLabels are labels of the description and the schema, if somebody else writes
	// them. Every turn that is offered the tool has them. nil: none.
	DefinitionLabels []policy.Label

	// OutputIDs are the arguments that name a stored output. If an agent may pass
	// outputs by handle (output_handles), these get the handle and not the text.
	// A paging tool gets the handle in every argument.
	OutputIDs []string
}

// MayGoOn reports whether a call may continue in the background.
func (s Spec) MayGoOn() bool {
	if s.Paging || s.AsksInput {
		return false
	}
	if s.Background != nil {
		return *s.Background
	}
	return s.Effect == turnkeeper.EffectNone
}

// A Call is one run of a tool.
type Call struct {
	TurnID       turnkeeper.TurnID
	Agent        string
	User         string // whose conversation it is; empty: no user's
	Conversation string
	Lane         turnkeeper.Lane
	Key          turnkeeper.CallKey
	Arguments    json.RawMessage // canonical; valid by the tool's schema
	// IdempotencyKey is the same for every start of this call, and unique to it.
	// A tool of effect keyed passes it to the system it changes.
	IdempotencyKey string
	// Outputs are the results of the turn's calls so far. nil: there are none.
	Outputs Outputs
	// Labels are the labels of the arguments and of the content that led to the call. A tool that
	// stores arguments should store their labels, and return them when it reads them. nil for
	// detached calls.
	Labels []policy.Mark
	// SharedNotes says that the agent has one set of notes for all users and conversations.
	SharedNotes bool
	// CheckDestination returns an error if the call may not send its content to a destination that its
	// arguments do not name, such as that of a redirect. A tool that goes on to one calls it first.
	// nil: the call may send to any.
	CheckDestination func(to string) error
	// Progress reports the call's progress to watchers of the turn. It is safe
	// for concurrent use, never blocks, and drops reports that come too fast or
	// after the call. nil: there are no watchers.
	Progress func(text string)
	// Sample asks a model of the agent's chain a question, charged to the turn. The
	// model sees only the question, nothing of the turn. Sample is safe for concurrent
	// use within the call's context. Its error holds no secret. nil: not available.
	Sample func(ctx context.Context, s Sampling) (Sampled, error)
	// Mask returns text[from:to] with secrets masked, including a secret that extends beyond the range.
	// Results are masked as a whole; a tool that returns a part of a text calls Part, which uses Mask.
	// nil: there are no secrets to mask.
	Mask func(text string, from, to int) string
	// Input is the outcome of the call's newest InputRequest. nil: it has made none.
	Input *Input
}

// Part returns a text from one byte up to another, with secrets masked: of half a secret at an end,
// nobody could tell that it is one. The text should go on for some kilobytes at both ends of the part.
func (c Call) Part(text string, from, to int) string {
	if c.Mask == nil {
		return text[from:to]
	}
	return c.Mask(text, from, to)
}

// Outputs are the results of a turn's calls, for tools that read more of them.
type Outputs interface {
	// Find returns the result of a call by the call id that the model knows, by its
	// ordinal in the turn ("3"), or by the id of the stored output. found is false
	// if the turn has no such result.
	Find(ctx context.Context, id string) (o Output, found bool, err error)

	// Wait waits until a background call is done, and returns all done calls that
	// it has not returned before. any is false if there are none and none is running.
	Wait(ctx context.Context) (done []Finished, any bool, err error)
}

// A Finished is a background call that is done, successfully or not.
type Finished struct {
	Tool  string
	ID    turnkeeper.OutputID
	Bytes int64 // of its output
}

// An Output is the full text of a call's result.
type Output struct {
	CallID   string // as the model knows it
	Tool     string
	Binary   bool  // Read returns a description
	Cut      bool  // only the beginning of the result is stored
	Chars    int64 // Unicode characters
	Bytes    int64
	Tokens   int64 // estimate
	Unseen   int64 // index of the first character not shown to the model; Chars: all were shown
	MaxChars int   // of a page
	// MaxTokens is the maximum size, in tokens, that raw mode returns.
	MaxTokens int64
	// Running is true for a background call: nothing can be read yet.
	Running bool
	// Failure is the error of a failed background call; else empty.
	Failure string
	// Expired is true if retention has deleted the content: nothing can be read.
	Expired bool
	// Read returns the characters from one position up to another.
	Read func(ctx context.Context, from, to int64) (string, error)
	// Retrieved counts a retrieval.
	Retrieved func(ctx context.Context) error
	// Extract asks a model for the answer to the query, and returns JSON that fits
	// into a page: an outputs.Extraction. If that fails and ctx has not ended, it
	// returns a warning with parts of the text. nil: the output cannot be searched.
	Extract func(ctx context.Context, query string) (Result, error)
}

// A Result is what a tool returns: Text, Bytes or a Body. At most
// turnkeeper.MaxOutputBytes of it are stored; the rest is dropped, and a note tells
// the model.
type Result struct {
	Text      string // for the model; used when Bytes and Body are nil
	Bytes     []byte // binary content; used when Body is nil
	MediaType string // empty: text/plain for Text and Body, application/octet-stream for Bytes
	IsError   bool   // the tool ran and failed

	// Body, if not nil, is the content. It is read within the call's timeout, to its
	// end or to the limit, so a tool need not know its size. MediaType decides
	// whether it is text or binary. If it is an io.Closer, it is always closed after
	// reading. When the call times out it is closed from another goroutine, perhaps
	// a second time, to unblock a reader.
	Body io.Reader

	// Incomplete reports whether Text or Bytes is only the beginning of the result.
	// RawBytes is its full size, or 0 if unknown. Both are set if Text or Bytes is
	// cut at the limit.
	Incomplete bool
	RawBytes   int64

	// ShowAs, if not nil, returns the text to show to the model in place of the
	// content. The content is then always stored; id is the ID of the stored
	// output. ShowAs must not panic.
	ShowAs func(id string) string

	// Attached are stored in addition to the content, each as its own output. They
	// are listed for the model below the text. With Bytes, Body or ShowAs they are
	// dropped.
	Attached []Attachment

	// Labels are labels of the content, in addition to those of the Spec and the arguments.
	Labels []policy.Mark

	// Kept is set by ExecuteOptions.Collect for its own use. A tool leaves it nil.
	Kept any
}

// An Attachment is binary content that comes with a result.
type Attachment struct {
	Name      string // a description for the model: "image", "resource file:///a"
	MediaType string // empty: application/octet-stream
	Bytes     []byte
}

// ErrInDoubt is wrapped by the error of a tool that does not know whether its
// call happened, for example because the response was lost. The outcome of a call
// of effect once is then unknown and its turn ends degraded; any other call fails.
var ErrInDoubt = errors.New("the outcome is not known")

// A Tool is something a model can call. Run must be safe for concurrent use, and
// must return soon after ctx ends; context.Cause(ctx) is the reason. An error, a
// Result with IsError and a panic are failures shown to the model. The error text is
// shown unchanged, so it must hold no secret.
//
// A tool that does not return in time is abandoned: its call is answered, but its
// goroutine keeps running, because Go cannot stop it. A tool that overflows the stack
// or takes all memory ends the process. Run such a tool as a separate program; see
// package program.
type Tool interface {
	Spec() Spec
	Run(ctx context.Context, call Call) (Result, error)
}

// A Checker is a Tool that Register asks whether it can run.
type Checker interface {
	Tool
	Check() error
}

// An Approver is a Tool that decides which of its calls a person must approve, and which are
// denied. The rules of its Spec, of the agent and of the settings apply too. The strictest
// decision wins.
type Approver interface {
	Tool
	// Approve decides about a call that will be planned or started. It must not run the call,
	// and may be called several times for it. After an error a person is asked, with its text as
	// the reason.
	Approve(ctx context.Context, call Call) (policy.Decision, error)
}

// A Reconciler is a Tool that can look up whether a call of unknown outcome
// happened.
type Reconciler interface {
	Tool
	// Reconcile returns (result, true, nil) if the call happened, (_, false, nil)
	// if it certainly did not and may be started again, and an error if it does
	// not know.
	Reconcile(ctx context.Context, call Call) (Result, bool, error)
}
