package turnkeepertest

import (
	"context"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/turnlog"
)

// takeCalls takes the jobs of detached calls until the process ends.
func (p *process) takeCalls() {
	taken, err := p.conn.FetchCalls(p.ctx, p.id, slots)
	if err != nil {
		return
	}
	for _, job := range taken {
		ctx, cancel := context.WithCancelCause(context.WithValue(p.ctx, processKey{}, p))
		p.mu.Lock()
		p.calls[job.ID] = &call{cancel: cancel}
		p.mu.Unlock()
		p.world.life.Go(func() {
			defer p.world.ring()
			defer p.leaveCall(job.ID)
			p.call(ctx, job)
		})
	}
}

// A call is a detached call that a process has taken.
type call struct {
	cancel context.CancelCauseFunc
	claim  turnlog.ClaimID // empty: not claimed yet
}

func (p *process) leaveCall(id turnkeeper.JobID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[id].cancel(nil)
	delete(p.calls, id)
}

const fetchTime = time.Millisecond

// call runs one attempt of a detached call.
func (p *process) call(ctx context.Context, job memory.CallJob) {
	// A real worker fetches a job a moment after its notification. The same delay here
	// makes the turn wait in every run of a scenario.
	select {
	case <-ctx.Done():
	case <-time.After(fetchTime):
	}
	claimed, err := p.conn.Claim(ctx, job.Ref, p.id, p.world.tools.Names())
	if err != nil {
		p.world.note(p, "does not get detached call %s of turn %d: %v", job.Ref.Key, job.Ref.TurnID, err)
		return
	}
	p.mu.Lock()
	p.calls[job.ID].claim = claimed.Claim
	p.mu.Unlock()
	p.world.note(p, "runs detached call %s of turn %d, attempt %d", job.Ref.Key, job.Ref.TurnID, job.Ref.Attempt)
	state, err := p.turns.RunDetached(ctx, claimed, p.conn)
	if err != nil {
		p.world.note(p, "stops detached call %s of turn %d: %v", job.Ref.Key, job.Ref.TurnID, err)
		return
	}
	p.world.note(p, "ends detached call %s of turn %d: %s", job.Ref.Key, job.Ref.TurnID, state)
}

// stopVoid stops detached calls whose claim this process has lost.
func (p *process) stopVoid() {
	p.mu.Lock()
	claims := map[turnlog.ClaimID]context.CancelCauseFunc{}
	var ids []turnlog.ClaimID
	for _, c := range p.calls {
		if c.claim != "" {
			claims[c.claim] = c.cancel
			ids = append(ids, c.claim)
		}
	}
	p.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	held, err := p.conn.ClaimsHeld(p.ctx, ids)
	if err != nil {
		return
	}
	for _, id := range held {
		delete(claims, id)
	}
	for _, cancel := range claims {
		cancel(errVoid)
	}
}

var errVoid = errors.Join(turnkeeper.ErrFenced, errors.New("the call is not awaited from this worker any more"))

// silentCalls gives up all detached calls, because other workers may have taken them
// over.
func (p *process) silentCalls(cause error) {
	for _, c := range p.calls {
		c.cancel(cause)
	}
}
