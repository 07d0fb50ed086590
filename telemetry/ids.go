package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

// Ids gives spans that several processes speak of the ids that follow from the
// database, and all others random ones.
type ids struct{}

// A wantedID is the id that the next span is to have. It travels in the context of
// that span's start alone.
type wantedID struct {
	trace trace.TraceID
	span  trace.SpanID
}

type wantedKey struct{}

func wanting(ctx context.Context, t trace.TraceID, s trace.SpanID) context.Context {
	return context.WithValue(ctx, wantedKey{}, wantedID{t, s})
}

// NewIDs are those of a span without a parent.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if w, ok := ctx.Value(wantedKey{}).(wantedID); ok {
		return w.trace, w.span
	}
	var t trace.TraceID
	_, _ = rand.Read(t[:]) // it never fails
	return t, randomSpan()
}

// NewSpanID is that of a span with a parent.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if w, ok := ctx.Value(wantedKey{}).(wantedID); ok {
		return w.span
	}
	return randomSpan()
}

func randomSpan() (s trace.SpanID) {
	_, _ = rand.Read(s[:])
	return s
}
