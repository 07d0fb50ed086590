// Package bench measures the cost of a turn, as ratios to a floor measured in the same run: the
// same turn on two plain tables, with one commit per step. It also measures the same turn as a
// plain River job.
//
// The standard turn is one message and three rounds against a model server that
// answers at once over HTTP, with two no-op tools of 200 bytes in each of the
// first two rounds, every answer and every result durable before the next step.
// Database, model server, worker and sender share the machine.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// Options say what to measure.
type Options struct {
	Idle    int           // turns on an idle system; 0: not measured
	Turns   int           // turns for each throughput figure; 0: not measured
	Lanes   []int         // numbers of lanes for throughput; nil: 1, 10 and 100
	Watched int           // streamed turns, half of them watched; 0: not measured
	Pause   time.Duration // between idle turns; 0: 30 ms
	// FlushDelay makes each flush of the log slower, to simulate a slower disk; at most 100 ms.
	FlushDelay time.Duration
	Progress   func(string) // called with what is measured next; nil: not called
}

func (o Options) withDefaults() Options {
	if o.Lanes == nil {
		o.Lanes = []int{1, 10, 100}
	}
	if o.Pause <= 0 {
		o.Pause = 30 * time.Millisecond
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// A Report holds the results.
type Report struct {
	CPUs             int           `json:"cpus"`
	Postgres         string        `json:"postgres"`
	FSync            string        `json:"fsync"`
	Flush            time.Duration `json:"flush_ns"`       // time of a flush of one page to this disk
	FlushDelay       time.Duration `json:"flush_delay_ns"` // Options.FlushDelay
	FirstRequest     Latency       `json:"idle_enqueue_to_first_request"`
	Reply            Latency       `json:"idle_enqueue_to_reply"`
	PlainReply       Latency       `json:"plain_job_idle_enqueue_to_reply"`
	FloorReply       Latency       `json:"floor_idle_enqueue_to_reply"`
	ReplyRatio       float64       `json:"idle_reply_ratio"` // ratio of the medians
	PlainRatio       float64       `json:"plain_job_idle_reply_ratio"`
	WriteTxPerTurn   float64       `json:"write_transactions_per_turn"`
	PlainTxPerTurn   float64       `json:"plain_job_write_transactions_per_turn"`
	FloorTxPerTurn   float64       `json:"floor_write_transactions_per_turn"`
	Throughput       []Throughput  `json:"throughput"`
	Watched          Watched       `json:"watched"`
	Took             time.Duration `json:"took_ns"`
	IdleTurns, Turns int
}

// A Latency holds percentiles of a duration.
type Latency struct {
	P50 time.Duration `json:"p50_ns"`
	P90 time.Duration `json:"p90_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// A Throughput is the number of turns per second with a number of lanes.
type Throughput struct {
	Lanes int     `json:"lanes"`
	Turns float64 `json:"turns_per_second"`
	Floor float64 `json:"floor_turns_per_second"`
	Ratio float64 `json:"ratio"` // to the floor
}

func ratio(of, to Latency) float64 { return float64(of.P50) / float64(to.P50) }

func latencyOf(all []time.Duration) Latency {
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[min(int(q*float64(len(all))), len(all)-1)] }
	return Latency{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// Run measures on its own private Postgres, with fsync on, in a temporary folder that it removes.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.withDefaults()
	began := time.Now()
	settings, err := slowDisk(o.FlushDelay)
	if err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "turnkeeper-bench-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // the server's user must reach its data
		return Report{}, err
	}
	flush, err := flushTime(dir)
	if err != nil {
		return Report{}, err
	}
	server, err := pgdev.Open(ctx, pgdev.Options{Dir: filepath.Join(dir, "database"), Settings: settings})
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = server.Close(context.WithoutCancel(ctx)) }()
	b, err := prepare(ctx, o, dir, server.URL())
	if err != nil {
		return Report{}, err
	}
	defer b.close()
	report, err := b.measure(ctx)
	report.Flush, report.FlushDelay, report.Took = flush, o.FlushDelay, time.Since(began)
	return report, err
}

// A bench holds the running parts that are measured.
type bench struct {
	Options
	url      string
	model    *model
	store    *operate.Store
	notifier *storage.Notifier
	floor    *floor
	plain    *plain
	pool     *pgxpool.Pool // of the floor and of the counters
	stop     context.CancelFunc
	ended    chan error

	api           string // URL of the worker's HTTP API
	web           *http.Client
	watchedEvents int
}

func prepare(ctx context.Context, o Options, dir, url string) (b *bench, err error) {
	ctx, stop := context.WithCancel(ctx)
	b = &bench{Options: o, url: url, stop: stop, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if b.model, err = startModel(); err != nil {
		return nil, err
	}
	if b.store, err = operate.Open(ctx, storage.Options{URL: url}); err != nil {
		return nil, err
	}
	if _, err = jobs.Migrate(ctx, b.store.DB, zap.NewNop()); err != nil {
		return nil, err
	}
	b.notifier = storage.NewNotifier(url, zap.NewNop())
	go b.notifier.Run(ctx)
	if b.pool, err = poolFor(ctx, url, slices.Max(o.Lanes)); err != nil {
		return nil, err
	}
	if b.floor, err = newFloor(ctx, b.pool, b.model.url); err != nil {
		return nil, err
	}
	if b.plain, err = newPlain(ctx, b.pool, url, b.floor); err != nil {
		return nil, err
	}
	return b, b.startWorker(ctx, dir)
}

var errUnreadableAddress = errors.New("the address of the benchmark's database is invalid")

func poolFor(ctx context.Context, url string, lanes int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errUnreadableAddress
	}
	cfg.MaxConns = int32(min(max(lanes, 4), 16))
	return pgxpool.NewWithConfig(ctx, cfg)
}

const agentFile = `---
description: The standard turn of the benchmark.
model: bench/instant
lane: conversation
tools: [noop]
---
Call the tools, then answer.
`

// streamedFile uses the model "streamed" of the same server, which streams its answers slowly.
var streamedFile = strings.Replace(agentFile, "bench/instant", "bench/streamed", 1)

func (b *bench) startWorker(ctx context.Context, dir string) error {
	agents := filepath.Join(dir, "agents")
	if err := os.MkdirAll(agents, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"bench.md": agentFile, "streamed.md": streamedFile} {
		if err := os.WriteFile(filepath.Join(agents, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	cfg := config.Default()
	url, err := config.NewDatabaseURL(b.url)
	if err != nil {
		return err
	}
	cfg.DatabaseURL, cfg.AgentsDir, cfg.WorkerSlots = url, agents, max(slices.Max(b.Lanes), 10)
	cfg.DBPoolSize, cfg.Listen = 16, "127.0.0.1:0"
	cfg.Providers["bench"] = config.Provider{Name: "bench", BaseURL: b.model.url, Profile: config.Profile{Name: "generic"}}
	b.web = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: watchers}}
	ready := make(chan app.Ready, 1)
	go func() {
		b.ended <- app.RunWorker(ctx, context.WithoutCancel(ctx), cfg, zap.NewNop(), func(r app.Ready) { ready <- r }, app.WithTools(noop()))
	}()
	select {
	case r := <-ready:
		b.api = r.API
		return nil
	case err := <-b.ended:
		return fmt.Errorf("the worker did not start: %w", err)
	}
}

func (b *bench) close() {
	b.web.CloseIdleConnections()
	b.stop()
	if err := <-b.ended; err != nil { // the measurements are still valid
		b.Progress("the worker failed to stop: " + err.Error())
	}
	b.plain.close()
	b.pool.Close()
	b.store.Close()
	b.model.close()
}

func (b *bench) measure(ctx context.Context) (r Report, err error) {
	facts, err := b.store.ServerFacts(ctx)
	if err != nil {
		return r, err
	}
	r.CPUs, r.Postgres, r.FSync = runtime.NumCPU(), strings.Fields(facts.Version)[0], facts.FSync
	r.IdleTurns, r.Turns = b.Idle, b.Turns
	if err := b.measureIdle(ctx, &r); err != nil {
		return r, err
	}
	if err := b.measureWatched(ctx, &r); err != nil {
		return r, err
	}
	err = b.measureThroughput(ctx, &r)
	return r, err
}

func (b *bench) measureThroughput(ctx context.Context, r *Report) (err error) {
	if b.Turns == 0 {
		return nil
	}
	for _, lanes := range b.Lanes {
		b.Progress(fmt.Sprintf("throughput with %d lanes", lanes))
		t := Throughput{Lanes: lanes}
		n := turnsFor(b.Turns, lanes)
		if t.Floor, err = b.floorThroughput(ctx, lanes, n); err != nil {
			return err
		}
		if t.Turns, err = b.throughput(ctx, lanes, n); err != nil {
			return err
		}
		t.Ratio = t.Turns / t.Floor
		r.Throughput = append(r.Throughput, t)
	}
	return nil
}

// turnsFor returns the number of turns for a throughput figure: fewer if they run one by one.
func turnsFor(turns, lanes int) int {
	if lanes == 1 {
		return max(turns/4, 1)
	}
	return max(turns/lanes, 1) * lanes
}
