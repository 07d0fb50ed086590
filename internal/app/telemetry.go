package app

import (
	"context"
	"net"
	"sync"

	"go.uber.org/zap"

	"turnkeeper/internal/config"
	"turnkeeper/internal/version"
	"turnkeeper/storage"
	"turnkeeper/telemetry"
)

// telling is what a worker tells of itself.
type telling struct {
	*telemetry.Telemetry
	server *telemetry.Server // nil: its metrics have no address of their own
	log    *zap.Logger
}

// startTelling begins. What is wrong with the settings is found here.
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

// serve gives the metrics an address of their own, if they are to have one.
func (t *telling) serve(listener net.Listener) {
	if listener == nil {
		return
	}
	t.server = t.Serve(listener, t.log)
	t.log.Info("metrics are served", zap.String("url", "http://"+listener.Addr().String()+"/metrics"))
}

// closer stops telling, once, after what is left was sent. A worker that was told
// twice to stop waits for that no longer than a moment.
func (t *telling) closer(hard context.Context) func() {
	return sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), telemetry.FlushTime)
		defer cancel()
		defer soonAfter(hard, cancel)()
		if t.server != nil {
			if err := t.server.Close(ctx); err != nil {
				t.log.Warn("the metrics' listener was not stopped in good order", zap.Error(err))
			}
		}
		if err := t.Close(ctx); err != nil {
			t.log.Warn("some telemetry could not be sent before the end", zap.Error(err))
		}
	})
}

// watch has the worker's figures looked up when somebody reads the metrics.
func (w *worker) watch() error {
	sources := telemetry.Sources{Queue: w.queue, Models: w.modelsDown, Pools: w.pools}
	if w.cfg.HasRole(config.RoleWorker) {
		sources.Leases = w.turns.Running
	}
	if w.api != nil {
		sources.Watchers = w.api.watchers
	}
	return w.telling.Watch(sources)
}

func (w *worker) queue(ctx context.Context) (telemetry.Queue, error) {
	f, err := w.store.Queue(ctx)
	return telemetry.Queue{Messages: f.Waiting, Oldest: f.Oldest, Running: f.Running, Queued: f.Queued, Waits: f.Elsewhere}, err
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

func (w *worker) pools() (all []telemetry.Pool) {
	stats := w.store.Pools()
	if w.api != nil { // of the API's own store only the first is used
		stats = append(stats, w.api.store.Pools()[0])
		stats[len(stats)-1].Name = "api"
	}
	for _, s := range stats {
		all = append(all, poolOf(s))
	}
	return all
}

func poolOf(s storage.PoolStats) telemetry.Pool { return telemetry.Pool(s) }
