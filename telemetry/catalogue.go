package telemetry

import (
	"slices"
	"strings"
)

// A Kind says how a metric adds up.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Metric describes one metric that there is.
type Metric struct {
	Name   string // OpenTelemetry's
	Kind   Kind
	Unit   string   // UCUM
	Labels []string // OpenTelemetry's names of attributes
	Doc    string

	bounds []float64 // of a histogram's buckets
	exact  bool      // Prometheus sees the name as it is
}

// Prometheus is the name under which /metrics has it; a histogram has _bucket,
// _sum and _count after it.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.exact {
		return name
	}
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// PrometheusLabels are its labels as Prometheus has them.
func (m Metric) PrometheusLabels() []string {
	labels := make([]string, len(m.Labels))
	for i, label := range m.Labels {
		labels[i] = strings.ReplaceAll(label, ".", "_")
	}
	return labels
}

// Names of labels. Their values come from definitions and from closed lists, never
// from what somebody has written.
const (
	labelAgent    = "agent"
	labelState    = "state"
	labelStop     = "stop_reason"
	labelOutcome  = "outcome"
	labelTool     = "tool"
	labelModel    = "model"
	labelProvider = "provider"
	labelType     = "type"
	labelPool     = "pool"
	labelWebhook  = "webhook"
)

// Boundaries of buckets, in seconds.
var (
	fastSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	workSeconds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 90, 180, 300, 900, 3600}
	// Those that the conventions ask for.
	genAISeconds = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	genAITokens  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	fewRounds    = []float64{1, 2, 3, 4, 6, 8, 12, 19}
)

// The metrics.
var (
	mContinuations = Metric{
		Name: "tool_continuation_count", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent}, exact: true,
		Doc: "Turns that ended after the model was called again with the results of tools.",
	}
	mIterations = Metric{
		Name: "tool_continuation_iterations", Kind: Histogram, Unit: "{round}", Labels: []string{labelAgent}, exact: true, bounds: fewRounds,
		Doc: "Rounds of such a turn after its first.",
	}
	mContinuationErrors = Metric{
		Name: "tool_continuation_errors", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent, labelStop}, exact: true,
		Doc: "Turns that an error ended after they had called tools, the first call of the model with the results included: an error of the model (inference_error), the loss of a worker (worker_lost; those that the scheduler closes too), or a spent budget (budget).",
	}
	mContinuationTime = Metric{
		Name: "tool_continuation_duration", Kind: Histogram, Unit: "s", Labels: []string{labelAgent}, exact: true, bounds: workSeconds,
		Doc: "Seconds from the first answer of the model in such a turn to its end, waits and lost workers included.",
	}

	mTurns = Metric{
		Name: "turnkeeper.turns", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent, labelState, labelStop},
		Doc: "Turns that have ended on this process, or were closed by its scheduler. Those that are cancelled while no worker has them are not counted.",
	}
	mTurnTime = Metric{
		Name: "turnkeeper.turn.duration", Kind: Histogram, Unit: "s", Labels: []string{labelAgent, labelState}, bounds: workSeconds,
		Doc: "From the first grant of a turn to its end, waits and lost workers included.",
	}
	mDispatches = Metric{
		Name: "turnkeeper.dispatches", Kind: Counter, Unit: "{dispatch}", Labels: []string{labelAgent, labelOutcome},
		Doc: "Grants of turns that this process has worked: finished, waiting, deferred, handed_back, fenced (the lease was lost), unwritten (the end could not be written).",
	}
	mLatency = Metric{
		Name: "turnkeeper.dispatch.latency", Kind: Histogram, Unit: "s", Labels: []string{labelAgent}, bounds: fastSeconds,
		Doc: "From when a message was due (its first grant), or its turn could go on (later grants), to the worker that has it.",
	}
	mLeases = Metric{
		Name: "turnkeeper.leases.held", Kind: Gauge, Unit: "{lease}", Doc: "Turns that this process runs now, each under a lease.",
	}
	mLost = Metric{
		Name: "turnkeeper.leases.lost", Kind: Counter, Unit: "{lease}", Labels: []string{labelAgent},
		Doc: "Leases that this process's scheduler took from lost workers.",
	}
	mToolTime = Metric{
		Name: "turnkeeper.tool.duration", Kind: Histogram, Unit: "s", Labels: []string{labelTool, labelState}, bounds: workSeconds,
		Doc: "Runs of tools; detached ones too, on the process that runs them; of spawn_agent, how long its replies took.",
	}
	mTokens = Metric{
		Name: "turnkeeper.tokens", Kind: Counter, Unit: "{token}", Labels: []string{labelAgent, labelProvider, labelModel, labelType},
		Doc: "Tokens of answered model calls: input, output; of these, cached and reasoning; estimated_input and estimated_output where the provider reported none.",
	}
	mCost = Metric{
		Name: "turnkeeper.cost", Kind: Counter, Unit: "{credit}", Labels: []string{labelAgent, labelProvider, labelModel},
		Doc: "Money as providers report it, in their unit; most report none.",
	}

	mQueue = Metric{
		Name: "turnkeeper.queue.messages", Kind: Gauge, Unit: "{message}",
		Doc: "Messages of the whole database that are due and wait, counted up to 100,000.",
	}
	mQueueAge = Metric{
		Name: "turnkeeper.queue.age", Kind: Gauge, Unit: "s", Doc: "How long the oldest of them is due; 0: none is.",
	}
	mOpen = Metric{
		Name: "turnkeeper.turns.open", Kind: Gauge, Unit: "{turn}", Labels: []string{labelState},
		Doc: "Turns of the whole database that run, are queued, or wait.",
	}
	mModelDown = Metric{
		Name: "turnkeeper.model.down", Kind: Gauge, Unit: "{model}", Labels: []string{labelModel},
		Doc: "Whether a model that agents ask is down for the whole database: 1, else 0.",
	}
	mQueueFailures = Metric{
		Name: "turnkeeper.queue.read.failures", Kind: Counter, Unit: "{read}",
		Doc: "Looks at the database for the four above that gave nothing; these are then left out.",
	}
	mTickAge = Metric{
		Name: "turnkeeper.scheduler.tick.age", Kind: Gauge, Unit: "s",
		Doc: "Since this process's scheduler last looked for work, or found another one looking.",
	}
	mTicks = Metric{
		Name: "turnkeeper.scheduler.tick.duration", Kind: Histogram, Unit: "s", Labels: []string{labelOutcome}, bounds: fastSeconds,
		Doc: "Passes of this process's scheduler: done, busy (another one was at work), failed.",
	}
	mWatchers = Metric{
		Name: "turnkeeper.event.watchers", Kind: Gauge, Unit: "{watcher}", Doc: "Clients that follow a turn's events through this process.",
	}
	mPool = Metric{
		Name: "turnkeeper.db.connections", Kind: Gauge, Unit: "{connection}", Labels: []string{labelPool, labelState},
		Doc: "Connections of this process to the database: used, idle, and max, what there may be.",
	}
	mPoolWaits = Metric{
		Name: "turnkeeper.db.waits", Kind: Counter, Unit: "{wait}", Labels: []string{labelPool},
		Doc: "Times that a connection had to be waited for.",
	}
	mPoolWaitTime = Metric{
		Name: "turnkeeper.db.wait.time", Kind: Counter, Unit: "s", Labels: []string{labelPool}, Doc: "Time that these waits took, together.",
	}
	mHTTP = Metric{
		Name: "http.server.request.duration", Kind: Histogram, Unit: "s", bounds: fastSeconds,
		Labels: []string{"http.request.method", "http.route", "http.response.status_code"},
		Doc:    "Requests to the HTTP API, streams included: these last as long as somebody follows. The route is as the API's document has it, or empty for a path there is not. Status 499: the client was gone before there was an answer.",
	}
	mDeliveries = Metric{
		Name: "turnkeeper.webhook.attempt.duration", Kind: Histogram, Unit: "s", Labels: []string{labelWebhook, labelOutcome}, bounds: fastSeconds,
		Doc: "Attempts of this process to push a reply: delivered, failed (it is tried again), dead (given up), gone (the endpoint answered 410).",
	}

	mUsage = Metric{
		Name: "gen_ai.client.token.usage", Kind: Histogram, Unit: "{token}", bounds: genAITokens,
		Labels: []string{"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"},
		Doc:    "Tokens of one model call, as the provider reported them. What was estimated is not in it.",
	}
	mOperation = Metric{
		Name: "gen_ai.client.operation.duration", Kind: Histogram, Unit: "s", bounds: genAISeconds,
		Labels: []string{"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"},
		Doc:    "One attempt at a model call, failed ones too: these have error.type, the class of the error.",
	}
)

// Metrics are all that there are, in the order of the documentation.
func Metrics() []Metric {
	return slices.Clone([]Metric{
		mContinuations, mIterations, mContinuationErrors, mContinuationTime,
		mTurns, mTurnTime, mDispatches, mLatency, mLeases, mLost,
		mToolTime, mTokens, mCost, mUsage, mOperation,
		mQueue, mQueueAge, mOpen, mModelDown, mQueueFailures, mTickAge, mTicks,
		mWatchers, mHTTP, mDeliveries, mPool, mPoolWaits, mPoolWaitTime,
	})
}
