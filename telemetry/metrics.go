package telemetry

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/turnlog"
)

// instruments are the counters and histograms. Gauges, which are read on demand,
// are in gauges.go.
type instruments struct {
	continuations, continuationErrors  metric.Int64Counter
	iterations                         metric.Int64Histogram
	continuationTime                   metric.Float64Histogram
	turns, dispatches, lost            metric.Int64Counter
	turnTime, latency, toolTime, ticks metric.Float64Histogram
	tokens                             metric.Int64Counter
	cost                               metric.Float64Counter
	usage                              metric.Int64Histogram
	operation, http, deliveries        metric.Float64Histogram
	queueFailures                      metric.Int64Counter
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	m := maker{meter: meter}
	i := &instruments{
		continuations: m.counter(mContinuations), continuationErrors: m.counter(mContinuationErrors),
		iterations: m.sizes(mIterations), continuationTime: m.times(mContinuationTime),
		turns: m.counter(mTurns), dispatches: m.counter(mDispatches), lost: m.counter(mLost),
		turnTime: m.times(mTurnTime), latency: m.times(mLatency), toolTime: m.times(mToolTime), ticks: m.times(mTicks),
		tokens: m.counter(mTokens), cost: m.sums(mCost), usage: m.sizes(mUsage),
		operation: m.times(mOperation), http: m.times(mHTTP), deliveries: m.times(mDeliveries),
		queueFailures: m.counter(mQueueFailures),
	}
	return i, errors.Join(m.errs...)
}

// A maker creates the instruments of the catalogue.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) counter(d Metric) metric.Int64Counter {
	c, err := m.meter.Int64Counter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) sums(d Metric) metric.Float64Counter {
	c, err := m.meter.Float64Counter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) sizes(d Metric) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc),
		metric.WithExplicitBucketBoundaries(d.bounds...))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) times(d Metric) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc),
		metric.WithExplicitBucketBoundaries(d.bounds...))
	m.errs = append(m.errs, err)
	return h
}

// labelled caches the results of with. Labels have few values: see their names.
var labelled = struct {
	sync.RWMutex
	sets map[[maxPairs]string]metric.MeasurementOption
}{sets: map[[maxPairs]string]metric.MeasurementOption{}}

const maxPairs = 8

// with returns labels from alternating names and values, at most maxPairs together.
func with(pairs ...string) metric.MeasurementOption {
	key := [maxPairs]string(append(make([]string, 0, maxPairs), pairs...)[:maxPairs])
	labelled.RLock()
	set, ok := labelled.sets[key]
	labelled.RUnlock()
	if ok {
		return set
	}
	attributes := make([]attribute.KeyValue, 0, len(pairs)/2)
	for n := 0; n < len(pairs); n += 2 {
		attributes = append(attributes, attribute.String(pairs[n], pairs[n+1]))
	}
	set = metric.WithAttributeSet(attribute.NewSet(attributes...))
	labelled.Lock()
	labelled.sets[key] = set
	labelled.Unlock()
	return set
}

// Instruments need no context: they add up in memory.
var always = context.Background()

// granted records the time until a worker started the turn.
func (i *instruments) granted(_ context.Context, r *turnlog.Record) {
	ready := r.ReadySince
	if r.Turn.Dispatches <= 1 && !r.Message.DueAt.IsZero() {
		ready = r.Message.AcceptedAt
		if r.Message.DueAt.After(ready) {
			ready = r.Message.DueAt
		}
	}
	if r.Turn.Dispatches > 1 && !r.Turn.DueAt.IsZero() && r.Turn.DueAt.After(ready) {
		ready = r.Turn.DueAt
	}
	latency := max(0, r.Turn.GrantedAt.Sub(ready)) + r.Elapsed // by the database's clock, both
	i.latency.Record(always, latency.Seconds(), with(labelAgent, r.Turn.Agent))
}

func (i *instruments) dispatched(turn turnkeeper.Turn, outcome string) {
	i.dispatches.Add(always, 1, with(labelAgent, turn.Agent, labelOutcome, outcome))
}

// ended records the end of a turn on this process.
func (i *instruments) ended(turn turnkeeper.Turn, e agentturn.DispatchEnd, took time.Duration) {
	state, stop := string(e.Outcome.State), string(e.Outcome.StopReason)
	i.turns.Add(always, 1, with(labelAgent, turn.Agent, labelState, state, labelStop, stop))
	i.turnTime.Record(always, took.Seconds(), with(labelAgent, turn.Agent, labelState, state))
	if failedToContinue(e) {
		i.continuationErrors.Add(always, 1, with(labelAgent, turn.Agent, labelStop, stop))
	}
	if len(e.Rounds) < 2 {
		return
	}
	agent := with(labelAgent, turn.Agent)
	i.continuations.Add(always, 1, agent)
	i.iterations.Record(always, int64(len(e.Rounds)-1), agent)
	i.continuationTime.Record(always, e.Continued.Seconds(), agent)
}

// failedToContinue reports whether an error ended a turn that had called tools or had continued with their
// results: usually the first model call after them fails.
func failedToContinue(e agentturn.DispatchEnd) bool {
	switch e.Outcome.StopReason {
	case turnkeeper.StopInferenceError, turnkeeper.StopWorkerLost, turnkeeper.StopBudget:
		return len(e.Rounds) > 1 || len(e.Rounds) == 1 && len(e.Rounds[0].Calls) > 0
	default:
		return false
	}
}

// modelCalled records one attempt at a model call.
func (i *instruments) modelCalled(b agentturn.ModelBegin, e agentturn.ModelEnd, took time.Duration) {
	labels := []string{"gen_ai.operation.name", "chat", "gen_ai.provider.name", providerName(b.Provider),
		"gen_ai.request.model", b.Model}
	if e.Err != nil {
		i.operation.Record(always, took.Seconds(), with(append(labels, "error.type", modelError(e.Err))...))
		return
	}
	i.operation.Record(always, took.Seconds(), with(labels...))
	used, prefix := e.Response.Usage, ""
	if used.Estimated {
		prefix = "estimated_"
	}
	for _, part := range []struct {
		kind string
		n    int64
	}{
		{prefix + "input", used.InputTokens}, {prefix + "output", used.OutputTokens},
		{"cached", used.CachedTokens}, {"cache_write", used.CacheWriteTokens}, {"reasoning", used.ReasoningTokens},
	} {
		if part.n > 0 {
			i.tokens.Add(always, part.n, with(labelAgent, b.Agent, labelProvider, b.Provider, labelModel, b.Model,
				labelType, part.kind))
		}
	}
	if !used.Estimated {
		i.usage.Record(always, used.InputTokens, with(append(labels, "gen_ai.token.type", "input")...))
		i.usage.Record(always, used.OutputTokens, with(append(labels, "gen_ai.token.type", "output")...))
	}
	if cost, err := strconv.ParseFloat(e.Response.Cost, 64); err == nil && cost > 0 {
		i.cost.Add(always, cost, with(labelAgent, b.Agent, labelProvider, b.Provider, labelModel, b.Model))
	}
}

func (i *instruments) toolRan(tool string, state turnkeeper.CallState, took time.Duration) {
	i.toolTime.Record(always, took.Seconds(), with(labelTool, tool, labelState, string(state)))
}

// Request records an answered HTTP request. route is the pattern that it matched,
// or empty.
func (t *Telemetry) Request(method, route string, status int, took time.Duration) {
	t.metrics.http.Record(always, took.Seconds(), with(
		"http.request.method", method, "http.route", route, "http.response.status_code", strconv.Itoa(status),
	))
}

// Delivery records an attempt to push a reply to a webhook.
func (t *Telemetry) Delivery(webhook, outcome string, took time.Duration) {
	t.metrics.deliveries.Record(always, took.Seconds(), with(labelWebhook, webhook, labelOutcome, outcome))
}
