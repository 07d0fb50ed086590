package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// queueDetached sends the starts of detached calls to where they run.
func (w *TurnWriter) queueDetached(ctx context.Context, q *dbsqlc.Queries, starts []turnkeeper.CallStart) error {
	p := dbsqlc.DetachCallsParams{Turn: int64(w.grant.TurnID), Wait: turnkeeper.MaxDetachedWait}
	for _, s := range starts {
		if s.Detached == 0 {
			continue
		}
		p.Rounds = append(p.Rounds, int32(s.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(s.Key.Ordinal)) //nolint:gosec // few
		p.Nonces = append(p.Nonces, s.Nonce)
		p.Limits = append(p.Limits, s.Detached)
	}
	if len(p.Rounds) == 0 {
		return nil
	}
	return q.DetachCalls(ctx, p)
}

// Arrivals are the results of calls that are open elsewhere which have arrived
// and are not in the journal yet. It waits for a database that is away until ctx
// ends.
func (w *TurnWriter) Arrivals(ctx context.Context) (arrived []turnkeeper.CallResult, err error) {
	err = patiently(ctx, func() error {
		rows, err := w.store.q.Arrivals(ctx, int64(w.grant.TurnID))
		arrived = mapRows(rows, func(r dbsqlc.ArrivalsRow) turnkeeper.CallResult {
			return turnkeeper.CallResult{
				Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, Nonce: r.Nonce, State: turnkeeper.CallState(r.State),
				Preview: r.Preview, Duration: time.Duration(r.DurationMs) * time.Millisecond, OutputID: turnkeeper.OutputID(r.OutputID),
			}
		})
		if err == nil && slices.ContainsFunc(rows, func(r dbsqlc.ArrivalsRow) bool { return r.Spawned }) {
			err = w.spawnEnds(ctx, arrived)
		}
		return translate(err)
	})
	return arrived, err
}

// Claim takes a detached call for one run by the worker, which has the tools. It
// waits for a database that is away until ctx ends. ErrNotFound: somebody else
// runs it, it is over, or the worker lacks the tool; CallIsOpen tells.
func (s *Store) Claim(ctx context.Context, ref turnkeeper.CallRef, worker turnkeeper.WorkerID, tools []string) (turnkeeper.ClaimedCall, error) {
	claim := rand.Text()
	var row dbsqlc.ClaimCallRow
	err := patiently(ctx, func() (err error) {
		row, err = s.q.ClaimCall(ctx, dbsqlc.ClaimCallParams{
			Claim: claim, Worker: string(worker), Tools: tools, TurnID: int64(ref.TurnID),
			Round: int32(ref.Key.Round), Ordinal: int32(ref.Key.Ordinal), Attempt: int32(ref.Attempt), //nolint:gosec // few
		})
		return translate(err)
	})
	return turnkeeper.ClaimedCall{
		Ref: ref, Claim: turnkeeper.ClaimID(claim), Call: callOf(row.TurnkeeperCall), Limit: row.TimeLimit, Left: micros(row.LeftUs),
		Turn:        turnkeeper.Turn{ID: ref.TurnID, Agent: row.Agent, Conversation: row.Conversation, CreatedAt: row.CreatedAt},
		TraceParent: orZero(row.TraceParent),
	}, err
}

// CallIsOpen says that this attempt of a detached call waits for a worker.
func (s *Store) CallIsOpen(ctx context.Context, ref turnkeeper.CallRef) (open bool, err error) {
	err = patiently(ctx, func() (err error) {
		open, err = s.q.CallIsOpen(ctx, int64(ref.TurnID), int32(ref.Key.Round), int32(ref.Key.Ordinal), int32(ref.Attempt)) //nolint:gosec // few
		return translate(err)
	})
	return open, err
}

// ClaimsHeld are those of the claims that still stand: their calls are awaited,
// and nobody else may run them.
func (s *Store) ClaimsHeld(ctx context.Context, claims []turnkeeper.ClaimID) ([]turnkeeper.ClaimID, error) {
	held, err := s.q.ClaimsHeld(ctx, claimTexts(claims))
	return mapRows(held, func(c string) turnkeeper.ClaimID { return turnkeeper.ClaimID(c) }), translate(err)
}

func claimTexts(claims []turnkeeper.ClaimID) []string {
	texts := make([]string, len(claims))
	for i, c := range claims {
		texts[i] = string(c)
	}
	return texts
}

// Arrive brings the result of a claimed call, and has its turn go on if that
// waits. ErrFenced: the claim is void; the result is then kept beside what the
// call has ended with. It waits for a database that is away until ctx ends.
func (s *Store) Arrive(ctx context.Context, c turnkeeper.ClaimedCall, r turnkeeper.CallResult) error {
	err := patiently(ctx, func() error {
		p := &pipeline{}
		err := errors.Join(
			p.queries().EndDetached(ctx, s.endDetached(c.Ref, string(c.Claim), r)),
			s.queueOutputs(ctx, p.queries(), turnkeeper.Grant{TurnID: c.Ref.TurnID}, []turnkeeper.CallResult{r}),
		)
		if err != nil {
			return err
		}
		err = p.send(ctx, s.pool, func() { s.at(ctx, PointArriveSent) })
		if keyTaken(err) { // the output is there: it was done, and not answered, or it is another's
			delivered, asked := s.q.ClaimDelivered(ctx, int64(c.Ref.TurnID), int32(c.Ref.Key.Round), int32(c.Ref.Key.Ordinal), string(c.Claim)) //nolint:gosec // few
			if asked != nil || delivered {
				return translate(asked)
			}
		}
		return err
	})
	if errors.Is(err, turnkeeper.ErrFenced) {
		r.Nonce, r.Shown = c.Call.Nonce, lateText(r)
		_ = s.keepLate(ctx, c.Ref.TurnID, r) // it changes nothing, and its loss neither
	}
	return err
}

// lateText is what is kept of a result that came too late.
func lateText(r turnkeeper.CallResult) string {
	if r.Output != nil && r.Output.Text != "" {
		return r.Output.Text
	}
	return r.Preview
}

func (s *Store) endDetached(ref turnkeeper.CallRef, claim string, r turnkeeper.CallResult) dbsqlc.EndDetachedParams {
	p := dbsqlc.EndDetachedParams{
		Turn: int64(ref.TurnID), Round: int32(ref.Key.Round), Ordinal: int32(ref.Key.Ordinal), Attempt: int32(ref.Attempt), //nolint:gosec // few
		Claim: claim, State: string(r.State), Preview: s.clean(r.Preview), Duration: max(r.Duration.Milliseconds(), 0), Output: string(r.OutputID),
	}
	if r.Output != nil {
		p.Output = string(r.Output.ID)
	}
	return p
}

// HandOn gives a claimed call back, to be run again from its beginning. No loss is
// counted. ErrFenced: the claim is void.
func (s *Store) HandOn(ctx context.Context, c turnkeeper.ClaimedCall) error {
	return s.again(ctx, s.q, c.Ref, string(c.Claim), false)
}

func (s *Store) again(ctx context.Context, q *dbsqlc.Queries, ref turnkeeper.CallRef, claim string, lost bool) error {
	return translate(q.RunDetachedAgain(ctx, dbsqlc.RunDetachedAgainParams{
		Turn: int64(ref.TurnID), Round: int32(ref.Key.Round), Ordinal: int32(ref.Key.Ordinal), Attempt: int32(ref.Attempt), //nolint:gosec // few
		Claim: claim, Nonce: rand.Text(), Lost: lost, Wait: turnkeeper.MaxDetachedWait,
	}))
}

// GiveBackCalls gives back, as GiveBack does for turns, what of detached calls was
// given to this worker longer than older ago and is not among what it works.
func (s *Store) GiveBackCalls(ctx context.Context, id turnkeeper.WorkerID, older time.Duration, working []turnkeeper.JobID, running []turnkeeper.ClaimID) (Overlooked, error) {
	ids := make([]int64, len(working))
	for i, job := range working {
		ids[i] = int64(job)
	}
	jobs, err := s.q.GiveBackCallJobs(ctx, string(id), older, ids)
	if err != nil {
		return Overlooked{}, translate(err)
	}
	claims, err := s.q.GiveUpClaims(ctx, string(id), older, claimTexts(running))
	if err == nil && claims > 0 {
		err = s.q.RingInbox(ctx)
	}
	return Overlooked{Jobs: int(jobs), Grants: int(claims)}, translate(err)
}

// LostCalls lists detached calls that will have no result unless something is
// done, and locks them.
func (t *Tick) LostCalls(ctx context.Context, limit int) ([]turnkeeper.LostCall, error) {
	rows, err := t.q.LostCalls(ctx, int32(limit)) //nolint:gosec // small
	if err != nil {
		return nil, translate(err)
	}
	return mapRows(rows, func(r dbsqlc.LostCallsRow) turnkeeper.LostCall {
		return turnkeeper.LostCall{
			Ref: turnkeeper.CallRef{
				TurnID: turnkeeper.TurnID(r.TurnID), Attempt: int(r.Attempt),
				Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)},
			},
			Trouble: turnkeeper.CallTrouble(r.Trouble), Name: r.Name, Effect: turnkeeper.Effect(r.Effect), OutputID: turnkeeper.OutputID(r.OutputID),
			Losses: int(r.Losses), Limit: r.TimeLimit, WorkerID: turnkeeper.WorkerID(r.WorkerID), Alive: r.Alive, JobID: turnkeeper.JobID(r.JobID),
		}
	}), translate(t.q.LookAgainAtCalls(ctx, int32(limit))) //nolint:gosec // small
}

// RunAgain has a lost call run again: the next attempt where one was begun.
func (t *Tick) RunAgain(ctx context.Context, c turnkeeper.LostCall) error {
	return t.store.again(ctx, t.q, c.Ref, "", !c.Alive)
}

// EndCall gives a lost call the result that it will have, and has its turn go on
// if that waits.
func (t *Tick) EndCall(ctx context.Context, c turnkeeper.LostCall, r turnkeeper.CallResult) error {
	return errors.Join(
		translate(t.q.EndDetached(ctx, t.store.endDetached(c.Ref, "", r))),
		translate(t.store.queueOutputs(ctx, t.q, turnkeeper.Grant{TurnID: c.Ref.TurnID}, []turnkeeper.CallResult{r})),
	)
}

func (s *Store) awaitedOf(ctx context.Context, id turnkeeper.TurnID) ([]turnkeeper.AwaitedCall, error) {
	rows, err := s.q.AwaitedOfTurn(ctx, int64(id))
	return mapRows(rows, func(r dbsqlc.AwaitedOfTurnRow) turnkeeper.AwaitedCall {
		return turnkeeper.AwaitedCall{
			Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, Name: r.Name, Since: r.OpenedAt, Until: orZero(r.Deadline),
			Attempt: int(orZero(r.Attempt)), WorkerID: turnkeeper.WorkerID(r.WorkerID), ClaimedAt: orZero(r.ClaimedAt), ArrivedAt: orZero(r.ArrivedAt),
		}
	}), translate(err)
}
