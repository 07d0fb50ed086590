package operate

import (
	"context"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// WaitingMessage is like Message, but also sets Waits: what an open message waits for.
func (s *Views) WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	m, err := s.Message(ctx, id)
	if err != nil {
		return m, err
	}
	found := []waiting.Message{m}
	err = s.withWaits(ctx, found)
	return found[0], err
}

// WatchedMessages reads ID, State, TurnID, ClosedAt, Waits and Turns of messages, in any order, without those that do
// not exist.
func (s *Views) WatchedMessages(ctx context.Context, ids []turnkeeper.MessageID) ([]waiting.Message, error) {
	rows, err := s.db.Q.WatchedMessages(ctx, dbrow.Map(ids, func(id turnkeeper.MessageID) int64 { return int64(id) }))
	if err != nil {
		return nil, pg.Translate(err)
	}
	messages := dbrow.Map(rows, func(r dbsqlc.WatchedMessagesRow) waiting.Message {
		return waiting.Message{
			Message: turnkeeper.Message{
				ID: turnkeeper.MessageID(r.ID), State: turnkeeper.MessageState(r.State),
				TurnID:   turnkeeper.TurnID(dbrow.OrZero(r.TurnID)),
				ClosedAt: dbrow.OrZero(r.ClosedAt),
			},
			Turns: dbrow.Map(r.Turns, func(id int64) turnkeeper.TurnID { return turnkeeper.TurnID(id) }),
		}
	})
	return messages, s.withWaits(ctx, messages)
}

// withWaits sets what open messages wait for.
func (s *Views) withWaits(ctx context.Context, messages []waiting.Message) error {
	var ids []int64
	for _, m := range messages {
		if m.ClosedAt.IsZero() {
			ids = append(ids, int64(m.ID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	waits, err := waitsOf(ctx, s.db, ids)
	if err != nil {
		return err
	}
	for i := range messages {
		if m := &messages[i]; m.ClosedAt.IsZero() {
			m.Waits = waits[m.ID]
			m.WaitsFor = waitsForModels(m.Waits)
		}
	}
	return nil
}

// waitsOf returns what messages wait for.
func waitsOf(ctx context.Context, db *pg.DB, ids []int64) (map[turnkeeper.MessageID][]waiting.Wait, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := db.Q.BlockersOf(ctx, ids)
	waits := map[turnkeeper.MessageID][]waiting.Wait{}
	for _, r := range rows {
		if id := turnkeeper.MessageID(r.ID); r.Reason != "" {
			waits[id] = append(waits[id], waitOf(r))
		}
	}
	return waits, pg.Translate(err)
}

func waitOf(r dbsqlc.BlockersOfRow) waiting.Wait {
	return waiting.Wait{
		Reason: waiting.Reason(r.Reason), Since: known(r.Since), Until: known(r.Until), Agent: r.Agent,
		Lane:    turnkeeper.Lane(r.Lane),
		Message: turnkeeper.MessageID(r.MessageID), Turn: turnkeeper.TurnID(r.TurnID),
		State:  turnkeeper.TurnState(r.TurnState),
		Worker: turnkeeper.WorkerID(r.WorkerID), Stopped: r.Stopped, Silent: r.Silent, Model: r.Model,
		Count: int(r.Count), Why: r.Why,
	}
}

// known returns a time, or zero for 1970, which stands for null.
func known(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t
}

// waitsForModels returns the models that a message waits for.
func waitsForModels(waits []waiting.Wait) (models []string) {
	for _, w := range waits {
		if w.Model != "" {
			models = append(models, w.Model)
		}
	}
	return models
}

// A holder is the worker that runs a turn.
type holder struct {
	worker   turnkeeper.WorkerID
	silence  *turnkeeper.Silence // nil: it is not silent
	underWay *turnkeeper.UnderWay

	unreadable error // of the turn's journal; nil: it can be read
}

// holders reads which workers run the turns, and what the turns are doing.
func (s *Views) holders(ctx context.Context, turns []int64) (map[turnkeeper.TurnID]holder, error) {
	rows, dark, err := pg.Apart(turns, func(ids []int64) ([]dbsqlc.HoldersRow, error) {
		return s.db.Q.Holders(ctx, ids)
	})
	if err != nil || len(rows)+len(dark) == 0 {
		return nil, err
	}
	calls, unreadable, err := pg.Apart(turns, func(ids []int64) ([]dbsqlc.OpenCallsRow, error) {
		return s.db.Q.OpenCalls(ctx, ids)
	})
	if err != nil {
		return nil, err
	}
	holders := map[turnkeeper.TurnID]holder{}
	for id, err := range dark {
		holders[turnkeeper.TurnID(id)] = holder{unreadable: err}
	}
	for _, r := range rows {
		h := holder{worker: turnkeeper.WorkerID(r.WorkerID), unreadable: unreadable[r.ID]}
		if h.worker == "" { // no worker has bound the grant
			continue
		}
		h.underWay = underWay(r)
		h.silence = silenceOf(dbrow.OrZero(r.BeatAt), r.StoppedAt, r.SilentMs, r.TakeoverAfter,
			dbrow.OrZero(r.LeaseUntil))
		for _, c := range calls {
			if c.TurnID == r.ID {
				h.underWay.Calls = append(h.underWay.Calls, turnkeeper.OpenCall{
					Key: turnkeeper.CallKey{Round: int(c.Round), Ordinal: int(c.Ordinal)}, Name: c.Name,
					State: turnkeeper.CallState(c.State), StartedAt: dbrow.OrZero(c.StartedAt),
				})
			}
		}
		if len(h.underWay.Calls) > 0 {
			h.underWay.Round, h.underWay.Since = h.underWay.Calls[0].Key.Round, time.Time{}
		}
		holders[turnkeeper.TurnID(r.ID)] = h
	}
	return holders, nil
}

// bytesPerToken is the estimated length of a token.
const bytesPerToken = 4

// underWay returns the model call of a running turn.
func underWay(r dbsqlc.HoldersRow) *turnkeeper.UnderWay {
	u := turnkeeper.UnderWay{Round: int(r.InferenceRounds) + 1, Since: r.Since}
	if r.Round > 0 {
		u.Round = int(r.Round)
		u.OutputTokens = (max(r.Streamed, 0) + bytesPerToken - 1) / bytesPerToken
	}
	noteRefused(&u, turnkeeper.TurnID(r.ID), dbrow.Refused(r.Refused, r.SilentMs))
	return &u
}

// noteRefused notes that a worker repeats a write of the turn.
func noteRefused(u *turnkeeper.UnderWay, turn turnkeeper.TurnID, all []presence.Refusal) {
	for _, r := range all {
		if r.Turn == turn {
			u.RefusedFor, u.RefusedTimes, u.RefusedCode, u.RefusedWith = r.For, r.Attempts, r.SQLState, r.Message
		}
	}
}

// silenceOf returns the silence of a worker by its heartbeat, or nil if it is not silent or has no heartbeat.
func silenceOf(beatAt time.Time, stoppedAt *time.Time, silentMs int64, takeover time.Duration,
	leaseUntil time.Time) *turnkeeper.Silence {
	silent := time.Duration(silentMs) * time.Millisecond
	if beatAt.IsZero() || stoppedAt == nil && silent <= presence.SilentAfter {
		return nil
	}
	until := leaseUntil
	if early := beatAt.Add(takeover); takeover > 0 && early.Before(until) {
		until = early
	}
	return &turnkeeper.Silence{For: silent, Stopped: stoppedAt != nil, Until: until}
}

// classUnreadable is shown as the error class of a turn whose journal cannot be read.
const classUnreadable = "unreadable"

// noteUnreadable shows why the journal of a turn cannot be read in place of the turn's error.
func noteUnreadable(t *turnkeeper.Turn, err error) {
	if err != nil {
		t.ErrorClass, t.Error = classUnreadable, "the journal of the turn cannot be read: "+err.Error()
	}
}

// withHolders sets the worker of running turns, and what they are doing.
func (s *Views) withHolders(ctx context.Context, turns []turnkeeper.Turn) error {
	var ids []int64
	for _, t := range turns {
		if t.State == turnkeeper.TurnRunning {
			ids = append(ids, int64(t.ID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	holders, err := s.holders(ctx, ids)
	for i := range turns {
		if h, ok := holders[turns[i].ID]; ok {
			turns[i].WorkerID, turns[i].Silence, turns[i].UnderWay = h.worker, h.silence, h.underWay
			noteUnreadable(&turns[i], h.unreadable)
		}
	}
	return err
}

// withTurnWaits returns turns with what the open ones do or wait for.
func (s *Views) withTurnWaits(ctx context.Context, turns []turnkeeper.Turn) ([]waiting.Turn, error) {
	if err := s.withHolders(ctx, turns); err != nil {
		return nil, err
	}
	var ids []int64
	for _, t := range turns {
		if !t.State.Terminal() {
			ids = append(ids, int64(t.MessageID))
		}
	}
	waits, err := waitsOf(ctx, s.db, ids)
	return dbrow.Map(turns, func(t turnkeeper.Turn) waiting.Turn {
		if t.State.Terminal() {
			return waiting.Turn{Turn: t}
		}
		return waiting.Turn{Turn: t, Waits: waits[t.MessageID]}
	}), err
}
