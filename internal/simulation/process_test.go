package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/memory"
	"turnkeeper/lease"
	"turnkeeper/scheduler"
)

// A process is one worker process: heart, scheduler, and the turns it runs. Its
// life is guarded by the world's lock.
type process struct {
	*wire
	n        int
	id       turnkeeper.WorkerID
	conn     *memory.Conn
	slots    int
	takeover time.Duration
	drift    float64 // how much faster its clock runs than the bubble's
	ctx      context.Context
	cancel   context.CancelFunc
	runner   *agentturn.Runner
	inbox    chan struct{}
	jobs     chan struct{}

	dead     bool
	draining bool
	thaw     time.Time // it is stopped until then
	stops    int       // how often it was stopped
	running  map[turnkeeper.GrantID]*dispatch
	calls    map[turnkeeper.JobID]*farCall
}

// A dispatch is a turn that a process runs.
type dispatch struct {
	job    memory.Job
	cancel context.CancelCauseFunc
	stops  int // of its process, when it began
}

// boot starts another process.
func (w *world) boot() *process {
	w.mu.Lock()
	n := len(w.processes) + 1
	p := &process{
		n: n, id: turnkeeper.WorkerID(fmt.Sprintf("w%d", n)), inbox: make(chan struct{}, 1), jobs: make(chan struct{}, 1),
		running: map[turnkeeper.GrantID]*dispatch{}, calls: map[turnkeeper.JobID]*farCall{},
	}
	p.wire = &wire{w, p}
	w.processes = append(w.processes, p)
	w.count(1)
	w.mu.Unlock()
	a := w.actor(p, kindBoot, uint64(n))
	p.slots, p.takeover = 1+a.IntN(4), w.profile.takeover
	p.drift = a.Float64()*2*w.profile.drift - w.profile.drift
	p.conn = w.store.Connect(p.wire)
	p.conn.Present(p.id)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.runner = w.newRunner(p)
	w.note(p, "boot", "", int64(p.slots), 0)
	go p.run(a)
	return p
}

func (w *world) newRunner(p *process) *agentturn.Runner {
	return agentturn.New(agentturn.Config{
		Models: p, DefaultModel: simulatedModel, Tools: w.plant.tools(), Bounds: bounds(), Freshness: p.conn, Outputs: p.conn, Fault: p,
		Retry: inference.Retry{Jitter: func() float64 { return 0.5 }},
	})
}

// run brings a process up, and leaves its parts running.
func (p *process) run(a *actor) {
	ctx := a.in(p.ctx)
	heart := lease.NewHeart(p.beat, p.takeover, zap.NewNop())
	for {
		err := p.conn.RegisterAgents(ctx, p.w.agents())
		if err == nil {
			err = heart.Beat(ctx)
		}
		if err == nil {
			break
		}
		if !sleep(ctx, time.Second) {
			return
		}
	}
	n := uint64(p.n)
	go heart.Run(p.w.actor(p, kindHeart, n).in(p.ctx), func() {
		p.w.note(p, "silent", "", 0, 0)
		p.stopTurns(lease.ErrSilent)
	})
	go p.pump(p.w.actor(p, kindPump, n))
	scheduling := p.w.actor(p, kindScheduler, n).in(p.ctx)
	scheduler.New(scheduler.Config{
		Store: p.conn, Wake: p.inbox, PollInterval: p.w.profile.poll, LeaseTTL: bounds().LeaseTTL, Fault: p,
	}).Run(scheduling)
}

func (p *process) beat(ctx context.Context) error {
	p.w.mu.Lock()
	slots := p.slots
	if p.draining {
		slots = 0
	}
	p.w.mu.Unlock()
	if a := actorOf(ctx); !p.w.isCalm() && a.chance(p.w.profile.beatsLost) {
		return fmt.Errorf("%w: a heartbeat was lost", memory.ErrAway)
	}
	return p.conn.Beat(ctx, turnkeeper.Heartbeat{WorkerID: p.id, Host: "sim", Slots: slots, TakeoverAfter: p.takeover})
}

// hear is a doorbell at the process's door.
func (p *process) hear(b memory.Bell) {
	if b.Topic == memory.TopicCancelled {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		for _, d := range p.running {
			if d.job.ID == b.Job {
				d.cancel(errTakenAway)
			}
		}
		return
	}
	bell := p.inbox
	if b.Topic == memory.TopicJobs {
		bell = p.jobs
	}
	select {
	case bell <- struct{}{}:
	default:
	}
}

var errTakenAway = fmt.Errorf("%w: its job was cancelled", turnkeeper.ErrFenced)

// gate is passed before and after whatever a process does outside of itself:
// there it dies, and there it stands while it is stopped.
func (p *process) gate(a *actor) {
	for {
		p.w.mu.Lock()
		dead, wait := p.dead, time.Until(p.thaw)
		p.w.mu.Unlock()
		if dead {
			runtime.Goexit()
		}
		if wait <= 0 {
			return
		}
		time.Sleep(wait)
		a.apart()
	}
}

func (p *process) isDead() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.dead
}

// kill is SIGKILL: its goroutines end where they next stand, and the database
// undoes what it has under way.
func (p *process) kill(why string) {
	p.w.mu.Lock()
	again := p.dead
	p.dead = true
	if !again {
		p.w.count(-1)
	}
	p.w.mu.Unlock()
	if again {
		return
	}
	p.w.note(p, "killed", why, 0, 0)
	p.cancel()
	p.conn.Break()
}

// freeze is SIGSTOP, and SIGCONT after d.
func (p *process) freeze(d time.Duration, why string) {
	p.w.mu.Lock()
	p.thaw = time.Now().Add(d)
	p.stops++
	p.w.mu.Unlock()
	p.w.note(p, "stopped", why, int64(d/time.Second), 0)
}

// stopTurns ends every turn that runs, with the cause.
func (p *process) stopTurns(cause error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, d := range p.running {
		d.cancel(cause)
	}
	for _, c := range p.calls {
		c.cancel(cause)
	}
}

func (p *process) busy() int {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return len(p.running) + len(p.calls)
}

// shutDown is SIGTERM: no new turns, a grace for those that run, then they are
// handed back.
func (p *process) shutDown(a *actor) {
	p.w.mu.Lock()
	p.draining = true
	p.w.mu.Unlock()
	p.w.note(p, "sigterm", "", 0, 0)
	ctx := a.in(p.ctx)
	_ = p.beat(ctx)
	for deadline := time.Now().Add(25 * time.Second); p.busy() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Second)
	}
	p.stopTurns(agentturn.ErrShutdown)
	for deadline := time.Now().Add(10 * time.Second); p.busy() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Second)
	}
	_ = p.conn.StopBeating(ctx, p.id)
	p.kill("after sigterm")
}

// pump takes jobs, on their doorbell and on a poll.
func (p *process) pump(a *actor) {
	ctx := a.in(p.ctx)
	for p.ctx.Err() == nil {
		timer := time.NewTimer(a.between(p.w.profile.jobPoll/2, p.w.profile.jobPoll))
		select {
		case <-p.jobs:
		case <-timer.C:
		case <-p.ctx.Done():
		}
		timer.Stop()
		p.pumpCalls(ctx)
		p.w.mu.Lock()
		free := p.slots - len(p.running)
		if p.draining {
			free = 0
		}
		p.w.mu.Unlock()
		if free <= 0 {
			continue
		}
		taken, err := p.conn.Fetch(ctx, p.id, free)
		if err != nil {
			continue
		}
		for i, job := range taken {
			go p.work(job, time.Duration(i))
		}
	}
}

// work runs the turn that a job rings for, as package jobs does.
func (p *process) work(job memory.Job, after time.Duration) {
	time.Sleep(after)
	a := p.w.actor(p, kindTurn, uint64(job.ID), uint64(p.n))
	ctx, cancel := context.WithTimeout(a.in(p.ctx), bounds().LeaseTTL-bounds().Margin/2)
	defer cancel()
	ctx, leave, first := p.enter(ctx, job)
	if !first {
		return
	}
	defer leave()
	defer func() {
		if value := recover(); value != nil { // as River does
			p.w.note(p, "panicked", "", int64(job.TurnID), int64(job.ID))
		}
	}()
	for range 5 {
		err := p.dispatch(ctx, job)
		p.w.note(p, "turn", outcomeOf(err), int64(job.TurnID), int64(job.ID))
		if !errors.Is(err, turnkeeper.ErrJournalMoved) {
			return
		}
	}
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ended"
	case errors.Is(err, turnkeeper.ErrFenced):
		return "fenced"
	case errors.Is(err, turnkeeper.ErrJournalMoved):
		return "moved"
	default:
		return "left"
	}
}

func (p *process) enter(ctx context.Context, job memory.Job) (_ context.Context, leave func(), first bool) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.running[job.GrantID] != nil {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.running[job.GrantID] = &dispatch{job: job, cancel: cancel, stops: p.stops}
	return ctx, func() {
		cancel(nil)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		delete(p.running, job.GrantID)
	}, true
}

// dispatch goes on with a turn from what its journal says.
func (p *process) dispatch(ctx context.Context, job memory.Job) error {
	if _, err := p.conn.BindGrant(ctx, job.TurnID, job.GrantID, p.id); err != nil {
		return err
	}
	asked := time.Now()
	record, err := p.conn.LoadPatiently(ctx, job.TurnID, job.GrantID)
	if err != nil {
		return err
	}
	turn := record.Turn
	p.w.checkWorker(p, turn)
	remaining, elapsed := p.byOwnClock(record.Remaining), p.byOwnClock(record.Elapsed)
	if p.w.plant.fromWork {
		asked, remaining, elapsed = time.Now(), bounds().LeaseTTL, 0
	}
	ctx, held, release := lease.Hold(ctx, asked, remaining, elapsed)
	defer release()
	definition, err := agentdef.ParseRecorded(turn.Agent, record.Definition)
	if err != nil {
		p.w.violated("the definition of agent %s: %v", turn.Agent, err)
		return err
	}
	own := definition.Bounds(bounds())
	journal := p.conn.Journal(record, turnkeeper.Grant{
		TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID, JobID: job.ID, WorkerID: p.id,
	})
	_, err = p.runner.Run(ctx, agentturn.Assignment{
		Record: record, Definition: definition, Bounds: own,
		WallDeadline: held.Start.Add(own.MaxDuration), LeaseDeadline: held.Deadline,
	}, p.w.plant.faulty(journal))
	return err
}

// byOwnClock is a span as the process's clock would have to count it to end when
// it does: a slow clock makes every span longer.
func (p *process) byOwnClock(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + p.drift))
}

// At is where a turn, or a tick, stands between two steps.
func (p *process) At(ctx context.Context, label string) {
	a := actorOf(ctx)
	p.gate(a)
	if !p.w.mayFail(label) {
		return
	}
	switch draw := a.Float64(); {
	case draw < p.w.profile.kills:
		a.apart()
		p.kill(label)
		runtime.Goexit()
	case draw < p.w.profile.kills+p.w.profile.freezes:
		a.apart()
		p.freeze(a.between(time.Second, 400*time.Second), label)
		p.gate(a)
	case draw < p.w.profile.kills+p.w.profile.freezes+p.w.profile.stalls:
		a.apart()
		p.w.note(p, "stalled", label, 0, 0)
		time.Sleep(a.between(0, 5*time.Second))
		p.gate(a)
	case draw < p.w.profile.kills+p.w.profile.freezes+p.w.profile.stalls+p.w.profile.panics && !strings.HasPrefix(label, "tick."):
		panic("on purpose at " + label)
	}
}
