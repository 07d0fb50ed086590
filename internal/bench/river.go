package bench

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// A riverPart runs the standard turn as a lean River job that inserts a row per step. It keeps no
// order and has no lease and no fence, and a job given out twice repeats everything. Its sender is in
// the same process and learns of answers there, without the database.
type riverPart struct {
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	answers *answers
}

// startRiver starts a client that runs as many jobs at a time as the worker runs turns.
func startRiver(ctx context.Context, s setup) (part, error) {
	pool, err := newPool(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	r := &riverPart{pool: pool, answers: newAnswers()}
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
	_, err = r.pool.Exec(ctx, `create table if not exists river_steps (
		job_id bigint not null, step integer not null, content text not null, primary key (job_id, step))`)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{part: r, model: newAsker(s.Model)})
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: quiet, Workers: workers, MaxAttempts: 1,
		FetchCooldown: time.Millisecond, // like the worker: River's default adds up to 100 ms
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.Slots}},
	})
	if err != nil {
		return err
	}
	return r.client.Start(context.WithoutCancel(ctx)) // close stops it
}

func (r *riverPart) run(ctx context.Context, l load) (outcome, error) {
	return l.run(ctx, func(ctx context.Context, _, _ int) (rest, error) {
		sent, err := r.client.Insert(ctx, riverTurn{Body: "go"}, nil)
		if err != nil {
			return nil, err
		}
		return nil, r.answers.await(ctx, sent.Job.ID)
	})
}

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

// Work stores each answer and each pair of results before the next step.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverTurn]) error {
	err := w.model.turn(ctx, func(step int, text string) error {
		_, err := w.part.pool.Exec(ctx, "insert into river_steps (job_id, step, content) values ($1, $2, $3)",
			job.ID, step, text)
		return err
	})
	if err != nil {
		w.part.answers.fail(err)
		return err
	}
	w.part.answers.record(job.ID)
	return nil
}
