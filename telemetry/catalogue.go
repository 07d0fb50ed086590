package telemetry

import (
	"slices"
	"strings"
)

// A Kind is the type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Metric describes a metric.
type Metric struct {
	Name   string // OpenTelemetry's
	Kind   Kind
	Unit   string   // UCUM
	Labels []string // OpenTelemetry's names of attributes
	Doc    string

	bounds []float64 // of a histogram's buckets
	exact  bool      // Prometheus gets the name unchanged
}

// Prometheus returns the metric's name at /metrics, for a histogram without
// _bucket, _sum and _count.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.exact {
		return name
	}
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// PrometheusLabels returns the labels' names at /metrics.
func (m Metric) PrometheusLabels() []string {
	labels := make([]string, len(m.Labels))
	for i, label := range m.Labels {
		labels[i] = strings.ReplaceAll(label, ".", "_")
	}
	return labels
}

// Names of labels. Their values come from definitions and closed lists, never from
// messages.
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
	labelKind     = "kind"
	labelSQLState = "sqlstate"
	labelReason   = "reason"
)

// Boundaries of buckets, in seconds.
var (
	fastSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	workSeconds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 90, 180, 300, 900, 3600}
	// As the GenAI conventions define them.
	genAISeconds = []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	genAITokens  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	fewRounds    = []float64{1, 2, 3, 4, 6, 8, 12, 19}
)

// The metrics.
var (
	mContinuations = Metric{
		Name: "tool_continuation_count", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent}, exact: true,
		Doc: "Turns that ended after the model was called again with tool results.",
	}
	mIterations = Metric{
		Name: "tool_continuation_iterations", Kind: Histogram, Unit: "{round}", Labels: []string{labelAgent},
		exact: true, bounds: fewRounds,
		Doc: "Rounds of such a turn after the first.",
	}
	mContinuationErrors = Metric{
		Name: "tool_continuation_errors", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent,
			labelStop}, exact: true,
		Doc: "Turns that an error ended after they had called tools, including the first model call with the results: a model error (inference_error), a lost worker (worker_lost; also if the scheduler closed the turn), or a spent budget (budget).",
	}
	mContinuationTime = Metric{
		Name: "tool_continuation_duration", Kind: Histogram, Unit: "s", Labels: []string{labelAgent}, exact: true,
		bounds: workSeconds,
		Doc:    "Seconds from the first model answer of such a turn to its end, including waits and lost workers.",
	}

	mTurns = Metric{
		Name: "turnkeeper.turns", Kind: Counter, Unit: "{turn}", Labels: []string{labelAgent, labelState, labelStop},
		Doc: "Turns that ended on this process, or were closed by its scheduler. Turns cancelled while no worker ran them are not counted.",
	}
	mTurnTime = Metric{
		Name: "turnkeeper.turn.duration", Kind: Histogram, Unit: "s", Labels: []string{labelAgent, labelState},
		bounds: workSeconds,
		Doc:    "From the first grant of a turn to its end, including waits and lost workers.",
	}
	mDispatches = Metric{
		Name: "turnkeeper.dispatches", Kind: Counter, Unit: "{dispatch}", Labels: []string{labelAgent, labelOutcome},
		Doc: "Dispatches that this process ran: finished, waiting, deferred, handed_back, fenced (the lease was lost), unwritten (the end could not be written).",
	}
	mLatency = Metric{
		Name: "turnkeeper.dispatch.latency", Kind: Histogram, Unit: "s", Labels: []string{labelAgent},
		bounds: fastSeconds,
		Doc:    "From when a message was due (first grant), or its turn could continue (later grants), until a worker started it.",
	}
	mLeases = Metric{
		Name: "turnkeeper.leases.held", Kind: Gauge, Unit: "{lease}",
		Doc: "Turns that this process is running, each under a lease.",
	}
	mLost = Metric{
		Name: "turnkeeper.leases.lost", Kind: Counter, Unit: "{lease}", Labels: []string{labelAgent},
		Doc: "Leases that this process's scheduler reclaimed from lost workers.",
	}
	mToolTime = Metric{
		Name: "turnkeeper.tool.duration", Kind: Histogram, Unit: "s", Labels: []string{labelTool, labelState},
		bounds: workSeconds,
		Doc:    "Duration of tool calls, including detached ones on the process that runs them; for spawn_agent, the time until its replies.",
	}
	mResultMemory = Metric{
		Name: "turnkeeper.result.memory", Kind: Gauge, Unit: "By",
		Doc: "Memory that results of tools hold in this process until they are recorded; max_result_memory limits it.",
	}
	mResultsWaiting = Metric{
		Name: "turnkeeper.results.waiting", Kind: Gauge, Unit: "{result}",
		Doc: "Results of tools that wait for memory in this process.",
	}
	mTokens = Metric{
		Name: "turnkeeper.tokens", Kind: Counter, Unit: "{token}", Labels: []string{labelAgent, labelProvider,
			labelModel, labelType},
		Doc: "Tokens of answered model calls: input, output; cached (read from a cache), cache_write (written to one) and reasoning as parts of these; estimated_input and estimated_output if the provider reported none.",
	}
	mCost = Metric{
		Name: "turnkeeper.cost", Kind: Counter, Unit: "{credit}", Labels: []string{labelAgent,
			labelProvider, labelModel},
		Doc: "Cost as reported by providers, in their unit; most report none.",
	}

	mQueue = Metric{
		Name: "turnkeeper.queue.messages", Kind: Gauge, Unit: "{message}",
		Doc: "Waiting messages of the whole database that are due, counted up to 100,000.",
	}
	mQueueAge = Metric{
		Name: "turnkeeper.queue.age", Kind: Gauge, Unit: "s",
		Doc: "How long the oldest of them has been due; 0 if there is none.",
	}
	mOpen = Metric{
		Name: "turnkeeper.turns.open", Kind: Gauge, Unit: "{turn}", Labels: []string{labelState},
		Doc: "Running, queued and waiting turns of the whole database.",
	}
	mWaits = Metric{
		Name: "turnkeeper.turns.waiting", Kind: Gauge, Unit: "{turn}", Labels: []string{labelReason},
		Doc: "Waiting and deferred turns of the whole database, by what they wait for: detached_calls, sub_agents, person, model_down, budget_spent, newer_worker, deferred.",
	}
	mWaitAge = Metric{
		Name: "turnkeeper.turns.waiting.age", Kind: Gauge, Unit: "s", Labels: []string{labelReason},
		Doc: "How long the longest of these waits has lasted, where its start is known.",
	}
	mWaitLeft = Metric{
		Name: "turnkeeper.turns.waiting.left", Kind: Gauge, Unit: "s", Labels: []string{labelReason},
		Doc: "Time until the first of these waits ends, such as the expiry of an ask, where an end is known.",
	}
	mModelDown = Metric{
		Name: "turnkeeper.model.down", Kind: Gauge, Unit: "{model}", Labels: []string{labelModel},
		Doc: "1 if a model that agents use is down, for the whole database; else 0.",
	}
	mAside = Metric{
		Name: "turnkeeper.set_aside", Kind: Gauge, Unit: "{row}", Labels: []string{labelKind},
		Doc: "Rows that failed and are left out until their next try, for the whole database, by kind; with kind tick or step: the scheduler's ticks, or a step of them, fail.",
	}
	mLevel = Metric{
		Name: "turnkeeper.survival.level", Kind: Gauge, Unit: "{level}", Labels: []string{labelAgent},
		Doc: "The survival level of each agent that has a budget of a day, rules for levels or a pin, for the whole database: 0 normal, 1 low, 2 critical.",
	}
	mQueueFailures = Metric{
		Name: "turnkeeper.queue.read.failures", Kind: Counter, Unit: "{read}",
		Doc: "Failed queries for the six metrics above, which are then omitted.",
	}
	mTickAge = Metric{
		Name: "turnkeeper.scheduler.tick.age", Kind: Gauge, Unit: "s",
		Doc: "Time since the last tick of this process's scheduler, or since it found another scheduler at work.",
	}
	mTicks = Metric{
		Name: "turnkeeper.scheduler.tick.duration", Kind: Histogram, Unit: "s", Labels: []string{labelOutcome},
		bounds: fastSeconds,
		Doc:    "Ticks of this process's scheduler: done, busy (another scheduler was at work), failed.",
	}
	mWatchers = Metric{
		Name: "turnkeeper.event.watchers", Kind: Gauge, Unit: "{watcher}",
		Doc: "Clients that follow a turn's events through this process.",
	}
	mPool = Metric{
		Name: "turnkeeper.db.connections", Kind: Gauge, Unit: "{connection}", Labels: []string{labelPool, labelState},
		Doc: "Database connections of this process: used, idle, and max, the limit.",
	}
	mRefused = Metric{
		Name: "turnkeeper.db.refused", Kind: Gauge, Unit: "{operation}", Labels: []string{labelSQLState},
		Doc: "Operations of this process, writes of turns among them, that the database refuses now and that are repeated, by SQLSTATE.",
	}
	mRefusedAge = Metric{
		Name: "turnkeeper.db.refused.age", Kind: Gauge, Unit: "s",
		Doc: "How long the database has refused the oldest of them; 0 if there is none.",
	}
	mRefusedAttempts = Metric{
		Name: "turnkeeper.db.refused.attempts", Kind: Counter, Unit: "{attempt}", Labels: []string{labelSQLState},
		Doc: "Attempts at them that the database has refused.",
	}
	mPoolWaits = Metric{
		Name: "turnkeeper.db.waits", Kind: Counter, Unit: "{wait}", Labels: []string{labelPool},
		Doc: "Number of waits for a connection.",
	}
	mPoolWaitTime = Metric{
		Name: "turnkeeper.db.wait.time", Kind: Counter, Unit: "s", Labels: []string{labelPool},
		Doc: "Total time of these waits.",
	}
	mHTTP = Metric{
		Name: "http.server.request.duration", Kind: Histogram, Unit: "s", bounds: fastSeconds,
		Labels: []string{"http.request.method", "http.route", "http.response.status_code"},
		Doc:    "Requests to the HTTP API, including streams, which last as long as the client follows. The route is the pattern of the OpenAPI document, or empty for an unknown path. Status 499: the client disconnected before the response.",
	}
	mDeliveries = Metric{
		Name: "turnkeeper.webhook.attempt.duration", Kind: Histogram, Unit: "s", Labels: []string{labelWebhook,
			labelOutcome}, bounds: fastSeconds,
		Doc: "Attempts of this process to push a reply: delivered, failed (to be retried), dead (given up), gone (the endpoint answered 410).",
	}

	mUsage = Metric{
		Name: "gen_ai.client.token.usage", Kind: Histogram, Unit: "{token}", bounds: genAITokens,
		Labels: []string{"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"},
		Doc:    "Tokens of one model call, as reported by the provider; no estimates.",
	}
	mOperation = Metric{
		Name: "gen_ai.client.operation.duration", Kind: Histogram, Unit: "s", bounds: genAISeconds,
		Labels: []string{"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"},
		Doc:    "Attempts at model calls; failed ones have error.type, the class of the error.",
	}
)

// Metrics returns all metrics, in the order of the documentation.
func Metrics() []Metric {
	return slices.Clone([]Metric{
		mContinuations, mIterations, mContinuationErrors, mContinuationTime,
		mTurns, mTurnTime, mDispatches, mLatency, mLeases, mLost,
		mToolTime, mResultMemory, mResultsWaiting, mTokens, mCost, mUsage, mOperation,
		mQueue, mQueueAge, mOpen, mWaits, mWaitAge, mWaitLeft, mModelDown, mAside, mLevel, mQueueFailures, mTickAge,
		mTicks, mRefused, mRefusedAge, mRefusedAttempts,
		mWatchers, mHTTP, mDeliveries, mPool, mPoolWaits, mPoolWaitTime,
	})
}
