package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"turnkeeper"
	"turnkeeper/storage"
)

// A Client is River's client for inserting jobs and running them.
type Client = river.Client[pgx.Tx]

// ClientConfig configures a Client.
type ClientConfig struct {
	Pool     *pgxpool.Pool
	WorkerID turnkeeper.WorkerID // River's rows tell the scheduler which worker fetched a job
	Worker   *Worker             // nil: the client only inserts
	Slots    int                 // turns at once; at least 1 with Worker
	// Calls runs detached calls, at most CallSlots at once for each of its tools. nil, or
	// CallSlots 0: none.
	Calls     *CallWorker
	CallSlots int
	Log       *zap.Logger   // nil: none
	poll      time.Duration // how often to fetch without a doorbell; 0: fetchPoll
}

// NewClient returns a client. With a Worker, it runs jobs once it is started.
func NewClient(c ClientConfig) (*Client, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	cfg := &river.Config{
		ID:                string(c.WorkerID),
		Schema:            storage.Schema,
		Logger:            riverLogger(c.Log),
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPoll,
		MaxAttempts:       1,
		// River's rescuer never decides anything: the scheduler closes the rows of
		// lost grants long before.
		RescueStuckJobsAfter: 24 * time.Hour,
		JobTimeout:           -1, // the workers set their own
	}
	if c.Worker != nil {
		workers := river.NewWorkers()
		if err := river.AddWorkerSafely(workers, c.Worker); err != nil {
			return nil, err
		}
		cfg.Workers = workers
		cfg.Queues = map[string]river.QueueConfig{
			Queue: c.queue(c.Slots),
			// A slotDriver fetches no more than Slots in both queues together.
			QueueOf(c.WorkerID): c.queue(c.Slots),
		}
	}
	if c.Calls != nil && len(c.Calls.Tools) > 0 && c.CallSlots > 0 {
		if cfg.Workers == nil {
			cfg.Workers, cfg.Queues = river.NewWorkers(), map[string]river.QueueConfig{}
		}
		if err := river.AddWorkerSafely(cfg.Workers, c.Calls); err != nil {
			return nil, err
		}
		for _, tool := range c.Calls.Tools {
			cfg.Queues[CallQueueOf(tool)] = c.queue(c.CallSlots)
		}
	}
	deaf := deafDriver{riverpgxv5.New(c.Pool), slices.Collect(maps.Keys(cfg.Queues))}
	var driver riverdriver.Driver[pgx.Tx] = deaf
	if c.Worker != nil {
		c.Worker.mu.Lock()
		c.Worker.slots = c.Slots
		c.Worker.mu.Unlock()
		driver = slotDriver{deaf, c.Worker, newGate()}
	}
	client, err := river.NewClient(driver, cfg)
	if err != nil {
		return nil, fmt.Errorf("setting up River: %w", err)
	}
	return client, nil
}

func (c *ClientConfig) queue(slots int) river.QueueConfig {
	return river.QueueConfig{MaxWorkers: slots, FetchCooldown: fetchCooldown,
		FetchPollInterval: cmp.Or(c.poll, fetchPoll)}
}

// riverLogger logs River's warnings and errors only.
func riverLogger(log *zap.Logger) *slog.Logger {
	least := max(zap.WarnLevel, log.Level())
	core := log.WithOptions(zap.IncreaseLevel(least)).Core()
	return slog.New(outageLog{zapslog.NewHandler(core, zapslog.WithName("river"),
		zapslog.AddStacktraceAt(slog.LevelError+1))})
}

// Migrate applies the missing migrations, including River's, and returns the applied
// ones except River's. Any number of processes may call it at once.
func Migrate(ctx context.Context, store *storage.DB, log *zap.Logger) ([]storage.Migration, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(store.Pool()), &rivermigrate.Config{
		Line:   riverdriver.MigrationLineMain,
		Schema: storage.Schema,
		Logger: riverLogger(log),
	})
	if err != nil {
		return nil, err
	}
	river := storage.RiverMigrations{Line: riverdriver.MigrationLineMain, Apply: func(ctx context.Context) error {
		_, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	}}
	for _, m := range migrator.AllVersions() {
		river.Versions = append(river.Versions, m.Version)
	}
	return store.Migrate(ctx, river)
}
