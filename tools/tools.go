// Package tools is what an agent can do: the Tool and its Spec, the Registry
// that an agent's tools are taken from, and the checks that every call's
// arguments pass before anything runs.
//
// A tool is registered with New, from a function whose argument is a struct
// with JSON tags; the schema is derived from the struct. The package imports
// no database, no model client and no queue; a transactional tool reaches the
// transaction that records its result through its context, by the door that
// storage gives.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"turnkeeper"
)

// A Spec says what a tool is and how it may be run.
type Spec struct {
	Name        string            // 1 to 64 of a-z, A-Z, 0-9, _ and -
	Description string            // for the model
	Parameters  json.RawMessage   // JSON Schema of the arguments, an object
	Effect      turnkeeper.Effect // zero: EffectOnce
	Timeout     time.Duration     // of one call; 0: the turn's tool_timeout

	// Freshness is how recently an equal call must have succeeded for a call not to be
	// run in the first round of a turn of a schedule. 0: the turn's freshness_window
	// for a tool with an effect, and FreshnessOff for one of effect none.
	Freshness time.Duration

	// Repeat says what becomes of a call that equals the one directly before it, where
	// that one succeeded. Empty: RepeatAllow for a tool of effect none, else RepeatGuard.
	Repeat Repeat

	// MaxResultChars is how many characters of a result the model is shown at once.
	// 0: the turn's max_tool_result_chars.
	MaxResultChars int

	// Transactional says that the tool's only effect is in the database that
	// keeps the journal, and that it runs in the transaction that records its
	// result: it happens exactly when the result does. That transaction is open,
	// with what it has locked, until the tool returns or its time is up.
	Transactional bool

	// Detached says that a call runs in a job of its own, on any worker that has
	// the tool, apart from its turn, which may end meanwhile. Its Timeout, which
	// must be given, bounds it instead of the turn's time; Call.Outputs is nil.
	Detached bool

	// Background says whether a call that takes longer than async_timeout goes on in
	// the background while the turn goes on. nil: only one of effect none does. A call
	// with an effect that comes after it in the same answer waits for its end all the
	// same.
	Background *bool

	// Paging says that the tool only reads stored outputs. Its calls are not
	// counted as executed, a round of nothing else is not charged, and equal
	// calls in a row are all run.
	Paging bool

	// OutputIDs are the arguments that name a stored output. Where an agent may
	// pass outputs on by handle (output_handles), these get the name and not the
	// text. Those of paging tools always do.
	OutputIDs []string
}

// MayGoOn says whether a call may go on in the background.
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
	// IdempotencyKey is the same for every start of this call and for no
	// other: a tool of effect keyed passes it on to the system it changes.
	IdempotencyKey string
	// Outputs are the results of the turn's calls so far. nil: there are none.
	Outputs Outputs
	// Progress tells those who watch the turn how far the call is. It may be
	// called by any goroutine, never waits, and drops what comes too fast, or
	// after the call. nil: nobody is told.
	Progress func(text string)
	// Sample has a model of the agent's chain answer a question of the tool, at the
	// expense of the turn. It sees nothing of the turn but what the question says. It
	// may be called by any goroutine, within the call's context. Its error may be
	// shown to whoever asks. nil: no model can be asked.
	Sample func(ctx context.Context, s Sampling) (Sampled, error)
}

// Outputs are the results of a turn's calls, for tools that read more of them.
type Outputs interface {
	// Find is the result of a call, by the id that the model knows the call by, by
	// its ordinal in the turn ("3"), or by the id of the stored output.
	// found is false where the turn has no such result.
	Find(ctx context.Context, id string) (o Output, found bool, err error)

	// Wait returns when a call in the background is done: all that are, and were
	// not told of before. any is false where none is and none runs.
	Wait(ctx context.Context) (done []Finished, any bool, err error)
}

// A Finished call was in the background and is done, well or not.
type Finished struct {
	Tool  string
	ID    turnkeeper.OutputID
	Bytes int64 // of its output
}

// An Output is the full text of a call's result.
type Output struct {
	CallID   string // as the model knows it
	Tool     string
	Binary   bool  // what can be read is its description
	Cut      bool  // only the beginning of the result was kept
	Chars    int64 // Unicode characters
	Bytes    int64
	Tokens   int64 // estimate
	Unseen   int64 // the first character that the model has not been shown; Chars: none is left
	MaxChars int   // of a page
	// MaxTokens is how much is given out whole.
	MaxTokens int64
	// Running says that the call is in the background: nothing can be read yet.
	Running bool
	// Failure is what a call in the background failed with; empty: it did not.
	Failure string
	// Read returns the characters from one position up to another.
	Read func(ctx context.Context, from, to int64) (string, error)
	// Retrieved notes that something of it was read.
	Retrieved func(ctx context.Context) error
	// Extract has a model find what answers the query, and gives back JSON that
	// fits into a page: an outputs.Extraction. Where that fails, for whatever
	// reason but the end of ctx, it gives back a warning with parts of the text.
	// nil: it cannot be searched.
	Extract func(ctx context.Context, query string) (Result, error)
}

// A Result is what a tool gives back: Text, Bytes, or what a Body gives. What of
// it is kept has a bound, turnkeeper.MaxOutputBytes; the rest is dropped, and
// the model is told so.
type Result struct {
	Text      string // for the model; used when Bytes and Body are nil
	Bytes     []byte // binary content; used when Body is nil
	MediaType string // empty: text/plain for Text and Body, application/octet-stream for Bytes
	IsError   bool   // the tool ran and says it failed

	// Body, when it is not nil, is read for the content, in the call's time: to
	// its end or to the bound, and nothing past that. So a tool need not know
	// how much there is. By MediaType it is taken for text or for binary
	// content. A Body that is an io.Closer is closed in any case: when it was
	// read, and, from another goroutine and maybe once more, when the call's
	// time is up, which sets free a reader that waits.
	Body io.Reader

	// Incomplete says that Text or Bytes is only the beginning of what there
	// was, and RawBytes how much that was, where it is known (0: it is not).
	// Both are set for what is cut at the bound.
	Incomplete bool
	RawBytes   int64

	// ShowAs, when it is not nil, says what the model is shown in place of the
	// content, which is then stored whatever its size. It gets the id of the stored
	// output, and must not panic.
	ShowAs func(id string) string

	// Attached are stored beside the content, each as an output of its own. The
	// model is told of them below the text. With Bytes, Body or ShowAs they are
	// dropped.
	Attached []Attachment

	// Kept is what the Collect of ExecuteOptions has made of a Body, for whoever
	// gave it. A tool leaves it nil.
	Kept any
}

// An Attachment is binary content that comes with a result.
type Attachment struct {
	Name      string // what it is, for the model: "image", "resource file:///a"
	MediaType string // empty: application/octet-stream
	Bytes     []byte
}

// ErrInDoubt is wrapped by the error of a tool that cannot tell whether its call
// has happened: it was sent away, and the answer was lost. A call of effect once
// is then of unknown outcome, and the turn can end only as degraded; any other
// has failed.
var ErrInDoubt = errors.New("the outcome is not known")

// A Tool is something a model can call. Run may be called by several
// goroutines at once. It must return soon after ctx ends; what ends it is
// context.Cause(ctx). An error and a Result with IsError are both failures
// shown to the model; Run's error text is shown as it is, so it must hold no
// secret. A panic is a failure as well.
//
// A tool that does not return in its time is left behind: its call is answered,
// and its goroutine runs on for as long as it likes. No Go program can end it,
// as none survives a tool that overflows the stack or takes all memory. What
// may do that is better run as a program of its own; see package program.
type Tool interface {
	Spec() Spec
	Run(ctx context.Context, call Call) (Result, error)
}

// A Checker is a Tool that can tell, when it is registered, why it could not
// run. nil: it can.
type Checker interface {
	Tool
	Check() error
}

// A Reconciler is a Tool that can look up whether a call whose outcome is
// unknown has happened.
type Reconciler interface {
	Tool
	// Reconcile reports (result, true, nil) when the call happened and this is
	// its result, (_, false, nil) when it certainly did not and may be started
	// again, and an error when it cannot tell.
	Reconcile(ctx context.Context, call Call) (Result, bool, error)
}
