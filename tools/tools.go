// Package tools defines the Tool and its Spec, the Registry of an agent's
// tools, and the checks of every call's arguments before it runs.
//
// A tool is registered with New, from a function whose argument is a struct
// with JSON tags; the schema is derived from the struct. The package imports
// no database, no model client and no queue; a transactional tool gets the
// transaction that records its result from its context, with a function of
// package storage.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"turnkeeper"
)

// A Spec describes a tool and how to run it.
type Spec struct {
	Name        string            // 1 to 64 of a-z, A-Z, 0-9, _ and -
	Description string            // for the model
	Parameters  json.RawMessage   // JSON Schema of the arguments, an object
	Effect      turnkeeper.Effect // zero: EffectOnce
	Timeout     time.Duration     // of one call; 0: the turn's tool_timeout

	// Freshness is the window for skipping calls: in the first round of a turn of a
	// schedule, a call is not run if an equal one succeeded within it. 0: the turn's
	// freshness_window for a tool with an effect, and FreshnessOff for one of effect none.
	Freshness time.Duration

	// Repeat says whether to run a call directly after an equal one that succeeded.
	// Empty: RepeatAllow for a tool of effect none, else RepeatGuard.
	Repeat Repeat

	// MaxResultChars is the maximum number of characters of a result shown to the model
	// at once. 0: the turn's max_tool_result_chars.
	MaxResultChars int

	// Transactional runs the tool in the transaction that records its result. Its
	// only effect must be in the database of the journal: it is committed with the
	// result or not at all. The transaction and its locks are held until the tool
	// returns or its time is up.
	Transactional bool

	// Detached runs a call in its own job, on any worker that has the tool, while
	// its turn waits as a row. Timeout is required and replaces the turn's time
	// limit; Call.Outputs is nil.
	Detached bool

	// Background says whether a call that takes longer than async_timeout continues in
	// the background while the turn continues. nil: only for effect none. A later call
	// with an effect in the same answer waits for its end in any case.
	Background *bool

	// Paging marks a tool that only reads stored outputs. Its calls are not
	// counted as executed, a round with only such calls is not charged, and equal
	// calls in a row all run.
	Paging bool

	// OutputIDs are the arguments that name a stored output. If an agent may pass
	// outputs by handle (output_handles), these get the handle and not the text.
	// Those of paging tools always do.
	OutputIDs []string
}

// MayGoOn reports whether a call may continue in the background.
func (s Spec) MayGoOn() bool {
	if s.Paging {
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
	Conversation string
	Lane         turnkeeper.Lane
	Key          turnkeeper.CallKey
	Arguments    json.RawMessage // canonical; valid by the tool's schema
	// IdempotencyKey is the same for every start of this call, and unique to it.
	// A tool of effect keyed passes it to the system it changes.
	IdempotencyKey string
	// Outputs are the results of the turn's calls so far. nil: there are none.
	Outputs Outputs
	// Progress reports the call's progress to watchers of the turn. It is safe
	// for concurrent use, never blocks, and drops reports that come too fast or
	// after the call. nil: there are no watchers.
	Progress func(text string)
	// Sample asks a model of the agent's chain a question, charged to the turn. The
	// model sees only the question, nothing of the turn. Sample is safe for concurrent
	// use within the call's context. Its error holds no secret. nil: not available.
	Sample func(ctx context.Context, s Sampling) (Sampled, error)
}

// Outputs are the results of a turn's calls, for tools that read more of them.
type Outputs interface {
	// Find returns the result of a call, by the call's id for the model, its
	// ordinal in the turn ("3"), or the id of the stored output. found is false if
	// the turn has no such result.
	Find(ctx context.Context, id string) (o Output, found bool, err error)

	// Wait waits until a background call is done, and returns all done calls that
	// it has not returned before. any is false if there are none and none runs.
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
	Unseen   int64 // the first character that the model has not been shown; Chars: it was shown all
	MaxChars int   // of a page
	// MaxTokens is the maximum size, in tokens, that raw mode returns.
	MaxTokens int64
	// Running is true for a background call: nothing can be read yet.
	Running bool
	// Failure is the error of a failed background call; else empty.
	Failure string
	// Read returns the characters from one position up to another.
	Read func(ctx context.Context, from, to int64) (string, error)
	// Retrieved counts a retrieval.
	Retrieved func(ctx context.Context) error
	// Extract lets a model find the answer to the query, and returns JSON that
	// fits into a page: an outputs.Extraction. If that fails, other than by the
	// end of ctx, it returns a warning with parts of the text. nil: the output
	// cannot be searched.
	Extract func(ctx context.Context, query string) (Result, error)
}

// A Result is what a tool returns: Text, Bytes or a Body. At most
// turnkeeper.MaxOutputBytes of it are stored; the rest is dropped, and the model
// is told so.
type Result struct {
	Text      string // for the model; used when Bytes and Body are nil
	Bytes     []byte // binary content; used when Body is nil
	MediaType string // empty: text/plain for Text and Body, application/octet-stream for Bytes
	IsError   bool   // the tool ran and failed

	// Body, if not nil, is the content. It is read within the call's time, to its
	// end or to the limit, so a tool need not know its size. MediaType decides
	// whether it is text or binary. If it is an io.Closer it is always closed:
	// after it was read, and, from another goroutine and perhaps a second time,
	// when the call's time is up, to unblock a reader.
	Body io.Reader

	// Incomplete says that Text or Bytes is only the beginning of the result;
	// RawBytes is its full size, or 0 if unknown. Both are set for a result that
	// is cut at the limit.
	Incomplete bool
	RawBytes   int64

	// ShowAs, if not nil, returns the text that the model is shown in place of the
	// content, which is then stored whatever its size. It gets the id of the stored
	// output, and must not panic.
	ShowAs func(id string) string

	// Attached are stored in addition to the content, each as its own output. They
	// are listed for the model below the text. With Bytes, Body or ShowAs they are
	// dropped.
	Attached []Attachment

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
// call happened, such as after a lost response. A call of effect once then has
// an unknown outcome, and its turn ends degraded; any other call has failed.
var ErrInDoubt = errors.New("the outcome is not known")

// A Tool is something a model can call. Run must be safe for concurrent use, and
// must return soon after ctx ends; context.Cause(ctx) is the reason. An error and
// a Result with IsError are both failures shown to the model. The error text is
// shown as it is, so it must hold no secret. A panic is a failure too.
//
// A tool that does not return in its time is abandoned: its call is answered, and
// its goroutine keeps running, as Go cannot stop it. Nor can Go survive a tool
// that overflows the stack or takes all memory. Run such a tool as a separate
// program; see package program.
type Tool interface {
	Spec() Spec
	Run(ctx context.Context, call Call) (Result, error)
}

// A Checker is a Tool that checks, when it is registered, whether it can run.
type Checker interface {
	Tool
	Check() error
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
