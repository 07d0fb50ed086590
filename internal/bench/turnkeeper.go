package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

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
	*reader
	api    string
	web    *http.Client
	events atomic.Int64 // that the first watcher of the last turn got
}

// turnkeeperReplies are the replies in Turnkeeper's outbox.
var turnkeeperReplies = replies{channel: "turnkeeper_turns", table: "turnkeeper.replies", message: "message_id",
	outcome: "outcome"}

func startSender(ctx context.Context, s setup) (part, error) {
	r, err := openReader(ctx, s.Database, turnkeeperReplies)
	if err != nil {
		return nil, err
	}
	return &sender{reader: r, api: s.API, web: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: watchers * watchedLanes}}}, nil
}

func (s *sender) close() error {
	s.web.CloseIdleConnections()
	return s.reader.close()
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
