package bench

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A riverPart runs the standard turn as a lean River job that inserts a row per step. It keeps no
// order and has no lease and no fence, and a job given out twice repeats everything.
type riverPart struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// fetchCooldown is River's pause between fetches, as in the worker: its default adds up to 100 ms to a turn.
const fetchCooldown = time.Millisecond

// startRiver starts a client that runs as many jobs at a time as the worker runs turns.
func startRiver(ctx context.Context, s setup) (part, error) {
	pool, err := newPool(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	r := &riverPart{pool: pool}
	if err := r.start(ctx, s); err != nil {
		pool.Close()
		return nil, err
	}
	return r, nil
}

func (r *riverPart) start(ctx context.Context, s setup) error {
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, riverTables); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{part: r, model: newAsker(s.Model)})
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: quiet, Workers: workers, MaxAttempts: 1,
		FetchCooldown: fetchCooldown,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.Slots}},
	})
	if err != nil {
		return err
	}
	return r.client.Start(context.WithoutCancel(ctx)) // close stops it
}

// run does nothing: the client runs jobs by itself.
func (r *riverPart) run(context.Context, load) (outcome, error) { return outcome{}, nil }

func (r *riverPart) url() string { return "" }

func (r *riverPart) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout/2)
	defer cancel()
	err := r.client.StopAndCancel(ctx)
	r.pool.Close()
	return err
}

type riverTurn struct {
	Body string `json:"body"`
}

func (riverTurn) Kind() string { return "turn" }

type riverWorker struct {
	river.WorkerDefaults[riverTurn]
	part  *riverPart
	model asker
}

// Work stores each answer and each pair of results before the next step, and the reply with a notification.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverTurn]) error {
	return w.model.turn(ctx, func(step int, text string) error {
		if step == lastStep {
			_, err := w.part.pool.Exec(ctx, "with r as (insert into river_replies (job_id, content) values ($1, $2)) "+
				"select pg_notify('river_replies', '')", job.ID, text)
			return err
		}
		_, err := w.part.pool.Exec(ctx, "insert into river_steps (job_id, step, content) values ($1, $2, $3)",
			job.ID, step, text)
		return err
	})
}

const riverTables = `
	create table if not exists river_steps (job_id bigint not null, step integer not null, content text not null, primary key (job_id, step));
	create table if not exists river_replies (id bigint generated always as identity primary key, job_id bigint not null, content text not null)`

// riverReplies are the replies of River jobs.
var riverReplies = replies{channel: "river_replies", table: "river_replies", message: "job_id", outcome: "'succeeded'"}

// A riverSender inserts jobs in a process of its own, and waits for their replies as Turnkeeper's sender does.
type riverSender struct {
	*reader
	client *river.Client[pgx.Tx]
}

func startRiverSender(ctx context.Context, s setup) (part, error) {
	r, err := openReader(ctx, s.Database, riverReplies)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), FetchCooldown: fetchCooldown, // it notifies once in this time
	})
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &riverSender{r, client}, nil
}

func (s *riverSender) run(ctx context.Context, l load) (outcome, error) {
	return l.run(ctx, func(ctx context.Context, _, _ int) (rest, error) {
		sent, err := s.client.Insert(ctx, riverTurn{Body: "go"}, nil)
		if err != nil {
			return nil, err
		}
		return nil, s.answers.await(ctx, sent.Job.ID)
	})
}
