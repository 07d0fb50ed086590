package protocoltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/lease"
)

// A worker takes jobs when it is told to, and can be stopped at every fault point and killed.
type worker struct {
	env    *env
	name   string
	conn   *memory.Conn
	runner *agentturn.Runner
	ctx    context.Context
	cancel context.CancelFunc
	dead   chan struct{}
	life   sync.WaitGroup

	mu      sync.Mutex
	stopAt  string // the fault point to stop at; empty: none
	lose    string // the request whose next answer is lost; empty: none
	stopped chan struct{}
	running map[turnkeeper.GrantID]context.CancelCauseFunc
}

type workerKey struct{}

// worker returns the worker of a name.
func (e *env) worker(name string) *worker {
	w := e.workers[name]
	if w == nil {
		e.t.Fatalf("no worker %s was started", name)
	}
	return w
}

// start starts a worker.
func (e *env) start(name string) {
	w := &worker{env: e, name: name, dead: make(chan struct{}),
		running: map[turnkeeper.GrantID]context.CancelCauseFunc{}}
	w.ctx, w.cancel = context.WithCancel(context.WithValue(context.Background(), workerKey{}, w))
	w.conn = e.store.Connect(w)
	w.conn.Present(turnkeeper.WorkerID(name))
	w.runner = agentturn.New(agentturn.Config{
		Models: w, DefaultModel: scriptedModel, Tools: e.tools, Bounds: bounds.Default(), Freshness: w.conn,
		Outputs: w.conn, Fault: w,
		Retry: inference.Retry{Jitter: func() float64 { return 0.5 }},
	})
	e.workers[name] = w
	e.names = append(e.names, name)
	w.beat()
}

// many is how many turns, and how many calls, a worker runs at once.
const many = 10

// beat gives a sign of life, unless the worker is stopped or dead.
func (w *worker) beat() {
	w.mu.Lock()
	silent := w.stopped != nil || w.isDead()
	w.mu.Unlock()
	if silent {
		return
	}
	if err := w.conn.Beat(w.ctx, presence.Heartbeat{WorkerID: turnkeeper.WorkerID(w.name), Slots: many,
		TakeoverAfter: takeoverAfter}); err != nil {
		w.env.t.Error(err)
	}
}

func (w *worker) isDead() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

// work takes the jobs of turns that there are, and runs them one beside the other.
func (w *worker) work() {
	jobs, err := w.conn.Fetch(w.ctx, turnkeeper.WorkerID(w.name), many)
	if err != nil {
		w.env.t.Fatal(err)
	}
	for _, job := range jobs {
		w.env.event(w.name, "takes job %d (turn %d)", job.ID, job.TurnID)
		ctx, cancel := context.WithCancelCause(w.ctx)
		w.mu.Lock()
		w.running[job.GrantID] = cancel
		w.mu.Unlock()
		w.life.Go(func() {
			defer cancel(nil)
			outcome, err := w.run(ctx, job)
			for errors.Is(err, turnkeeper.ErrJournalMoved) {
				w.env.event(w.name, "reads the journal again")
				outcome, err = w.run(ctx, job)
			}
			if err != nil {
				w.env.event(w.name, "gives up turn %d: %v", job.TurnID, err)
				return
			}
			w.env.event(w.name, "ends its execution of turn %d: %s", job.TurnID, outcome.State)
		})
	}
}

func (w *worker) run(ctx context.Context, job memory.Job) (turnlog.Outcome, error) {
	if _, err := w.conn.BindGrant(ctx, job.TurnID, job.GrantID, turnkeeper.WorkerID(w.name)); err != nil {
		return turnlog.Outcome{}, err
	}
	asked := time.Now()
	record, err := w.conn.LoadPatiently(ctx, job.TurnID, job.GrantID)
	if err != nil {
		return turnlog.Outcome{}, err
	}
	ctx, held, release := lease.Hold(ctx, asked, record.Remaining, record.Elapsed)
	defer release()
	definition, err := agentdef.ParseRecorded(record.Turn.Agent, record.Definition)
	if err != nil {
		return turnlog.Outcome{}, err
	}
	bounds := definition.Bounds(bounds.Default())
	return w.runner.Run(ctx, agentturn.Assignment{
		Record: record, Definition: definition, Bounds: bounds,
		WallDeadline: held.Start.Add(bounds.MaxDuration), LeaseDeadline: held.Deadline,
	}, w.conn.Journal(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: job.GrantID, JobID: job.ID,
		WorkerID: turnkeeper.WorkerID(w.name),
	}))
}

// runCalls takes the jobs of detached calls that there are.
func (w *worker) runCalls() {
	jobs, err := w.conn.FetchCalls(w.ctx, turnkeeper.WorkerID(w.name), many)
	if err != nil {
		w.env.t.Fatal(err)
	}
	for _, job := range jobs {
		w.life.Go(func() {
			claimed, err := w.conn.Claim(w.ctx, job.Ref, turnkeeper.WorkerID(w.name), w.env.tools.Names())
			if err != nil {
				w.env.event(w.name, "does not get detached call %s: %v", job.Ref.Key, err)
				return
			}
			state, err := w.runner.RunDetached(w.ctx, claimed, w.conn)
			if err != nil {
				w.env.event(w.name, "stops detached call %s: %v", job.Ref.Key, err)
				return
			}
			w.env.event(w.name, "ends detached call %s: %s", job.Ref.Key, state)
		})
	}
}

// loseGrant ends the execution of a turn whose grant was taken away.
func (w *worker) loseGrant(grant turnkeeper.GrantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cancel := w.running[grant]; cancel != nil && w.stopped == nil { // a stopped worker hears nothing
		cancel(turnkeeper.ErrFenced)
	}
}

// At stops the worker at a fault point.
func (w *worker) At(_ context.Context, point string) {
	w.gate()
	w.mu.Lock()
	if point == w.stopAt {
		w.stopAt, w.stopped = "", make(chan struct{})
		w.env.event(w.name, "is stopped at %s", point)
	}
	w.mu.Unlock()
	w.gate()
}

// Carry brings a request to the store and its answer back.
func (w *worker) Carry(ctx context.Context, request string, do func() error) error {
	w.gate()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := do()
	w.gate()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lose == request {
		w.lose = ""
		w.env.event(w.name, "gets no answer to %s", request)
		return fmt.Errorf("%w: the answer to %s was lost", memory.ErrAway, request)
	}
	return err
}

// gate waits while the worker is stopped, and ends the goroutines of a dead one.
func (w *worker) gate() {
	w.mu.Lock()
	stopped := w.stopped
	w.mu.Unlock()
	if stopped != nil {
		select {
		case <-stopped:
		case <-w.dead:
		}
	}
	if w.isDead() {
		runtime.Goexit()
	}
}

// until sets the point to stop at: nothing, or "until POINT".
func (w *worker) until(args []string) *worker {
	if len(args) == 2 && args[0] == "until" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopAt = args[1]
	}
	return w
}

func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped == nil {
		w.env.t.Fatalf("%s is not stopped", w.name)
	}
	close(w.stopped)
	w.stopped = nil
}

// kill ends the worker: none of its goroutines passes another point or request.
func (w *worker) kill() {
	close(w.dead)
	w.conn.Break()
	w.cancel()
}

// end ends a worker that may be dead already.
func (w *worker) end() {
	if !w.isDead() {
		w.kill()
	}
	w.life.Wait()
}
