package app

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/internal/config"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/version"
	"turnkeeper/storage"
	"turnkeeper/telemetry"
)

// telling is the telemetry of a worker.
type telling struct {
	*telemetry.Telemetry
	server *telemetry.Server // nil: no separate listener for metrics
	log    *zap.Logger
}

// startTelling starts telemetry. It checks the settings of telemetry.
func startTelling(ctx context.Context, cfg *config.Config, id string, log *zap.Logger) (*telling, error) {
	t, err := telemetry.Start(ctx, telemetry.Options{
		Endpoint: cfg.OTLPEndpoint, Content: cfg.TelemetryContent, Mask: cfg.Masker().String,
		Version: version.Version(), Instance: id, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &telling{Telemetry: t, log: log}, nil
}

// serve serves the metrics on a separate listener, if there is one.
func (t *telling) serve(listener net.Listener) {
	if listener == nil {
		return
	}
	t.server = t.Serve(listener, t.log)
	t.log.Info("metrics are served", zap.String("url", "http://"+listener.Addr().String()+"/metrics"))
}

// closer returns a function that sends the remaining telemetry and stops, once. After hard has ended it
// waits for at most atOnce.
func (t *telling) closer(hard context.Context) func() {
	return sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), telemetry.FlushTime)
		defer cancel()
		defer soonAfter(hard, cancel)()
		if t.server != nil {
			if err := t.server.Close(ctx); err != nil {
				t.log.Warn("could not stop the metrics listener cleanly", zap.Error(err))
			}
		}
		if err := t.Close(ctx); err != nil {
			t.log.Warn("could not send the last telemetry", zap.Error(err))
		}
	})
}

// watch registers the sources of gauges, which are queried whenever the metrics are read.
func (w *worker) watch() error {
	sources := telemetry.Sources{Queue: w.queue, Models: w.modelsDown, Aside: w.setAside, Levels: w.levels,
		Pools: w.pools, Refused: w.refused}
	if w.cfg.HasRole(config.RoleWorker) {
		sources.Leases = w.turns.Running
	}
	sources.Results = func() (held int64, waiting int) {
		use := w.memory.Use()
		return use.Held, use.Waiting
	}
	if w.api != nil {
		sources.Watchers = w.api.watchers
	}
	return w.telling.Watch(sources)
}

func (w *worker) queue(ctx context.Context) (telemetry.Queue, error) {
	f, err := w.store.Queue(ctx)
	q := telemetry.Queue{Messages: f.Waiting, Oldest: f.Oldest, Running: f.Running, Queued: f.Queued,
		Waits: f.WaitingTurns}
	for _, t := range f.Waits {
		wait := telemetry.Wait{Reason: string(t.Reason), Turns: t.Turns, Age: -1, Left: -1}
		if !t.Since.IsZero() {
			wait.Age = max(f.Now.Sub(t.Since), 0)
		}
		if !t.Until.IsZero() {
			wait.Left = max(t.Until.Sub(f.Now), 0)
		}
		q.Reasons = append(q.Reasons, wait)
	}
	return q, err
}

func (w *worker) modelsDown(ctx context.Context) (map[string]bool, error) {
	models, err := w.store.Models(ctx)
	down := map[string]bool{}
	for _, m := range models {
		if m.Used() {
			down[m.Model] = m.Down()
		}
	}
	return down, err
}

func (w *worker) setAside(ctx context.Context) (map[string]int, error) {
	byKind, err := w.store.CountAside(ctx)
	counts := map[string]int{}
	for kind, n := range byKind {
		counts[string(kind)] = n
	}
	return counts, err
}

func (w *worker) refused() (now map[string][]time.Duration, attempts map[string]int64) {
	now = map[string][]time.Duration{}
	for _, r := range w.store.Refused() {
		now[r.SQLState] = append(now[r.SQLState], r.For)
	}
	return now, w.store.RefusedAttempts()
}

func (w *worker) levels(ctx context.Context) (map[string]int, error) {
	all, err := w.store.Levels(ctx)
	levels := map[string]int{}
	for _, a := range all.Agents {
		levels[a.Agent] = slices.Index(survival.Levels, a.Level)
	}
	return levels, err
}

func (w *worker) pools() (all []telemetry.Pool) {
	stats := w.store.Pools()
	if w.api != nil { // the API's store uses only its first pool
		stats = append(stats, w.api.store.Pools()[0])
		stats[len(stats)-1].Name = "api"
	}
	for _, s := range stats {
		all = append(all, poolOf(s))
	}
	return all
}

func poolOf(s storage.PoolStats) telemetry.Pool { return telemetry.Pool(s) }
