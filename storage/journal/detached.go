package journal

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// queueDetached queues the statement that detaches the calls among starts.
func (w *Writer) queueDetached(ctx context.Context, q *dbsqlc.Queries, calls callStates,
	starts []turnlog.CallStart) error {
	p := dbsqlc.DetachCallsParams{Turn: int64(w.grant.TurnID), Wait: turnkeeper.MaxDetachedWait}
	for _, s := range starts {
		if s.Detached == 0 {
			continue
		}
		p.Rounds = append(p.Rounds, int32(s.Key.Round))       //nolint:gosec // few
		p.Ordinals = append(p.Ordinals, int32(s.Key.Ordinal)) //nolint:gosec // few
		p.Nonces, p.Names = append(p.Nonces, s.Nonce), append(p.Names, calls.call(s.Key).Name)
		p.Limits = append(p.Limits, s.Detached)
	}
	if len(p.Rounds) == 0 {
		return nil
	}
	return q.DetachCalls(ctx, p)
}

// Arrivals returns the results of awaited calls that have arrived and are not in the
// journal yet. While the database is unavailable, it retries until ctx ends.
func (w *Writer) Arrivals(ctx context.Context) (arrived []turnlog.CallResult, err error) {
	err = w.store.db.Patiently(ctx, func() error {
		rows, err := w.store.db.Q.Arrivals(ctx, int64(w.grant.TurnID))
		arrived = dbrow.Map(rows, func(r dbsqlc.ArrivalsRow) turnlog.CallResult {
			return turnlog.CallResult{
				Key: turnkeeper.CallKey{Round: int(r.Round), Ordinal: int(r.Ordinal)}, Nonce: r.Nonce,
				State:   turnkeeper.CallState(r.State),
				Preview: r.Preview, Duration: time.Duration(r.DurationMs) * time.Millisecond,
				OutputID: turnkeeper.OutputID(r.OutputID),
			}
		})
		if err == nil && slices.ContainsFunc(rows, func(r dbsqlc.ArrivalsRow) bool { return r.Spawned }) {
			err = w.spawnEnds(ctx, arrived)
		}
		if err == nil && slices.ContainsFunc(rows, func(r dbsqlc.ArrivalsRow) bool { return !r.Spawned }) {
			err = w.labelArrived(ctx, arrived)
		}
		return pg.Translate(err)
	})
	return arrived, err
}

// Claim claims a detached call for one run by the worker, which has the tools. It fails
// with ErrNotFound if another worker runs the call, if the call is over, or if the
// worker lacks its tool; CallIsOpen distinguishes the last case. While the database is
// unavailable, Claim retries until ctx ends.
func (s *Store) Claim(ctx context.Context, ref turnlog.CallRef, worker turnkeeper.WorkerID,
	tools []string) (turnlog.ClaimedCall, error) {
	claim := rand.Text()
	turn, round, ordinal, attempt := keyOf(ref)
	var row dbsqlc.ClaimCallRow
	err := s.db.Patiently(ctx, func() (err error) {
		row, err = s.db.Q.ClaimCall(ctx, dbsqlc.ClaimCallParams{
			Claim: claim, Worker: string(worker), Tools: tools,
			TurnID: turn, Round: round, Ordinal: ordinal, Attempt: attempt,
		})
		return pg.Translate(err)
	})
	return turnlog.ClaimedCall{
		Ref: ref, Claim: turnlog.ClaimID(claim), Call: dbrow.Call(row.TurnkeeperCall), Limit: row.TimeLimit,
		Left: dbrow.Micros(row.LeftUs),
		Turn: turnkeeper.Turn{ID: ref.TurnID, Agent: row.Agent, User: row.UserName,
			Conversation: row.Conversation, CreatedAt: row.CreatedAt},
		TraceParent: dbrow.OrZero(row.TraceParent),
	}, err
}

// keyOf returns the columns that identify an attempt of a detached call.
func keyOf(ref turnlog.CallRef) (turn int64, round, ordinal, attempt int32) {
	return int64(ref.TurnID), int32(ref.Key.Round), int32(ref.Key.Ordinal), int32(ref.Attempt) //nolint:gosec // few
}

// CallIsOpen reports whether this attempt of a detached call waits for a worker.
func (s *Store) CallIsOpen(ctx context.Context, ref turnlog.CallRef) (open bool, err error) {
	turn, round, ordinal, attempt := keyOf(ref)
	err = s.db.Patiently(ctx, func() (err error) {
		open, err = s.db.Q.CallIsOpen(ctx, turn, round, ordinal, attempt)
		return pg.Translate(err)
	})
	return open, err
}

// ClaimsHeld returns those of the claims that are still valid: their calls are awaited,
// and no other worker may run them.
func (s *Store) ClaimsHeld(ctx context.Context, claims []turnlog.ClaimID) ([]turnlog.ClaimID, error) {
	held, err := s.db.Q.ClaimsHeld(ctx, dbrow.Texts(claims))
	return dbrow.Map(held, func(c string) turnlog.ClaimID { return turnlog.ClaimID(c) }), pg.Translate(err)
}

// Arrive delivers the result of a claimed call, and queues its turn if the turn waits.
// It fails with ErrFenced if the claim is void; the result is then stored as the call's
// late result. While the database is unavailable, Arrive retries until ctx ends.
func (s *Store) Arrive(ctx context.Context, c turnlog.ClaimedCall, r turnlog.CallResult) error {
	err := s.db.Patiently(ctx, func() error {
		p := &pg.Pipeline{}
		if err := s.EndCall(ctx, p.Queries(), c.Ref, string(c.Claim), r); err != nil {
			return err
		}
		err := p.Send(ctx, s.db.Pool, func() { s.db.At(ctx, PointArriveSent) })
		if pg.KeyTaken(err) { // the output is there: it was done, and not answered, or it is another's
			turn, round, ordinal, _ := keyOf(c.Ref)
			delivered, asked := s.db.Q.ClaimDelivered(ctx, turn, round, ordinal, string(c.Claim))
			if asked != nil || delivered {
				return pg.Translate(asked)
			}
		}
		return err
	})
	if errors.Is(err, turnkeeper.ErrFenced) {
		r.Nonce, r.Shown = c.Call.Nonce, lateText(r)
		_ = s.keepLate(ctx, c.Ref.TurnID, "", r) // it changes nothing, and its loss neither
	}
	return err
}

// lateText returns the text to store of a result that came too late.
func lateText(r turnlog.CallResult) string {
	if r.Output != nil && r.Output.Text != "" {
		return r.Output.Text
	}
	return r.Preview
}

// EndCall queues or sends the result of an attempt of a detached call, with its outputs and labels.
// claim is the claim under which it ran; empty: the scheduler ends it, whoever has a claim.
func (s *Store) EndCall(ctx context.Context, q *dbsqlc.Queries, ref turnlog.CallRef, claim string,
	r turnlog.CallResult) error {

	turn, round, ordinal, attempt := keyOf(ref)
	p := dbsqlc.EndDetachedParams{
		Turn: turn, Round: round, Ordinal: ordinal, Attempt: attempt, Claim: claim, State: string(r.State),
		Preview: s.db.Clean(r.Preview), Duration: max(r.Duration.Milliseconds(), 0), Output: string(r.OutputID),
	}
	if r.Output != nil {
		p.Output = string(r.Output.ID)
	}
	if err := q.EndDetached(ctx, p); err != nil {
		return err
	}
	if err := queueLabels(ctx, q, s.db.Clean, r.LabelRows(ref.TurnID)); err != nil {
		return err
	}
	return s.queueOutputs(ctx, q, turnkeeper.Grant{TurnID: ref.TurnID}, []turnlog.CallResult{r})
}

// Release releases a claimed call, to be run again from its beginning. It counts no loss.
// It fails with ErrFenced if the claim is void.
func (s *Store) Release(ctx context.Context, c turnlog.ClaimedCall) error {
	return s.RunAgain(ctx, s.db.Q, c.Ref, string(c.Claim), false)
}

// RunAgain makes a detached call run again. claim is as for EndCall; lost counts a loss.
func (s *Store) RunAgain(ctx context.Context, q *dbsqlc.Queries, ref turnlog.CallRef, claim string, lost bool) error {
	turn, round, ordinal, attempt := keyOf(ref)
	return pg.Translate(q.RunDetachedAgain(ctx, dbsqlc.RunDetachedAgainParams{
		Turn: turn, Round: round, Ordinal: ordinal, Attempt: attempt,
		Claim: claim, Nonce: rand.Text(), Lost: lost, Wait: turnkeeper.MaxDetachedWait,
	}))
}
