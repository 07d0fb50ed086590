package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

// Options configure telemetry.
type Options struct {
	// Endpoint is the base URL of an OTLP receiver, which speaks protobuf over
	// HTTP. If empty, OpenTelemetry's variables for single signals may name one;
	// else nothing is sent.
	Endpoint string
	// Content adds the text of conversations to spans, cut and with secrets masked.
	Content  bool
	Mask     func(string) string // masks secrets; nil: no secrets
	Version  string              // of the program
	Instance string              // identifies this run of the process
	Log      *zap.Logger         // nil: none
	// Getenv looks up the variables that this package checks. nil: os.Getenv,
	// which the exporters always use.
	Getenv func(string) string
}

// A Telemetry exports traces and metrics of one process.
type Telemetry struct {
	tracer  trace.Tracer
	meter   metric.Meter
	metrics *instruments
	content bool
	mask    func(string) string
	ticked  lastTick

	traces  *sdktrace.TracerProvider // nil: none are sent
	meters  *sdkmetric.MeterProvider
	handler http.Handler
	quiet   func()
}

// scope is the instrumentation scope of spans and metrics.
const scope = "turnkeeper"

// Start starts telemetry. Its errors are errors of the settings. An unreachable
// receiver is not an error: it is only logged later.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	env := &environment{get: o.Getenv}
	var toTraces, toMetrics string
	if !env.disabled() {
		toTraces, toMetrics = env.endpoint(traces, o.Endpoint), env.endpoint(metrics, o.Endpoint)
	}
	if err := errors.Join(env.errs...); err != nil {
		return nil, err
	}
	t := &Telemetry{content: o.Content, mask: o.Mask, tracer: noop.NewTracerProvider().Tracer(scope)}
	t.quiet = reportTo(o.Log, o.Mask)
	from, err := describe(ctx, o)
	if err == nil {
		err = t.startTraces(ctx, toTraces, from)
	}
	if err == nil {
		err = t.startMetrics(ctx, toMetrics, from)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start telemetry: %w", err), t.Close(ctx))
	}
	return t, nil
}

// describe returns the resource that identifies this process.
func describe(ctx context.Context, o Options) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "turnkeeper"), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance),
		),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
}

func (t *Telemetry) startTraces(ctx context.Context, to string, from *resource.Resource) error {
	if to == "" {
		return nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return err
	}
	// The queue of the processor is bounded, and drops what does not fit.
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from),
		sdktrace.WithIDGenerator(ids{}))
	t.tracer = t.traces.Tracer(scope)
	return nil
}

func (t *Telemetry) startMetrics(ctx context.Context, to string, from *resource.Resource) error {
	reader, handler, err := newPrometheus()
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithReader(reader), sdkmetric.WithResource(from)}
	if to != "" {
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(to))
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	t.handler = handler
	t.meters = sdkmetric.NewMeterProvider(options...)
	t.meter = t.meters.Meter(scope)
	t.metrics, err = newInstruments(t.meter)
	return err
}

// Traces reports whether spans are sent.
func (t *Telemetry) Traces() bool { return t.traces != nil }

// Handler serves the metrics in Prometheus's text format.
func (t *Telemetry) Handler() http.Handler { return t.handler }

// FlushTime is the timeout of Close.
const FlushTime = 5 * time.Second

// Close sends what is pending, within FlushTime and ctx, and stops. Telemetry that
// it cannot send is lost.
func (t *Telemetry) Close(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, FlushTime)
	defer stop()
	defer t.quiet()
	var wait sync.WaitGroup
	var ofTraces, ofMetrics error
	if t.traces != nil {
		wait.Go(func() { ofTraces = t.traces.Shutdown(ctx) })
	}
	if t.meters != nil {
		wait.Go(func() { ofMetrics = t.meters.Shutdown(ctx) })
	}
	wait.Wait()
	return errors.Join(ofTraces, ofMetrics)
}
