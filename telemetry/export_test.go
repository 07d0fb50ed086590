package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// A Recorder is a Telemetry whose spans stay in memory.
type Recorder struct {
	*Telemetry
	Named map[[8]byte]string // names of spans that several processes refer to, by id
	kept  *tracetest.InMemoryExporter
}

// Record returns a Recorder.
func Record(ctx context.Context, o Options) (*Recorder, error) {
	t, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &Recorder{Telemetry: t, kept: tracetest.NewInMemoryExporter()}
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.kept), sdktrace.WithIDGenerator(ids{}))
	t.tracer = t.traces.Tracer(scope)
	return r, nil
}

// epoch is when the clock of package synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Spans returns the ended spans as texts, in order of their ends: each has the name, what its id is made of, the
// parent's name or what its id is made of, kind, status, duration, start, links and attributes.
func (r *Recorder) Spans() []string {
	names := map[[8]byte]string{}
	for _, s := range r.kept.GetSpans() {
		names[s.SpanContext.SpanID()] = s.Name
	}
	of := func(c trace.SpanContext) string { return cmp.Or(names[c.SpanID()], r.Named[c.SpanID()]) }
	var all []string
	for _, s := range r.kept.GetSpans() {
		var b strings.Builder
		b.WriteString(s.Name)
		if id := r.Named[s.SpanContext.SpanID()]; id != "" {
			fmt.Fprintf(&b, " (%s)", id)
		}
		fmt.Fprintf(&b, " < %s, %s, %s %s, %s after %s", of(s.Parent), s.SpanKind, s.Status.Code, s.Status.Description,
			s.EndTime.Sub(s.StartTime), s.StartTime.Sub(epoch))
		if s.Parent.IsValid() && s.Parent.TraceID() != s.SpanContext.TraceID() {
			b.WriteString(", in another trace than its parent")
		}
		var lines []string
		for _, l := range s.Links {
			lines = append(lines, fmt.Sprintf("\n  link to %s, same trace: %t", cmp.Or(r.Named[l.SpanContext.SpanID()],
				"another"), l.SpanContext.TraceID() == s.SpanContext.TraceID()))
		}
		for _, a := range s.Attributes {
			lines = append(lines, fmt.Sprintf("\n  %s: %s", a.Key, a.Value.String()))
		}
		slices.Sort(lines)
		all = append(all, b.String()+strings.Join(lines, ""))
	}
	return all
}

// ReportTo returns the handler of export errors, and the function that makes it silent.
func ReportTo(log *zap.Logger, mask func(string) string) (handle func(error), quiet func()) {
	r := &reporter{log: log, mask: mask}
	return r.Handle, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over = true
	}
}

// hanging is a processor of spans that does not end.
type hanging struct{ sdktrace.SpanProcessor }

func (hanging) Shutdown(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Hang makes the receiver of spans hang.
func Hang(r *Recorder) { r.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(hanging{})) }
