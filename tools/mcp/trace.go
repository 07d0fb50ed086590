package mcp

import (
	"context"
	"sync/atomic"
)

// A trace records how far a request got. It decides whether a server that did
// not answer may have run the call.
type trace struct {
	sent   atomic.Bool
	status atomic.Int32 // of HTTP; 0: no response
}

type traceKey struct{}

func withTrace(ctx context.Context) (context.Context, *trace) {
	t := &trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// traceOf returns the trace of a request, or nil if it has none.
func traceOf(ctx context.Context) *trace {
	t, _ := ctx.Value(traceKey{}).(*trace)
	return t
}

func (t *trace) send() {
	if t != nil {
		t.sent.Store(true)
	}
}

// unsent records that the request certainly was not sent.
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
