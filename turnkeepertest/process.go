package turnkeepertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/lease"
	"turnkeeper/policy"
	"turnkeeper/scheduler"
)

// A process is a worker with all its roles: the real scheduler, heartbeat, leases and
// runner, over its own connection. It can be killed and stopped at every point and every
// request.
type process struct {
	world *world
	id    turnkeeper.WorkerID
	conn  *memory.Conn
	heart *lease.Heart
	turns *agentturn.Runner
	bell  chan struct{} // signals that there may be a job to take
	inbox chan struct{} // signals that there may be something to schedule

	ctx    context.Context // ends when the process does
	cancel context.CancelCauseFunc
	dead   chan struct{}

	mu      sync.Mutex
	awake   chan struct{} // closed when the process resumes; nil: it is not stopped
	killed  bool
	running map[turnkeeper.GrantID]context.CancelCauseFunc
	calls   map[turnkeeper.JobID]*call
}

// slots is the number of turns a worker runs at once.
const slots = 4

var errKilled = errors.New("the worker was killed")

// start starts a new process.
func (w *world) start() {
	p := &process{
		world: w, bell: make(chan struct{}, 1), inbox: make(chan struct{}, 1), dead: make(chan struct{}),
		running: map[turnkeeper.GrantID]context.CancelCauseFunc{}, calls: map[turnkeeper.JobID]*call{},
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.conn = w.store.Connect(p)
	p.heart = lease.NewHeart(p.beat, w.takeover, zap.NewNop())
	p.turns = agentturn.New(agentturn.Config{
		Models: w.model, DefaultModel: defaultModel, Tools: w.tools, More: fakeServers{w.tools},
		Bounds:  bounds.Default(),
		Outputs: p.conn, Extractions: p.conn, Fault: p, Rules: &policy.Cache{Compiler: w.scenario.Rules},
	})
	w.join(p)
	p.conn.Present(p.id)
	w.note(p, "starts")
	w.life.Go(func() {
		if err := p.heart.Beat(p.ctx); err != nil {
			return // it was killed, or the run has ended
		}
		w.life.Go(func() { p.heart.Run(p.ctx, p.silent) })
		w.life.Go(func() {
			scheduler.New(scheduler.Config{Store: p.conn, Wake: p.inbox, LeaseTTL: bounds.Default().LeaseTTL}).Run(
				p.ctx)
		})
		p.work()
	})
}

func (p *process) beat(ctx context.Context) error {
	return p.conn.Beat(ctx, presence.Heartbeat{WorkerID: p.id, Slots: slots, TakeoverAfter: p.world.takeover})
}

// afterWaking is how long a resumed worker goes on before its heartbeat reports that it
// was silent for too long. It is not 0 because a worker that still works meanwhile is the
// harder case.
const afterWaking = time.Millisecond

// silent gives up all turns, because other workers may have taken them over.
func (p *process) silent(cause error) {
	p.gate()
	timer := time.NewTimer(afterWaking)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.running {
		cancel(cause)
	}
	p.silentCalls(cause)
}

// work takes jobs until the process ends.
func (p *process) work() {
	const poll = time.Second
	for p.ctx.Err() == nil {
		taken, err := p.conn.Fetch(p.ctx, p.id, slots)
		if err == nil {
			for _, job := range taken {
				p.take(job)
			}
		}
		p.takeCalls()
		p.stopVoid()
		timer := time.NewTimer(poll)
		select {
		case <-p.ctx.Done():
		case <-p.bell:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *process) take(job memory.Job) {
	ctx, cancel := context.WithCancelCause(context.WithValue(p.ctx, processKey{}, p))
	p.mu.Lock()
	p.running[job.GrantID] = cancel
	p.mu.Unlock()
	p.world.life.Go(func() {
		defer p.world.ring()
		defer p.leave(job.GrantID)
		p.turn(ctx, job)
	})
}

func (p *process) leave(grant turnkeeper.GrantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[grant](nil)
	delete(p.running, grant)
}

// reloads is how often a worker reads the journal of a turn again after ErrJournalMoved.
const reloads = 5

// turn runs one dispatch of a turn.
func (p *process) turn(ctx context.Context, job memory.Job) {
	for range reloads {
		outcome, err := p.dispatch(ctx, job)
		switch {
		case errors.Is(err, turnkeeper.ErrJournalMoved):
			p.world.note(p, "reads the journal of turn %d again", job.TurnID)
			continue
		case err != nil:
			p.world.note(p, "stops working on turn %d: %v", job.TurnID, err)
		default:
			p.world.note(p, "ends its dispatch of turn %d: %s", job.TurnID, outcome.State)
		}
		return
	}
	p.world.problem("the journal of turn %d kept moving under worker %s", job.TurnID, p.id)
}

func (p *process) dispatch(ctx context.Context, job memory.Job) (turnlog.Outcome, error) {
	if _, err := p.conn.BindGrant(ctx, job.TurnID, job.GrantID, p.id); err != nil {
		return turnlog.Outcome{}, err
	}
	asked := time.Now()
	record, err := p.conn.LoadPatiently(ctx, job.TurnID, job.GrantID)
	if err != nil {
		return turnlog.Outcome{}, err
	}
	p.world.note(p, "takes turn %d, dispatch %d", job.TurnID, record.Turn.Dispatches)
	ctx, held, release := lease.Hold(ctx, asked, record.Remaining, record.Elapsed)
	defer release()
	limits := p.world.agent.Bounds(bounds.Default())
	journal := p.conn.Journal(record, turnkeeper.Grant{
		TurnID: record.Turn.ID, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: record.Turn.GrantID,
		JobID: job.ID, WorkerID: p.id,
	})
	return p.turns.Run(context.WithValue(ctx, turnKey{}, record.Turn), agentturn.Assignment{
		Record: record, Definition: p.world.agent, Bounds: limits,
		WallDeadline: held.Start.Add(limits.MaxDuration), LeaseDeadline: held.Deadline,
	}, journal)
}

type turnKey struct{} // value: turnkeeper.Turn

// At handles a labelled point. Every goroutine of the process that passes one calls it.
func (p *process) At(_ context.Context, point string) {
	p.gate()
	switch p.world.pass(p, point) {
	case crash:
		p.kill(point)
		runtime.Goexit()
	case pause:
		p.stop(point)
		p.gate()
	case lose: // only requests can lose an answer
	}
}

// Carry runs a request to the store, and may lose its answer.
func (p *process) Carry(ctx context.Context, request string, do func() error) error {
	p.gate()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := do()
	p.gate()
	if losable[request] && p.world.asked(p, request) {
		return fmt.Errorf("%w: the answer to %s was lost", memory.ErrAway, request)
	}
	return err
}

// gate blocks while the process is stopped, and ends the calling goroutine if the process
// is dead.
func (p *process) gate() {
	p.mu.Lock()
	awake := p.awake
	p.mu.Unlock()
	if awake != nil {
		select {
		case <-awake:
		case <-p.ctx.Done():
		}
	}
	select {
	case <-p.dead:
		runtime.Goexit()
	default:
	}
}

// kill ends the process as SIGKILL does. Goroutines cannot be killed, so each is only
// kept from passing another point or request.
func (p *process) kill(where string) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	close(p.dead)
	p.mu.Unlock()
	p.world.note(p, "IS KILLED at %s", where)
	p.conn.Break()
	p.cancel(errKilled)
	p.world.start()
}

// stop stops the process as SIGSTOP does. Each goroutine stops at its next point or
// request.
func (p *process) stop(where string) {
	p.mu.Lock()
	if p.awake == nil {
		p.awake = make(chan struct{})
	}
	p.mu.Unlock()
	p.world.note(p, "IS PAUSED at %s", where)
	p.world.start()
	p.world.ring() // nothing else may happen to the message
}

func (p *process) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awake != nil {
		p.world.note(p, "WAKES")
		close(p.awake)
		p.awake = nil
	}
}

// busy reports whether a turn runs in the process.
func (p *process) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.killed && len(p.running)+len(p.calls) > 0
}
