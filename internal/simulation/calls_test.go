package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/memory"
)

// A farCall is a detached call that a process has taken.
type farCall struct {
	cancel context.CancelCauseFunc
	claim  turnkeeper.ClaimID // empty: not claimed yet
}

// farSlots is how many detached calls a process runs at once.
const farSlots = 3

// pumpCalls takes jobs of detached calls, gives back what was overlooked, and
// stops what is not awaited any more.
func (p *process) pumpCalls(ctx context.Context) {
	p.w.mu.Lock()
	var working []turnkeeper.JobID
	var claims []turnkeeper.ClaimID
	for id, c := range p.calls {
		working = append(working, id)
		if c.claim != "" {
			claims = append(claims, c.claim)
		}
	}
	draining := p.draining
	p.w.mu.Unlock()
	if len(claims) > 0 {
		p.stopVoid(ctx, claims)
	}
	if draining || len(working) >= farSlots {
		return
	}
	_ = p.conn.GiveBackCalls(ctx, p.id, working) // it is done again
	taken, err := p.conn.FetchCalls(ctx, p.id, farSlots-len(working))
	if err != nil {
		return
	}
	for i, job := range taken {
		go p.workCall(job, time.Duration(i))
	}
}

func (p *process) stopVoid(ctx context.Context, claims []turnkeeper.ClaimID) {
	held, err := p.conn.ClaimsHeld(ctx, claims)
	if err != nil {
		return
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, c := range p.calls {
		if slices.Contains(claims, c.claim) && !slices.Contains(held, c.claim) {
			c.cancel(errVoid)
		}
	}
}

var errVoid = fmt.Errorf("%w: the call is not awaited any more", turnkeeper.ErrFenced)

// workCall runs the detached call that a job rings for, as package jobs does.
func (p *process) workCall(job memory.CallJob, after time.Duration) {
	time.Sleep(after)
	a := p.w.actor(p, kindCall, uint64(job.ID), uint64(p.n))
	ctx, cancel := context.WithCancelCause(a.in(p.ctx))
	p.w.mu.Lock()
	if p.calls[job.ID] != nil {
		p.w.mu.Unlock()
		cancel(nil)
		return
	}
	p.calls[job.ID] = &farCall{cancel: cancel}
	p.w.mu.Unlock()
	defer func() {
		cancel(nil)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		delete(p.calls, job.ID)
	}()
	defer func() {
		if value := recover(); value != nil { // as River does
			p.w.note(p, "panicked", "", int64(job.Ref.TurnID), int64(job.ID))
		}
	}()
	call, err := p.conn.Claim(ctx, job.Ref, p.id, farTools)
	if err != nil {
		p.w.note(p, "no claim", job.Ref.Key.String(), int64(job.Ref.TurnID), int64(job.ID))
		return
	}
	p.w.mu.Lock()
	p.calls[job.ID].claim = call.Claim
	p.w.mu.Unlock()
	state, err := p.runner.RunDetached(ctx, call, p.conn)
	p.w.note(p, "call "+string(state), outcomeOf(err), int64(job.Ref.TurnID), int64(job.ID))
}
