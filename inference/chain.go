package inference

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Candidate is one model of a Chain.
type Candidate struct {
	Name     string // of the provider, as configured
	Provider Provider
	Model    string // the provider's name for the model
	Once     bool   // make one attempt only
	Doubtful bool   // retry also 401, 403 and 404: the request, not the service, may be at fault
}

// A Chain calls its models in order until one answers, each with its retries. After any
// error it calls the next model, because a request that is too long for one model, or a
// wrong key, may be right for another. Only the end of ctx ends the chain early.
//
// If ctx has a deadline, each model gets an equal share of the time that is left when it is
// called. Time that it does not use goes to the models after it.
//
// A Chain is a Provider. It is safe for concurrent use if the functions of its Retry are.
type Chain struct {
	Models []Candidate
	Retry  Retry // how each model is called; Retry.Provider is ignored

	// OnGiveUp, if not nil, is called when a model is given up, with its index in Models
	// and its last failure.
	OnGiveUp func(i int, err *Error)
}

var _ Provider = Chain{}

// Generate returns the first answer. Its Provider and Model are those that answered, and its
// Attempts counts the calls of all models. Generate ignores the Model of req. If all models
// fail, it returns the error of the last one, with the others in its Detail.
func (c Chain) Generate(ctx context.Context, req Request, onDelta func(Delta)) (Response, error) {
	l := &loop{Retry: c.Retry}
	if len(c.Models) == 0 {
		return Response{}, &Error{Class: ClassInvalid, Detail: "no model is configured"}
	}
	var failures []*Error
	for i, m := range c.Models {
		if i > 0 {
			l.report(failures[i-1], 0)
		}
		res, err := c.ask(ctx, l, m, len(c.Models)-i, req, onDelta)
		if err == nil {
			return l.complete(res), nil
		}
		if ctx.Err() != nil {
			return Response{}, context.Cause(ctx)
		}
		failure := asError(err, m.Model)
		failure.Provider, failure.Model = cmp.Or(failure.Provider, m.Name), cmp.Or(failure.Model, m.Model)
		failures = append(failures, failure)
		if c.OnGiveUp != nil {
			c.OnGiveUp(i, failure)
		}
	}
	return Response{}, l.withAttempts(joined(failures))
}

// ask calls one model within its share of the time.
func (c Chain) ask(ctx context.Context, l *loop, m Candidate, left int, req Request,
	onDelta func(Delta)) (Response, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share := time.Until(deadline) / time.Duration(left)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, share, &Error{
			Class: ClassTransport, Provider: m.Name, Model: m.Model, Err: errShare, ByRequest: true,
			Detail: fmt.Sprintf("no whole answer within its share of the time, %s", share.Round(time.Millisecond)),
		})
		defer cancel()
	}
	req.Model = m.Model
	calls := tries{max: l.maxAttempts(), always: m.Doubtful}
	if m.Once {
		calls.max = 1
	}
	res, err := l.run(ctx, m.Provider, calls, req, onDelta)
	if err != nil {
		return Response{}, err
	}
	res.Provider = cmp.Or(res.Provider, m.Name)
	res.Model = cmp.Or(res.Model, m.Model)
	return res, nil
}

var errShare = errors.New("the time for one model of the chain is over")

// joined returns the last failure with the earlier ones in its Detail.
func joined(failures []*Error) *Error {
	last := failures[len(failures)-1]
	var details []string
	for _, f := range slices.Backward(failures[:len(failures)-1]) {
		details = append(details, f.Error())
	}
	if len(details) > 0 {
		last.Detail += " (before it: " + strings.Join(details, "; ") + ")"
	}
	return last
}
