package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

// Ids generates span ids: derived from the database for spans that several
// processes refer to, and random for all others.
type ids struct{}

// A wantedID is the id for the next span. It is passed only in the context of that
// span's start.
type wantedID struct {
	trace trace.TraceID
	span  trace.SpanID
}

type wantedKey struct{}

func wanting(ctx context.Context, t trace.TraceID, s trace.SpanID) context.Context {
	return context.WithValue(ctx, wantedKey{}, wantedID{t, s})
}

// NewIDs returns the ids of a span without a parent.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if w, ok := ctx.Value(wantedKey{}).(wantedID); ok {
		return w.trace, w.span
	}
	var t trace.TraceID
	_, _ = rand.Read(t[:]) // it never fails
	return t, randomSpan()
}

// NewSpanID returns the id of a span with a parent.
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
