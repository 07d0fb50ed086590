package telemetry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// A Queue counts what waits and runs in the whole database.
type Queue struct {
	Messages               int           // in the inbox
	Oldest                 time.Duration // how long the oldest of them has been due
	Running, Queued, Waits int           // turns

	Reasons []Wait // of the turns that wait

	down  map[string]bool // models
	aside map[string]int  // rows, by kind
	level map[string]int  // by agent
}

// A Wait counts the turns that wait for one reason.
type Wait struct {
	Reason    string
	Turns     int
	Age, Left time.Duration // of the longest wait; until the first ends; negative: not known
}

// A Pool is a pool of connections.
type Pool struct {
	Name            string
	Used, Idle, Max int
	Waits           int64         // number of waits for a connection
	Waited          time.Duration // total time of these waits
}

// Sources are called when metrics are read. A nil source has no metrics.
type Sources struct {
	// Queue reads the database. It is called at most every few seconds, however
	// often the metrics are read, with a timeout of two seconds.
	Queue func(context.Context) (Queue, error)
	// Models reads which models are down, at most as often as Queue.
	Models func(context.Context) (down map[string]bool, err error)
	// Aside counts the rows that are set aside, by kind, at most as often as Queue.
	Aside func(context.Context) (map[string]int, error)
	// Levels returns the survival levels of agents, 0 for normal, at most as often as Queue.
	Levels func(context.Context) (map[string]int, error)
	// Refused returns for how long the database has refused each operation that this process repeats, by SQLSTATE, and
	// how many attempts it has refused.
	Refused  func() (now map[string][]time.Duration, attempts map[string]int64)
	Pools    func() []Pool
	Leases   func() int // held by this process
	Watchers func() int // of events
	// Results returns the memory that results of tools hold in this process, in bytes, and how many
	// results wait for memory.
	Results func() (held int64, waiting int)
}

// Limits of the queries.
const (
	queueTime = 2 * time.Second
	queueKept = 5 * time.Second
)

// Watch registers the sources. Call it once.
func (t *Telemetry) Watch(s Sources) error {
	m := maker{meter: t.meter}
	w := &watch{Sources: s, tele: t}
	w.queue, w.queueAge, w.open = m.gauge(mQueue), m.gauge(mQueueAge), m.gauge(mOpen)
	w.waits, w.waitAge, w.waitLeft = m.gauge(mWaits), m.gauge(mWaitAge), m.gauge(mWaitLeft)
	w.leases, w.watchers, w.tickAge, w.pool = m.gauge(mLeases), m.gauge(mWatchers), m.gauge(mTickAge), m.gauge(mPool)
	w.modelDown, w.aside, w.level = m.gauge(mModelDown), m.gauge(mAside), m.gauge(mLevel)
	w.poolWaits, w.poolWaitTime = m.observedCounter(mPoolWaits), m.observedCounter(mPoolWaitTime)
	w.refused, w.refusedAge, w.refusedAttempts = m.gauge(mRefused), m.gauge(mRefusedAge),
		m.observedCounter(mRefusedAttempts)
	w.resultMemory, w.resultsWaiting = m.gauge(mResultMemory), m.gauge(mResultsWaiting)
	all := []metric.Observable{w.queue, w.queueAge, w.open, w.waits, w.waitAge, w.waitLeft, w.modelDown, w.aside,
		w.level, w.leases, w.watchers, w.tickAge, w.pool, w.poolWaits, w.poolWaitTime, w.resultMemory, w.resultsWaiting,
		w.refused, w.refusedAge, w.refusedAttempts}
	_, err := t.meter.RegisterCallback(w.collect, all...)
	return errors.Join(append(m.errs, err)...)
}

func (m *maker) gauge(d Metric) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc))
	m.errs = append(m.errs, err)
	return g
}

func (m *maker) observedCounter(d Metric) metric.Float64ObservableCounter {
	c, err := m.meter.Float64ObservableCounter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Doc))
	m.errs = append(m.errs, err)
	return c
}

// A watch reads the sources and reports their values to the instruments.
type watch struct {
	Sources
	tele *Telemetry

	queue, queueAge, open, modelDown, aside, level, leases, watchers, tickAge, pool metric.Float64ObservableGauge
	resultMemory, resultsWaiting, refused, refusedAge                               metric.Float64ObservableGauge
	poolWaits, poolWaitTime, refusedAttempts                                        metric.Float64ObservableCounter
	waits, waitAge, waitLeft                                                        metric.Float64ObservableGauge

	mu    sync.Mutex
	kept  Queue
	known bool      // the last query succeeded
	asked time.Time // time of the last query
}

func (w *watch) collect(ctx context.Context, o metric.Observer) error {
	if w.Leases != nil {
		o.ObserveFloat64(w.leases, float64(w.Leases()))
	}
	if w.Watchers != nil {
		o.ObserveFloat64(w.watchers, float64(w.Watchers()))
	}
	if w.Results != nil {
		held, waiting := w.Results()
		o.ObserveFloat64(w.resultMemory, float64(held))
		o.ObserveFloat64(w.resultsWaiting, float64(waiting))
	}
	if last := w.tele.ticked.Load(); last != nil {
		o.ObserveFloat64(w.tickAge, time.Since(*last).Seconds())
	}
	if w.Refused != nil {
		w.collectRefused(o)
	}
	if w.Pools != nil {
		w.collectPools(o)
	}
	if w.Queue == nil {
		return nil
	}
	if q, ok := w.current(ctx); ok {
		o.ObserveFloat64(w.queue, float64(q.Messages))
		o.ObserveFloat64(w.queueAge, max(0, q.Oldest).Seconds())
		o.ObserveFloat64(w.open, float64(q.Running), with(labelState, "running"))
		o.ObserveFloat64(w.open, float64(q.Queued), with(labelState, "queued"))
		o.ObserveFloat64(w.open, float64(q.Waits), with(labelState, "waiting"))
		for _, r := range q.Reasons {
			o.ObserveFloat64(w.waits, float64(r.Turns), with(labelReason, r.Reason))
			if r.Age >= 0 {
				o.ObserveFloat64(w.waitAge, r.Age.Seconds(), with(labelReason, r.Reason))
			}
			if r.Left >= 0 {
				o.ObserveFloat64(w.waitLeft, r.Left.Seconds(), with(labelReason, r.Reason))
			}
		}
		for model, down := range q.down {
			o.ObserveFloat64(w.modelDown, map[bool]float64{true: 1}[down], with(labelModel, model))
		}
		for kind, n := range q.aside {
			o.ObserveFloat64(w.aside, float64(n), with(labelKind, kind))
		}
		for agent, level := range q.level {
			o.ObserveFloat64(w.level, float64(level), with(labelAgent, agent))
		}
	}
	return nil
}

func (w *watch) collectRefused(o metric.Observer) {
	now, attempts := w.Refused()
	longest := time.Duration(0)
	for code, n := range attempts {
		o.ObserveFloat64(w.refused, float64(len(now[code])), with(labelSQLState, code))
		o.ObserveFloat64(w.refusedAttempts, float64(n), with(labelSQLState, code))
		for _, d := range now[code] {
			longest = max(longest, d)
		}
	}
	o.ObserveFloat64(w.refusedAge, longest.Seconds())
}

func (w *watch) collectPools(o metric.Observer) {
	for _, p := range w.Pools() {
		for state, n := range map[string]int{"used": p.Used, "idle": p.Idle, "max": p.Max} {
			o.ObserveFloat64(w.pool, float64(n), with(labelPool, p.Name, labelState, state))
		}
		o.ObserveFloat64(w.poolWaits, float64(p.Waits), with(labelPool, p.Name))
		o.ObserveFloat64(w.poolWaitTime, p.Waited.Seconds(), with(labelPool, p.Name))
	}
}

// current returns the queue, at most some seconds old. Concurrent calls share one
// query.
func (w *watch) current(ctx context.Context) (Queue, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked.IsZero() && time.Since(w.asked) < queueKept {
		return w.kept, w.known
	}
	ctx, stop := context.WithTimeout(ctx, queueTime)
	defer stop()
	q, err := w.Queue(ctx)
	if err == nil && w.Models != nil {
		q.down, err = w.Models(ctx)
	}
	if err == nil && w.Aside != nil {
		q.aside, err = w.Aside(ctx)
	}
	if err == nil && w.Levels != nil {
		q.level, err = w.Levels(ctx)
	}
	w.kept, w.known, w.asked = q, err == nil, time.Now()
	if err != nil {
		w.tele.metrics.queueFailures.Add(always, 1)
	}
	return q, w.known
}

// Ticked records a tick of this process's scheduler.
func (t *Telemetry) Ticked(busy bool, took time.Duration, err error) {
	outcome := "done"
	switch {
	case err != nil:
		outcome = "failed"
	case busy:
		outcome = "busy"
	}
	t.metrics.ticks.Record(always, took.Seconds(), with(labelOutcome, outcome))
	if err == nil {
		now := time.Now()
		t.ticked.Store(&now)
	}
}

// WorkerLost records a lease reclaimed from a lost worker. closed says that its
// turn was ended too. A turn with rounds would have continued with their tool results.
func (t *Telemetry) WorkerLost(agent string, closed bool, rounds int) {
	t.metrics.lost.Add(always, 1, with(labelAgent, agent))
	if closed {
		t.metrics.turns.Add(always, 1, with(labelAgent, agent, labelState, "degraded", labelStop, "worker_lost"))
		if rounds > 0 {
			t.metrics.continuationErrors.Add(always, 1, with(labelAgent, agent, labelStop, "worker_lost"))
		}
	}
}

// lastTick is the time of the scheduler's last tick; nil: never.
type lastTick = atomic.Pointer[time.Time]
