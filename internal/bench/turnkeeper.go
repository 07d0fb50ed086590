package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper"
	"turnkeeper/client"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/pause"
)

// minSlots and maxSlots bound the turns that the worker, or the River client, runs at a time.
const minSlots, maxSlots = 10, 100

// slotsFor returns the slots for a number of lanes. Of more than maxSlots lanes, the others wait.
func slotsFor(lanes int) int { return min(max(lanes, minSlots), maxSlots) }

const agentFile = `---
description: The standard turn of the benchmark.
model: bench/instant
lane: conversation
durability: barrier
tools: [noop]
---
Call the tools, then answer.
`

// The agents. The first runs the standard turn, the answers of the second are streamed slowly, the third has one round.
const benchAgent, streamedAgent, trivialAgent = "bench", "streamed", "trivial"

// writeAgents writes the agents' files of both durabilities, each into the folder of its system.
func writeAgents(dir string) error {
	return errors.Join(writeAgentsFor(filepath.Join(dir, databases[Turnkeeper]), "barrier"),
		writeAgentsFor(filepath.Join(dir, databases[Stepwise]), "step"))
}

func writeAgentsFor(dir, durability string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, model := range map[string]string{benchAgent: "instant", streamedAgent: "streamed",
		trivialAgent: "trivial"} {
		text := strings.NewReplacer("bench/instant", "bench/"+model, "barrier", durability).Replace(agentFile)
		if err := os.WriteFile(filepath.Join(dir, name+".md"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// A worker is the ordinary worker, with the tool noop. It writes its log to nowhere.
type worker struct {
	api   string
	stop  context.CancelFunc
	ended chan error
}

func startWorker(ctx context.Context, s setup) (part, error) {
	cfg := config.Default()
	url, err := config.NewDatabaseURL(s.Database)
	if err != nil {
		return nil, err
	}
	cfg.DatabaseURL, cfg.AgentsDir, cfg.WorkerSlots = url, s.Agents, s.Slots
	cfg.DBPoolSize, cfg.Listen = poolSize, "127.0.0.1:0"
	if s.Roles != nil {
		cfg.Roles = s.Roles
	}
	separates := true
	cfg.Providers["bench"] = config.Provider{Name: "bench", BaseURL: s.Model, Profile: config.Profile{Name: "generic",
		Separates: &separates}}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), nowhere, zap.InfoLevel))
	ctx, stop := context.WithCancel(ctx)
	w := &worker{stop: stop, ended: make(chan error, 1)}
	ready := make(chan app.Ready, 1)
	go func() {
		w.ended <- app.RunWorker(ctx, context.WithoutCancel(ctx), cfg, log, func(r app.Ready) {
			ready <- r
		}, app.WithTools(noop()))
	}()
	select {
	case r := <-ready:
		w.api = r.API
		return w, nil
	case err := <-w.ended:
		stop()
		return nil, fmt.Errorf("the worker did not start: %w", err)
	}
}

func (w *worker) url() string { return w.api }

// run waits: the worker runs turns by itself.
func (w *worker) run(ctx context.Context, l load) (outcome, error) {
	return outcome{}, pause.For(ctx, l.Pause)
}

func (w *worker) close() error {
	w.stop()
	return <-w.ended
}

// A sender sends messages to Turnkeeper, reads the replies of all of them from the outbox in one
// place, and follows turns over HTTP.
type sender struct {
	pool    *pgxpool.Pool
	answers *answers
	api     string
	web     *http.Client
	events  atomic.Int64 // that the first watcher of the last turn got
	quit    context.CancelFunc
	done    chan struct{}
}

func startSender(ctx context.Context, s setup) (part, error) {
	pool, err := newPool(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	own := &sender{pool: pool, answers: newAnswers(), api: s.API, done: make(chan struct{})}
	own.web = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: watchers * watchedLanes}}
	ctx, own.quit = context.WithCancel(ctx)
	outbox, err := openOutbox(ctx, pool)
	if err != nil {
		own.quit()
		pool.Close()
		return nil, err
	}
	go func() {
		defer close(own.done)
		if err := outbox.follow(ctx, own.answers); err != nil && ctx.Err() == nil {
			own.answers.fail(err)
		}
	}()
	return own, nil
}

func (s *sender) url() string { return "" }

func (s *sender) close() error {
	s.quit()
	<-s.done
	s.web.CloseIdleConnections()
	s.pool.Close()
	return nil
}

func (s *sender) run(ctx context.Context, l load) (outcome, error) {
	if l.Drain {
		return s.drain(ctx, l.Turns)
	}
	o, err := l.run(ctx, func(ctx context.Context, lane, n int) (rest, error) {
		conversation := fmt.Sprintf("%s-%d", l.Name, lane)
		if l.Reuse > 0 {
			conversation = fmt.Sprintf("%s-%d", conversation, n/l.Reuse)
		}
		id, err := client.Enqueue(ctx, s.pool, turnkeeper.Submission{Agent: l.Agent, Conversation: conversation,
			Body: newMessage()})
		if err != nil {
			return nil, err
		}
		var after rest
		if l.Agent == streamedAgent {
			if after, err = s.follow(ctx, l.Watchers, int64(id)); err != nil {
				return nil, err
			}
		}
		return after, s.answers.await(ctx, int64(id))
	})
	o.Events = int(s.events.Swap(0))
	return o, err
}

// An outbox reads the outcomes of new replies, each once.
type outbox struct {
	pool    *pgxpool.Pool
	read    int64               // the highest id that was read
	missing map[int64]time.Time // lower ids that were not, with when this was found: their replies may commit later
}

// The outbox is read again after pollEvery without a notification. An id that is missing for giveUp
// belongs to a transaction that was rolled back.
const (
	pollEvery = time.Second
	giveUp    = 10 * time.Second
)

// openOutbox starts after the replies that exist.
func openOutbox(ctx context.Context, pool *pgxpool.Pool) (*outbox, error) {
	o := &outbox{pool: pool, missing: map[int64]time.Time{}}
	return o, pool.QueryRow(ctx, "select coalesce(max(id), 0) from turnkeeper.replies").Scan(&o.read)
}

// follow records answers until ctx ends. Notifications that arrive while it reads cause one more read.
func (o *outbox) follow(ctx context.Context, to *answers) error {
	pooled, err := o.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // it keeps listening
	reader, err := o.pool.Acquire(ctx)
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	own := reader.Hijack()
	defer own.Close(context.WithoutCancel(ctx))
	// The statement is planned while the table is empty. Without this it would read the whole table forever.
	if _, err := own.Exec(ctx, "set enable_seqscan = off"); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rings, ended := make(chan struct{}, 1), make(chan error, 1)
	if _, err := conn.Exec(ctx, "listen turnkeeper_turns"); err != nil {
		return err
	}
	go func() {
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				ended <- err
				return
			}
			select {
			case rings <- struct{}{}:
			default:
			}
		}
	}()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-rings:
		case <-poll.C:
		case err := <-ended:
			return err
		}
		if err := o.readNew(ctx, own, to); err != nil {
			return err
		}
	}
}

func (o *outbox) readNew(ctx context.Context, conn *pgx.Conn, to *answers) error {
	rows, err := conn.Query(ctx,
		"select id, message_id, outcome from turnkeeper.replies where id > $1 or id = any($2::bigint[]) order by id",
		o.read, slices.Collect(maps.Keys(o.missing)))
	if err != nil {
		return err
	}
	now := time.Now()
	var id, message int64
	var ended string
	_, err = pgx.ForEachRow(rows, []any{&id, &message, &ended}, func() error {
		if ended != string(turnkeeper.TurnSucceeded) {
			return fmt.Errorf("a turn of the benchmark ended %s", ended)
		}
		o.saw(id, now)
		to.record(message)
		return nil
	})
	return err
}

// saw notes that a reply was read. Ids are seen in ascending order.
func (o *outbox) saw(id int64, now time.Time) {
	delete(o.missing, id)
	for ; o.read < id; o.read++ {
		if o.read+1 < id {
			o.missing[o.read+1] = now
		}
	}
	maps.DeleteFunc(o.missing, func(_ int64, since time.Time) bool { return now.Sub(since) >= giveUp })
}

// poolSize is the number of connections of each process's pool.
const poolSize = 16

func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errUnreadableAddress
	}
	cfg.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, cfg)
}
