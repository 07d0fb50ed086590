package mcp

import (
	"context"
	"sync/atomic"
)

// A trace is what is known of how far a request came: whether it may have been
// run by a server that did not answer it.
type trace struct {
	sent   atomic.Bool
	status atomic.Int32 // of HTTP; 0: there was no answer
}

type traceKey struct{}

func withTrace(ctx context.Context) (context.Context, *trace) {
	t := &trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// traceOf is the trace of a request; nil: nobody wants to know.
func traceOf(ctx context.Context) *trace {
	t, _ := ctx.Value(traceKey{}).(*trace)
	return t
}

func (t *trace) send() {
	if t != nil {
		t.sent.Store(true)
	}
}

// unsent takes back that a request was sent: it certainly did not leave.
func (t *trace) unsent() {
	if t != nil {
		t.sent.Store(false)
	}
}

func (t *trace) answer(status int) {
	if t != nil {
		t.status.Store(int32(status)) //nolint:gosec // three digits
	}
}
