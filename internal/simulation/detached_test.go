package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/memory"
	"turnkeeper/internal/turnlog"
)

// A runningCall is a detached call that a process runs.
type runningCall struct {
	cancel context.CancelCauseFunc
	claim  turnlog.ClaimID // empty: not claimed yet
}

// callSlots is the maximum number of detached calls that a process runs at once.
const callSlots = 3

// pumpCalls fetches jobs of detached calls, gives back those it fetched but does not run, and cancels
// calls whose claim is no longer valid.
func (p *process) pumpCalls(ctx context.Context) {
	p.env.mu.Lock()
	var working []turnkeeper.JobID
	var claims []turnlog.ClaimID
	for id, c := range p.calls {
		working = append(working, id)
		if c.claim != "" {
			claims = append(claims, c.claim)
		}
	}
	draining := p.draining
	p.env.mu.Unlock()
	if len(claims) > 0 {
		p.cancelInvalid(ctx, claims)
	}
	if draining || len(working) >= callSlots {
		return
	}
	_ = p.conn.GiveBackCalls(ctx, p.id, working) // repeated at the next poll
	taken, err := p.conn.FetchCalls(ctx, p.id, callSlots-len(working))
	if err != nil {
		return
	}
	for i, job := range taken {
		go p.workCall(job, time.Duration(i))
	}
}

func (p *process) cancelInvalid(ctx context.Context, claims []turnlog.ClaimID) {
	held, err := p.conn.ClaimsHeld(ctx, claims)
	if err != nil {
		return
	}
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	for _, c := range p.calls {
		if slices.Contains(claims, c.claim) && !slices.Contains(held, c.claim) {
			c.cancel(errInvalidClaim)
		}
	}
}

var errInvalidClaim = fmt.Errorf("%w: the claim is no longer valid", turnkeeper.ErrFenced)

// workCall runs the detached call of a job, as package jobs does.
func (p *process) workCall(job memory.CallJob, after time.Duration) {
	time.Sleep(after)
	a := p.env.actor(p, kindCall, uint64(job.ID), uint64(p.n))
	ctx, cancel := context.WithCancelCause(a.in(p.ctx))
	p.env.mu.Lock()
	if p.calls[job.ID] != nil {
		p.env.mu.Unlock()
		cancel(nil)
		return
	}
	p.calls[job.ID] = &runningCall{cancel: cancel}
	p.env.mu.Unlock()
	defer func() {
		cancel(nil)
		p.env.mu.Lock()
		defer p.env.mu.Unlock()
		delete(p.calls, job.ID)
	}()
	defer func() {
		if value := recover(); value != nil { // as River does
			p.env.note(p, "panicked", "", int64(job.Ref.TurnID), int64(job.ID))
		}
	}()
	call, err := p.conn.Claim(ctx, job.Ref, p.id, detachedTools)
	if err != nil {
		p.env.note(p, "no claim", job.Ref.Key.String(), int64(job.Ref.TurnID), int64(job.ID))
		return
	}
	p.env.mu.Lock()
	p.calls[job.ID].claim = call.Claim
	p.env.mu.Unlock()
	state, err := p.runner.RunDetached(ctx, call, p.conn)
	p.env.note(p, "call "+string(state), outcomeOf(err), int64(job.Ref.TurnID), int64(job.ID))
}
