package bench

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A plain runs the standard turn as a simple River job that inserts a row per step. It keeps no
// order and has no lease and no fence, and a job given out twice repeats everything. It has its own
// database, so that its notifications wake no other listeners, and tells senders of answers within
// the process.
type plain struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	worker *plainWorker
}

const plainDatabase = "plain"

func newPlain(ctx context.Context, server *pgxpool.Pool, at string, model *floor) (_ *plain, err error) {
	if _, err := server.Exec(ctx, "create database "+plainDatabase); err != nil {
		return nil, err
	}
	address, err := url.Parse(at)
	if err != nil {
		return nil, errUnreadableAddress
	}
	address.Path = "/" + plainDatabase
	pool, err := poolFor(ctx, address.String(), 1)
	if err != nil {
		return nil, err
	}
	p := &plain{pool: pool, worker: &plainWorker{pool: pool, model: model, answered: make(chan int64, 1)}}
	if err := p.start(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}

func (p *plain) start(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(p.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = p.pool.Exec(ctx, `
		create table plain_steps (job_id bigint not null, step integer not null, content text not null, primary key (job_id, step))`)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, p.worker)
	p.client, err = river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Logger: quiet, Workers: workers, MaxAttempts: 1,
		FetchCooldown: time.Millisecond, // like the worker: River's default adds up to 100 ms
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
	})
	if err != nil {
		return err
	}
	return p.client.Start(ctx)
}

func (p *plain) close() {
	_ = p.client.StopAndCancel(context.Background()) //nolint:contextcheck // ctx may have ended
	p.pool.Close()
}

// turn sends a message and waits until its job has stored the answer.
func (p *plain) turn(ctx context.Context) error {
	sent, err := p.client.Insert(ctx, plainArgs{Body: "go"}, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case job := <-p.worker.answered:
			if job == sent.Job.ID {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type plainArgs struct {
	Body string `json:"body"`
}

func (plainArgs) Kind() string { return "plain_turn" }

type plainWorker struct {
	river.WorkerDefaults[plainArgs]
	pool     *pgxpool.Pool
	model    *floor // sends the same requests as the floor
	answered chan int64
}

// Work stores each answer and each pair of results before the next step.
func (w *plainWorker) Work(ctx context.Context, job *river.Job[plainArgs]) error {
	for round := 1; round <= 3; round++ {
		answer, err := w.model.ask(ctx, round)
		if err != nil {
			return err
		}
		if err := w.store(ctx, job.ID, round*2, answer); err != nil {
			return err
		}
		if round == 3 {
			break
		}
		if err := w.store(ctx, job.ID, round*2+1, noopResult+noopResult); err != nil {
			return err
		}
	}
	select {
	case w.answered <- job.ID:
	case <-ctx.Done():
	}
	return nil
}

func (w *plainWorker) store(ctx context.Context, job int64, step int, content string) error {
	_, err := w.pool.Exec(ctx, "insert into plain_steps (job_id, step, content) values ($1, $2, $3)", job, step, content)
	return err
}
