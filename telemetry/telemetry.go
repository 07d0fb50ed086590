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

// Options say what is told to whom.
type Options struct {
	// Endpoint is the base URL of an OTLP receiver, which speaks protobuf over
	// HTTP. Empty: OpenTelemetry's own variables for single signals may name one;
	// else nothing is sent.
	Endpoint string
	// Content has spans hold what is asked and answered, with secrets masked and
	// cut; false: nothing of it.
	Content  bool
	Mask     func(string) string // masks secrets; nil: there are none
	Version  string              // of the program
	Instance string              // names this run of this process
	Log      *zap.Logger         // nil: none
	// Getenv looks variables up that this package checks. nil: os.Getenv, where
	// the exporters look theirs up in any case.
	Getenv func(string) string
}

// A Telemetry tells what one process does.
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

// scope names what makes the spans and metrics.
const scope = "turnkeeper"

// Start begins. Errors are of the settings, in plain words: whether a receiver is
// there is found out later, and stops nothing.
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
		return nil, errors.Join(fmt.Errorf("telemetry cannot be started: %w", err), t.Close(ctx))
	}
	return t, nil
}

// describe is who sends.
func describe(ctx context.Context, o Options) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "turnkeeper"), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance),
		),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say it better
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
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from), sdktrace.WithIDGenerator(ids{}))
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

// Traces says that spans are sent somewhere.
func (t *Telemetry) Traces() bool { return t.traces != nil }

// Handler answers with the metrics, in Prometheus's text format.
func (t *Telemetry) Handler() http.Handler { return t.handler }

// FlushTime bounds Close.
const FlushTime = 5 * time.Second

// Close sends what is still to be sent, for FlushTime at most and as long as ctx
// lasts, and stops. What could not be sent then is lost.
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
