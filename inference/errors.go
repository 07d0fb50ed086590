package inference

import (
	"errors"
	"fmt"
	"time"

	"turnkeeper"
)

// A Class is the kind of a failure of a model call. Callers decide by it what to do.
type Class string

// The classes of errors.
const (
	ClassRateLimited     Class = "rate_limited"     // 429 and the like
	ClassOverloaded      Class = "overloaded"       // 5xx, 529
	ClassTransport       Class = "transport"        // connection, timeout, cut stream, a 200 without an answer
	ClassBadOutput       Class = "bad_output"       // the server could not parse its model's output, or it was empty
	ClassContextOverflow Class = "context_overflow" // the request is too long for the model
	ClassAuth            Class = "auth"             // 401, 403
	ClassQuota           Class = "quota"            // the credit is used up
	ClassNotFound        Class = "not_found"        // no such model or endpoint
	ClassInvalid         Class = "invalid"          // 400: the request is wrong
	ClassRefused         Class = "refused"          // content filter
)

// Transient reports whether the same request to the same model may succeed later.
func (c Class) Transient() bool {
	switch c {
	case ClassRateLimited, ClassOverloaded, ClassTransport, ClassBadOutput:
		return true
	default:
		return false
	}
}

// OfService reports whether the failure is one of the service and not of the request: the
// same request may be answered once the service is available.
func (c Class) OfService() bool {
	switch c {
	case ClassRateLimited, ClassOverloaded, ClassTransport, ClassAuth, ClassQuota, ClassNotFound:
		return true
	default:
		return false
	}
}

// A RecordPart is a part of the record of a conversation, which requests repeat: answers of models with their calls,
// and the results.
type RecordPart string

// The parts that providers refuse.
const (
	RecordLacksReasoning RecordPart = "lacks_reasoning" // answers without reasoning
	RecordReasoning      RecordPart = "reasoning"       // reasoning, or its signatures
	RecordCalls          RecordPart = "calls"           // ids, names or the order of calls and results
)

// An Error is a failed model call.
type Error struct {
	Class      Class
	Provider   string
	Model      string
	Status     int           // HTTP status; 0: none
	Code       string        // the provider's error code; may be empty
	RetryAfter time.Duration // pause that the provider asked for; 0: none
	NoRetry    bool          // the provider said not to retry
	// ByRequest says that the request itself may have caused a failure of the service: 500, 502, 504, a reset, a cut
	// stream, a timeout, 401, 403 or 404. It is false for what concerns every request alike: 402, 408, 429, 503, 529, a
	// refused connection.
	ByRequest bool
	// Record says what of the conversation's record the request was refused for; empty: not known, or for something
	// else.
	Record RecordPart
	Idle   bool   // the provider sent nothing for its idle timeout
	Detail string // the provider's message without secrets; for operators only
	Err    error  // the cause; may be nil

	// Of ClassContextOverflow, in tokens, if the provider reports them; else 0.
	Have  int // the provider's count of the request
	Limit int // the model's window

	Usage    turnkeeper.Usage // of the attempt, if the provider reported it
	Unsent   bool             // the request did not reach the provider
	Attempts int              // number of model calls; set by Retry and Chain
}

func (e *Error) Error() string {
	s := fmt.Sprintf("model %s/%s: %s", e.Provider, e.Model, e.Class)
	switch {
	case e.Provider == "" && e.Model == "":
		s = string(e.Class)
	case e.Model == "":
		s = fmt.Sprintf("provider %s: %s", e.Provider, e.Class)
	}
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same request to the same model may succeed later.
func (e *Error) Transient() bool { return e.Class.Transient() && !e.NoRetry }

// MaxRetryAfter is the longest pause asked for by a provider that a Retry makes before the next request.
const MaxRetryAfter = 2 * time.Second

// Lasting reports whether the model must be left alone for longer than a caller should wait for it: the provider asked
// for a pause of more than MaxRetryAfter, or has just sent nothing for the idle timeout.
func (e *Error) Lasting() bool { return e.Idle || e.RetryAfter > MaxRetryAfter }

// Unworked reports whether no model has processed the request: it did not reach the provider,
// or was refused.
func (e *Error) Unworked() bool {
	switch e.Class {
	case ClassTransport:
		return e.Unsent || e.Status >= 300
	case ClassBadOutput:
		return false
	default:
		return true
	}
}

// ClassOf returns the class of err, or ClassTransport if err is not an *Error.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassTransport
}
