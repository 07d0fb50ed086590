package simulation_test

import (
	"cmp"
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
	"turnkeeper/internal/granting"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/lease"
	"turnkeeper/scheduler"
)

// A process is one worker process: heartbeat, scheduler, and the turns it runs. The env's lock
// guards the fields from dead on.
type process struct {
	*wire
	n        int
	id       turnkeeper.WorkerID
	conn     *memory.Conn
	slots    int
	takeover time.Duration
	drift    float64 // how much faster its clock runs than the fake time
	ctx      context.Context
	cancel   context.CancelFunc
	runner   *agentturn.Runner
	inbox    chan struct{}
	jobs     chan struct{}

	dead     bool
	draining bool
	thaw     time.Time // stopped until then
	stops    int       // number of stops so far
	reserved int       // slots reserved for ticks so far
	fetching int       // slots reserved for the fetch in progress
	running  map[turnkeeper.GrantID]*dispatch
	calls    map[turnkeeper.JobID]*runningCall
}

// A dispatch is a turn that a process runs.
type dispatch struct {
	job    memory.Job
	ctx    context.Context
	cancel context.CancelCauseFunc
	stops  int // of its process when the turn began
	// the turn that the process's scheduler has handed over; nil: there is none yet, or River's queue has it
	handed *granting.Handed
}

// boot starts another process.
func (e *env) boot() *process {
	e.mu.Lock()
	n := len(e.processes) + 1
	p := &process{
		n: n, id: turnkeeper.WorkerID(fmt.Sprintf("w%d", n)), inbox: make(chan struct{}, 1),
		jobs:    make(chan struct{}, 1),
		running: map[turnkeeper.GrantID]*dispatch{}, calls: map[turnkeeper.JobID]*runningCall{},
	}
	p.wire = &wire{e, p}
	e.processes = append(e.processes, p)
	e.count(1)
	e.mu.Unlock()
	a := e.actor(p, kindBoot, uint64(n))
	p.slots, p.takeover = 1+a.IntN(4), e.profile.takeover
	p.drift = a.Float64()*2*e.profile.drift - e.profile.drift
	p.conn = e.store.Connect(p.wire)
	p.conn.Present(p.id)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.runner = e.newRunner(p)
	e.note(p, "boot", "", int64(p.slots), 0)
	go p.run(a)
	return p
}

func (e *env) newRunner(p *process) *agentturn.Runner {
	return agentturn.New(agentturn.Config{
		Models: p, DefaultModel: simulatedModel, Tools: e.tools(), Bounds: patient(), Freshness: p.conn,
		Outputs: p.conn, Fault: p,
		Retry: inference.Retry{Jitter: func() float64 { return 0.5 }},
	})
}

// run starts the parts of a process and runs its scheduler.
func (p *process) run(a *actor) {
	ctx := a.in(p.ctx)
	heart := lease.NewHeart(p.beat, p.takeover, zap.NewNop())
	for {
		err := p.conn.RegisterAgents(ctx, p.env.agents())
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
	go heart.Run(p.env.actor(p, kindHeartbeat, n).in(p.ctx), func(cause error) {
		p.env.note(p, "silent", "", 0, 0)
		p.stopTurns(cause)
	})
	go p.pump(p.env.actor(p, kindPump, n))
	scheduling := p.env.actor(p, kindScheduler, n).in(p.ctx)
	scheduler.New(scheduler.Config{
		Local: p, Store: p.conn, Wake: p.inbox, PollInterval: p.env.profile.poll,
		LeaseTTL: patient().LeaseTTL, Fault: p,
	}).Run(scheduling)
}

func (p *process) beat(ctx context.Context) error {
	p.env.mu.Lock()
	slots := p.slots
	if p.draining {
		slots = 0
	}
	p.env.mu.Unlock()
	if a := actorOf(ctx); !p.env.isQuiet() && a.chance(p.env.profile.beatsLost) {
		return fmt.Errorf("%w: a heartbeat was lost", memory.ErrAway)
	}
	return p.conn.Beat(ctx, presence.Heartbeat{WorkerID: p.id, Host: "sim", Slots: slots, TakeoverAfter: p.takeover})
}

// receive handles a doorbell.
func (p *process) receive(b memory.Bell) {
	if b.Topic == memory.TopicTaken {
		p.env.mu.Lock()
		defer p.env.mu.Unlock()
		if d := p.running[b.Grant]; d != nil {
			d.cancel(errTakenAway)
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

var errTakenAway = fmt.Errorf("%w: its grant was taken away", turnkeeper.ErrFenced)

// gate is called before and after everything a process does to others. It ends the goroutine of a
// dead process, and waits while the process is stopped.
func (p *process) gate(a *actor) {
	for {
		p.env.mu.Lock()
		dead, wait := p.dead, time.Until(p.thaw)
		p.env.mu.Unlock()
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
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	return p.dead
}

// kill acts like SIGKILL: goroutines of the process end at their next gate, and the database rolls
// back its open transactions.
func (p *process) kill(why string) {
	p.env.mu.Lock()
	again := p.dead
	p.dead = true
	if !again {
		p.env.count(-1)
	}
	p.env.mu.Unlock()
	if again {
		return
	}
	p.env.note(p, "killed", why, 0, 0)
	p.cancel()
	p.conn.Break()
}

// freeze acts like SIGSTOP, and SIGCONT after d.
func (p *process) freeze(d time.Duration, why string) {
	p.env.mu.Lock()
	p.thaw = time.Now().Add(d)
	p.stops++
	p.env.mu.Unlock()
	p.env.note(p, "stopped", why, int64(d/time.Second), 0)
}

// stopTurns cancels every running turn and detached call with the cause.
func (p *process) stopTurns(cause error) {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	for _, d := range p.running {
		d.cancel(cause)
	}
	for _, c := range p.calls {
		c.cancel(cause)
	}
}

func (p *process) busy() int {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	return len(p.running) + len(p.calls)
}

// shutDown acts like SIGTERM: no new turns, a grace period for running turns, then they are handed back.
func (p *process) shutDown(a *actor) {
	p.env.mu.Lock()
	p.draining = true
	p.env.mu.Unlock()
	p.env.note(p, "sigterm", "", 0, 0)
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

// pump fetches jobs at each doorbell and poll.
func (p *process) pump(a *actor) {
	ctx := a.in(p.ctx)
	for p.ctx.Err() == nil {
		timer := time.NewTimer(a.between(p.env.profile.jobPoll/2, p.env.profile.jobPoll))
		select {
		case <-p.jobs:
		case <-timer.C:
		case <-p.ctx.Done():
		}
		timer.Stop()
		p.pumpCalls(ctx)
		p.env.mu.Lock()
		free := max(0, p.slots-len(p.running))
		if p.draining {
			free = 0
		}
		p.fetching = free
		p.env.mu.Unlock()
		if free == 0 {
			continue
		}
		taken, err := p.conn.Fetch(ctx, p.id, free)
		p.env.mu.Lock()
		p.fetching = 0
		p.env.mu.Unlock()
		if err != nil {
			continue
		}
		for i, job := range taken {
			go p.work(job, nil, time.Duration(i))
		}
	}
}

// Reserve implements scheduler.Local, as package jobs does.
func (p *process) Reserve(n int) (turnkeeper.WorkerID, []turnkeeper.GrantID) {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	var grants []turnkeeper.GrantID
	for p.env.profile.handOver && !p.draining && len(grants) < n && len(p.running)+p.fetching < p.slots {
		p.reserved++
		grant := turnkeeper.GrantID(fmt.Sprintf("00000000-0000-4000-9%03x-%012x", p.n, p.reserved))
		ctx, cancel := context.WithCancelCause(p.ctx)
		p.running[grant] = &dispatch{ctx: ctx, cancel: cancel}
		grants = append(grants, grant)
	}
	return p.id, grants
}

// Start implements scheduler.Local.
func (p *process) Start(turns []granting.Handed) {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	for i, turn := range turns {
		d := p.running[turn.GrantID]
		if d == nil { // a bug has put its job into the queue too, and it has run from there
			continue
		}
		d.job, d.stops, d.handed = memory.Job{TurnID: turn.TurnID, GrantID: turn.GrantID}, p.stops, &turn
		go p.work(d.job, d, time.Duration(i))
	}
}

// Release implements scheduler.Local.
func (p *process) Release(grants []turnkeeper.GrantID) {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	for _, grant := range grants {
		if d := p.running[grant]; d != nil && d.handed == nil {
			d.cancel(nil)
			delete(p.running, grant)
		}
	}
}

// work runs the turn of a job, or the one that was handed over, as package jobs does.
func (p *process) work(job memory.Job, handed *dispatch, after time.Duration) {
	time.Sleep(after)
	a := p.env.actor(p, kindTurn, cmp.Or(uint64(job.ID), uint64(job.TurnID)<<32), uint64(p.n))
	d := handed
	if d == nil {
		if d = p.enter(job); d == nil {
			return
		}
	}
	defer p.leave(d)
	ctx, cancel := context.WithTimeout(a.in(d.ctx), patient().LeaseTTL-patient().Margin/2)
	defer cancel()
	defer func() {
		if value := recover(); value != nil { // as River does
			p.env.note(p, "panicked", "", int64(job.TurnID), int64(job.ID))
		}
	}()
	turn := d.handed
	for range 5 {
		err := p.dispatch(ctx, job, turn)
		turn = nil
		p.env.note(p, "turn", outcomeOf(err), int64(job.TurnID), int64(job.ID))
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

// enter records that the grant of a job runs here. It returns nil if it already does.
func (p *process) enter(job memory.Job) *dispatch {
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	if p.running[job.GrantID] != nil && !p.env.mutation.forgetsRuns {
		return nil
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.running[job.GrantID] = &dispatch{job: job, ctx: ctx, cancel: cancel, stops: p.stops}
	return p.running[job.GrantID]
}

func (p *process) leave(d *dispatch) {
	d.cancel(nil)
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	delete(p.running, d.job.GrantID)
}

// load returns the turn's record and when it was read. It binds the grant, unless it was handed over.
func (p *process) load(ctx context.Context, job memory.Job,
	handed *granting.Handed) (record *turnlog.Record, read time.Time, err error) {
	if handed != nil {
		record, err = handed.Load(ctx)
		return record, handed.Read, err
	}
	if _, err := p.conn.BindGrant(ctx, job.TurnID, job.GrantID, p.id); err != nil {
		return record, read, err
	}
	read = time.Now()
	record, err = p.conn.LoadPatiently(ctx, job.TurnID, job.GrantID)
	return record, read, err
}

// dispatch loads the turn and continues it.
func (p *process) dispatch(ctx context.Context, job memory.Job, handed *granting.Handed) error {
	record, asked, err := p.load(ctx, job, handed)
	if err != nil {
		return err
	}
	turn := record.Turn
	defer p.env.checkWorker(p, turn)()
	remaining, elapsed := p.byOwnClock(record.Remaining), p.byOwnClock(record.Elapsed)
	if p.env.mutation.lateClock {
		asked, remaining, elapsed = time.Now(), patient().LeaseTTL, 0
	}
	ctx, held, release := lease.Hold(ctx, asked, remaining, elapsed)
	defer release()
	definition, err := agentdef.ParseRecorded(turn.Agent, record.Definition)
	if err != nil {
		p.env.report("the definition of agent %s: %v", turn.Agent, err)
		return err
	}
	own := definition.Bounds(patient())
	p.env.mutation.misreads.apply(record)
	journal := p.conn.Journal(record, turnkeeper.Grant{
		TurnID: turn.ID, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID, JobID: job.ID, WorkerID: p.id,
	})
	_, err = p.runner.Run(ctx, agentturn.Assignment{
		Record: record, Definition: definition, Bounds: own,
		WallDeadline: held.Start.Add(own.MaxDuration), LeaseDeadline: held.Deadline,
	}, p.env.mutation.wrap(journal))
	return err
}

// byOwnClock returns how long d of the process's clock takes in fake time: longer if its clock is slow.
func (p *process) byOwnClock(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + p.drift))
}

// At implements fault.Hook: it may kill, stop, delay or panic the process at the fault point.
func (p *process) At(ctx context.Context, label string) {
	a := actorOf(ctx)
	p.gate(a)
	if !p.env.visit(label) {
		return
	}
	switch draw := a.Float64(); {
	case draw < p.env.profile.kills:
		a.apart()
		p.kill(label)
		runtime.Goexit()
	case draw < p.env.profile.kills+p.env.profile.freezes:
		a.apart()
		p.freeze(a.between(time.Second, 400*time.Second), label)
		p.gate(a)
	case draw < p.env.profile.kills+p.env.profile.freezes+p.env.profile.stalls:
		a.apart()
		p.env.note(p, "stalled", label, 0, 0)
		time.Sleep(a.between(0, 5*time.Second))
		p.gate(a)
	case draw < p.env.profile.kills+p.env.profile.freezes+p.env.profile.stalls+p.env.profile.panics &&
		!strings.HasPrefix(label, "tick."):
		panic("on purpose at " + label)
	}
}
