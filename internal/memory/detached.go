package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
)

// An awaitedRow is an awaited call: its result once that arrives, and the state of its
// run.
type awaitedRow struct {
	key       turnkeeper.CallKey
	nonce     string
	arrived   *turnlog.CallResult // nil: not yet
	arrivedAt time.Time
	closed    bool // the journal has an answer
	attempt   int
	limit     time.Duration
	deadline  time.Time // for the claim, and after it for the run
	job       turnkeeper.JobID
	claim     turnlog.ClaimID
	worker    turnkeeper.WorkerID
	claimedAt time.Time
	losses    int
	ended     bool
	spawned   bool // the result is a sub-agent's reply; there is no job
}

// A CallJob asks a worker to run a detached call.
type CallJob struct {
	ID  turnkeeper.JobID
	Ref turnlog.CallRef
}

type callJobRow struct {
	CallJob
	state       string // available, running or over
	attemptedBy turnkeeper.WorkerID
	attemptedAt time.Time
}

func (t *turnRow) await(key turnkeeper.CallKey) *awaitedRow {
	for i := range t.awaited {
		if t.awaited[i].key == key {
			return &t.awaited[i]
		}
	}
	return nil
}

// mayWait reports whether results or answers are awaited, and none has come that the turn has not seen.
func (t *turnRow) mayWait() bool {
	asks, unseen := t.asksPerson()
	open := slices.DeleteFunc(slices.Clone(t.awaited), func(a awaitedRow) bool { return a.closed })
	return !unseen && (asks || len(open) > 0) && !slices.ContainsFunc(open, func(a awaitedRow) bool {
		return a.arrived != nil
	})
}

func (t *turnRow) closeAwaited(key turnkeeper.CallKey) {
	if a := t.await(key); a != nil {
		a.closed, a.ended = true, true
	}
}

// settleArrived answers calls with the results that have arrived.
func (t *turnRow) settleArrived(now time.Time) {
	for i := range t.awaited {
		a := &t.awaited[i]
		call := t.call(a.key)
		if a.arrived == nil || a.closed || call.State != turnkeeper.CallRunning {
			continue
		}
		settle(call, a.arrived.State, a.arrived.Preview, now)
		call.Duration = a.arrived.Duration
		if call.State == turnkeeper.CallUnknown {
			t.verdicts = append(t.verdicts, call.Key)
		}
		t.closeAwaited(a.key)
	}
}

// detach queues a call that was just started, for any worker to run.
func (s *Store) detach(t *turnRow, call *turnkeeper.ToolCall, limit time.Duration) {
	call.Awaited = true
	t.awaited = append(t.awaited, awaitedRow{
		key: call.Key, nonce: call.Nonce, attempt: 1, limit: limit, deadline: s.now().Add(turnkeeper.MaxDetachedWait),
		job: s.state.ringCall(turnlog.CallRef{TurnID: t.ID, Key: call.Key, Attempt: 1}),
	})
}

func (s *state) ringCall(ref turnlog.CallRef) turnkeeper.JobID {
	id := turnkeeper.JobID(len(s.calls) + 1)
	s.calls = append(s.calls, &callJobRow{CallJob: CallJob{id, ref}, state: "available"})
	return id
}

// Arrivals returns the results that have arrived and are not in the journal yet.
func (j *Journal) Arrivals(ctx context.Context) (arrived []turnlog.CallResult, err error) {
	err = patiently(ctx, func() error {
		arrived = nil
		return j.conn.ask(ctx, "arrivals", func() error {
			j.s.mu.Lock()
			defer j.s.mu.Unlock()
			for _, a := range j.s.state.turn(j.grant.TurnID).awaited {
				if a.arrived != nil && !a.closed {
					result := *a.arrived
					result.Spawned = j.s.state.endOf(j.grant.TurnID, a.key)
					result.Key, result.Nonce = a.key, a.nonce
					arrived = append(arrived, result)
				}
			}
			return nil
		})
	})
	return arrived, err
}

// FetchCalls takes at most limit jobs of detached calls for a worker, oldest
// first.
func (c *Conn) FetchCalls(ctx context.Context, worker turnkeeper.WorkerID, limit int) (taken []CallJob, err error) {
	err = c.ask(ctx, "fetch calls", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		for _, job := range c.store.state.calls {
			a := c.store.state.turn(job.Ref.TurnID).await(job.Ref.Key)
			if a == nil || a.ended { // nil: the write that inserted the job was refused
				job.state = "over"
			}
			if job.state == "available" && len(taken) < limit {
				job.state, job.attemptedBy, job.attemptedAt = "running", worker, c.store.now()
				taken = append(taken, job.CallJob)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// GiveBackCalls makes the unclaimed jobs of this worker available again, except those in working.
func (c *Conn) GiveBackCalls(ctx context.Context, worker turnkeeper.WorkerID, working []turnkeeper.JobID) error {
	return c.ask(ctx, "give back calls", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		for _, job := range c.store.state.calls {
			if job.state == "running" && job.attemptedBy == worker && !slices.Contains(working, job.ID) {
				if a := c.store.state.turn(job.Ref.TurnID).await(job.Ref.Key); a.job == job.ID && a.claim == "" {
					job.state = "available"
				}
			}
		}
		return nil
	})
}

// Claim takes a detached call for one run by the worker. tools are the tools that the
// worker has. Claim returns turnkeeper.ErrNotFound if another worker runs the call, it
// is over, or the worker lacks its tool.
func (c *Conn) Claim(ctx context.Context, ref turnlog.CallRef, worker turnkeeper.WorkerID,
	tools []string) (claimed turnlog.ClaimedCall, err error) {
	claim := turnlog.ClaimID(rand.Text())
	err = patiently(ctx, func() error {
		return c.ask(ctx, "claim", func() error {
			return c.store.onCall(ctx, ref, func(t *turnRow, a *awaitedRow, _ *[]Bell) error {
				call := *t.call(ref.Key)
				taken := a.claim != "" && a.claim != claim && !c.store.bugs.has(BugClaimTwice)
				if a.ended || a.attempt != ref.Attempt || taken || !slices.Contains(tools, call.Name) {
					return turnkeeper.ErrNotFound
				}
				if a.claim != claim {
					a.claim, a.worker, a.claimedAt, a.deadline = claim, worker, c.store.now(),
						c.store.now().Add(a.limit)
				}
				claimed = turnlog.ClaimedCall{
					Ref: ref, Claim: claim, Call: call, Limit: a.limit, Left: a.deadline.Sub(c.store.now()),
					Turn: turnkeeper.Turn{ID: t.ID, Agent: t.Agent, User: t.User, Conversation: t.Conversation,
						CreatedAt: t.CreatedAt},
				}
				return nil
			})
		})
	})
	return claimed, err
}

// onCall runs f on a draft of the call's turn, with the lock of its row.
func (s *Store) onCall(ctx context.Context, ref turnlog.CallRef, f func(*turnRow, *awaitedRow, *[]Bell) error) error {
	if err := s.lockTurn(ctx, int64(ref.TurnID), nil); err != nil {
		return err
	}
	var rings []Bell
	err := func() error {
		defer s.mu.Unlock()
		row := s.state.turn(ref.TurnID)
		if row == nil || row.await(ref.Key) == nil {
			return turnkeeper.ErrNotFound
		}
		draft := row.draft()
		if err := f(draft, draft.await(ref.Key), &rings); err != nil {
			return err
		}
		s.state.setTurn(draft)
		return nil
	}()
	if err == nil {
		for _, bell := range rings {
			s.opts.Ring(bell)
		}
	}
	return err
}

// Arrive delivers the result of a claimed call, and resumes its turn if the turn waits.
// It returns turnkeeper.ErrFenced if the claim is void; the result is then stored as the
// call's late result.
func (c *Conn) Arrive(ctx context.Context, call turnlog.ClaimedCall, r turnlog.CallResult) error {
	return patiently(ctx, func() error {
		var void error
		err := c.ask(ctx, "arrive", func() error {
			return c.store.onCall(ctx, call.Ref, func(t *turnRow, a *awaitedRow, rings *[]Bell) error {
				if a.claim == call.Claim && a.arrived != nil && a.arrived.Nonce == string(call.Claim) {
					return nil // the result was stored, but the answer was lost
				}
				if a.ended || a.attempt != call.Ref.Attempt || a.claim != call.Claim {
					r.Nonce, r.Shown = call.Call.Nonce, lateText(r)
					t.late(r, "", c.store)
					void = fmt.Errorf("%w: the claim is void", turnkeeper.ErrFenced)
					return nil
				}
				c.store.arrive(t, a, r, string(call.Claim), rings)
				return nil
			})
		})
		return cmp.Or(err, void)
	})
}

// lateText returns the text of a late result that is stored.
func lateText(r turnlog.CallResult) string {
	if r.Output != nil && r.Output.Text != "" {
		return r.Output.Text
	}
	return r.Preview
}

// arrive stores the result of a call, with by as its nonce, and queues the turn if it waits.
func (s *Store) arrive(t *turnRow, a *awaitedRow, r turnlog.CallResult, by string, rings *[]Bell) {
	if r.Output != nil {
		t.keep(s.now(), *r.Output)
		r.OutputID, r.Output = r.Output.ID, nil
	}
	t.keep(s.now(), r.Attached...)
	s.state.labels.add(s.bugs, r.LabelRows(t.ID))
	r.Nonce, r.Attached = by, nil
	a.arrived, a.arrivedAt, a.ended = &r, s.now(), true
	if t.State == turnkeeper.TurnWaiting {
		t.State, t.DueAt = turnkeeper.TurnQueued, time.Time{}
		t.returnHeld(&s.state)
		*rings = append(*rings, Bell{Topic: TopicInbox})
	}
}

// keep stores outputs that are complete.
func (t *turnRow) keep(now time.Time, outputs ...turnkeeper.Output) {
	for _, o := range outputs {
		o.CreatedAt = now
		t.outputs = append(t.outputs, o)
	}
}

// Release releases a claimed call, to be run again from its beginning.
func (c *Conn) Release(ctx context.Context, call turnlog.ClaimedCall) error {
	return c.ask(ctx, "hand on", func() error {
		return c.store.onCall(ctx, call.Ref, func(t *turnRow, a *awaitedRow, rings *[]Bell) error {
			if a.ended || a.claim != call.Claim {
				return fmt.Errorf("%w: the claim is void", turnkeeper.ErrFenced)
			}
			c.store.again(t, a, false, rings)
			return nil
		})
	})
}

// again makes a call run again: a claimed call with its next attempt, an unclaimed one with a new job.
func (s *Store) again(t *turnRow, a *awaitedRow, lost bool, rings *[]Bell) {
	s.state.calls[a.job-1].state = "over"
	if a.claim != "" {
		call := t.call(a.key)
		a.attempt++
		call.Starts, call.Nonce, call.StartedAt = a.attempt, rand.Text(), s.now()
		t.starts = append(t.starts, startRow{key: a.key, nonce: call.Nonce})
		a.nonce, a.claim, a.worker, a.deadline = call.Nonce, "", "", s.now().Add(turnkeeper.MaxDetachedWait)
		if lost {
			a.losses++
		}
	}
	a.job = s.state.ringCall(turnlog.CallRef{TurnID: t.ID, Key: a.key, Attempt: a.attempt})
	*rings = append(*rings, Bell{Topic: TopicJobs})
}

// ClaimsHeld returns the claims that are still valid.
func (c *Conn) ClaimsHeld(ctx context.Context, claims []turnlog.ClaimID) (held []turnlog.ClaimID, err error) {
	err = c.ask(ctx, "claims held", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		for _, t := range c.store.state.open {
			for _, a := range t.awaited {
				if !a.ended && slices.Contains(claims, a.claim) {
					held = append(held, a.claim)
				}
			}
		}
		return nil
	})
	return held, err
}

// lostCalls returns the detached calls of a turn that get no result unless the scheduler acts.
func (s *state) lostCalls(t *turnRow, now time.Time) (lost []granting.LostCall) {
	for _, a := range t.awaited {
		if a.ended || a.spawned {
			continue
		}
		failure := s.failure(a, now)
		if failure == "" {
			continue
		}
		call := t.call(a.key)
		lost = append(lost, granting.LostCall{
			Ref: turnlog.CallRef{TurnID: t.ID, Key: a.key, Attempt: a.attempt}, Failure: failure, Name: call.Name,
			Effect:   call.Effect,
			OutputID: call.OutputID, Losses: a.losses, Limit: a.limit, WorkerID: a.worker, JobID: a.job,
			Alive: s.callAlive(a.worker),
		})
	}
	return lost
}

// overdueAfter is the time after its limit in which a run may still report its own end.
const overdueAfter = 30 * time.Second

func (s *state) failure(a awaitedRow, now time.Time) granting.CallFailure {
	job := s.calls[a.job-1]
	switch {
	case a.claim != "" && s.gone(a.worker, now):
		return granting.CallLost
	case a.claim != "" && s.overdue(a, now):
		return granting.CallOverdue
	case a.claim != "":
		return ""
	case !a.deadline.After(now):
		return granting.CallUnclaimed
	case job.state == "over", job.state == "running" &&
		(s.gone(job.attemptedBy, now) || overlooked(job.attemptedAt, now)):
		return granting.CallJobMissing
	default:
		return ""
	}
}

// overdue reports whether a run has exceeded its limit. For a run that was claimed before the clock
// was set back, the heartbeat of its worker decides.
func (s *state) overdue(a awaitedRow, now time.Time) bool {
	if !a.deadline.Add(overdueAfter).After(now) {
		return true
	}
	w := s.workers[a.worker]
	return granting.YetToCome(a.claimedAt, now) && (w == nil || granting.YetToCome(w.BeatAt, now) || !w.BeatAt.Add(
		a.limit+overdueAfter).After(now))
}

// overlooked reports whether a job was taken so long ago that its call should have been claimed by now.
func overlooked(attemptedAt, now time.Time) bool {
	return !attemptedAt.Add(5*time.Minute).After(now) || granting.YetToCome(attemptedAt, now)
}

// callAlive reports whether the process of the worker that ran a lost call is connected.
func (s *state) callAlive(id turnkeeper.WorkerID) bool {
	w := s.workers[id]
	return s.present[id] != nil && (w == nil || w.StoppedAt.IsZero())
}

// gone reports whether a worker has stopped, or has been silent for TakeoverAfter.
func (s *state) gone(id turnkeeper.WorkerID, now time.Time) bool {
	w := s.workers[id]
	return w != nil && (!w.StoppedAt.IsZero() || s.fellSilent(w, now))
}

func (t *tick) LostCalls(_ context.Context, limit int) (lost []granting.LostCall, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, lane := range lanesOf(s.open) {
			if turn := s.open[lane]; t.free(turn) && !t.ends[turn.ID] {
				lost = append(lost, s.lostCalls(turn, now)...)
			}
		}
		lost = slices.DeleteFunc(lost, func(l granting.LostCall) bool { return s.aside.has(l.AsideOf(), now) })
		lost = lost[:min(limit, len(lost))]
		for _, l := range lost {
			s.turn(l.Ref.TurnID).held = t.tx
		}
	})
	return lost, err
}

func (t *tick) RunAgain(_ context.Context, c granting.LostCall) error {
	if err := failure(t.s, c.AsideOf()); err != nil {
		return err
	}
	t.onLost(c, func(draft *turnRow, a *awaitedRow, rings *[]Bell) { t.s.again(draft, a, !c.Alive, rings) })
	return nil
}

func (t *tick) EndCall(_ context.Context, c granting.LostCall) error {
	if err := failure(t.s, c.AsideOf()); err != nil {
		return err
	}
	if err := t.read(func(s *state, _ time.Time) {
		t.again[c.Ref.TurnID] = t.again[c.Ref.TurnID] || s.turn(c.Ref.TurnID).State == turnkeeper.TurnWaiting
	}); err != nil {
		return err
	}
	t.onLost(c, func(draft *turnRow, a *awaitedRow, rings *[]Bell) {
		t.s.arrive(draft, a, agentturn.LostCall(c), "", rings)
	})
	return nil
}

// onLost applies f to a lost call when the tick commits.
func (t *tick) onLost(c granting.LostCall, f func(*turnRow, *awaitedRow, *[]Bell)) {
	t.later(func(rings *[]Bell) {
		draft := t.s.state.turn(c.Ref.TurnID).draft()
		if a := draft.await(c.Ref.Key); !a.ended && a.attempt == c.Ref.Attempt {
			f(draft, a, rings)
			t.s.state.setTurn(draft)
		}
	})
}
