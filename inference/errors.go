package inference

import (
	"errors"
	"fmt"
	"time"

	"turnkeeper"
)

// Class says what kind of failure a model call had, and so what may be done.
type Class string

// The classes of errors.
const (
	ClassRateLimited     Class = "rate_limited"     // 429 and its kin; wait, then again
	ClassOverloaded      Class = "overloaded"       // 5xx, 529: the provider's trouble
	ClassTransport       Class = "transport"        // connection, timeout, cut stream, a 200 that is no answer
	ClassBadOutput       Class = "bad_output"       // the model's output could not be parsed by its own server, or was empty
	ClassContextOverflow Class = "context_overflow" // the request is too long for the model
	ClassAuth            Class = "auth"             // 401, 403
	ClassQuota           Class = "quota"            // paid-for credit is used up
	ClassNotFound        Class = "not_found"        // no such model or endpoint
	ClassInvalid         Class = "invalid"          // 400: this request will never work
	ClassRefused         Class = "refused"          // content filter
)

// Transient says that the same request to the same model may succeed later.
func (c Class) Transient() bool {
	switch c {
	case ClassRateLimited, ClassOverloaded, ClassTransport, ClassBadOutput:
		return true
	default:
		return false
	}
}

// OfService says that the failure says nothing of the request: the service could
// not be used, and the same request may be answered once it can.
func (c Class) OfService() bool {
	switch c {
	case ClassRateLimited, ClassOverloaded, ClassTransport, ClassAuth, ClassQuota, ClassNotFound:
		return true
	default:
		return false
	}
}

// An Error is a failed model call.
type Error struct {
	Class      Class
	Provider   string
	Model      string
	Status     int           // HTTP status; 0: none
	Code       string        // the provider's error code; may be empty
	RetryAfter time.Duration // what the provider asked for; 0: nothing
	NoRetry    bool          // the provider said that asking again is no use
	Detail     string        // what the provider said, with secrets removed; for operators only
	Err        error         // the cause; may be nil

	// ClassContextOverflow, where the provider gives numbers, in tokens; 0: it
	// gives none.
	Have  int // what it counted of the request
	Limit int // its window

	Usage    turnkeeper.Usage // what the attempt used, where the provider said so
	Unsent   bool             // the request certainly did not reach the provider
	Attempts int              // model calls made; set by Retry and Chain
}

func (e *Error) Error() string {
	s := fmt.Sprintf("model %s/%s: %s", e.Provider, e.Model, e.Class)
	if e.Model == "" {
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

// Transient says that the same request to the same model may succeed later.
func (e *Error) Transient() bool { return e.Class.Transient() && !e.NoRetry }

// Unworked says that no model has worked on the request: it did not reach the provider, or
// was refused.
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

// ClassOf gives the class of err, or ClassTransport for an error that no
// provider classified.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassTransport
}
