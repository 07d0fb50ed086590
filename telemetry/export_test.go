package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/zap"
)

// A Recorder is a Telemetry whose spans stay in memory.
type Recorder struct {
	*Telemetry
	kept *tracetest.InMemoryExporter
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

// Spans returns the ended spans as texts, in order of their ends: each has the name, the parent's name, kind, status,
// duration, start and attributes.
func (r *Recorder) Spans() []string {
	names := map[string]string{}
	for _, s := range r.kept.GetSpans() {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	var all []string
	for _, s := range r.kept.GetSpans() {
		var b strings.Builder
		fmt.Fprintf(&b, "%s < %s, %s, %s, %s after %s", s.Name, names[s.Parent.SpanID().String()], s.SpanKind, s.Status.Code,
			s.EndTime.Sub(s.StartTime), s.StartTime.Sub(epoch))
		var lines []string
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
