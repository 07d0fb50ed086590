package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/modelhealth"
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
	rows, err := s.db.Q.WaitsOfMessages(ctx, ids)
	if err != nil {
		return pg.Translate(err)
	}
	global, err := s.db.Q.GlobalState(ctx)
	if err != nil {
		return pg.Translate(err)
	}
	down, err := s.DownModels(ctx)
	if err != nil {
		return err
	}
	holders, err := s.holders(ctx, dbrow.Map(rows, func(r dbsqlc.WaitsOfMessagesRow) int64 { return r.TurnID }))
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		for _, r := range rows {
			if r.ID == int64(m.ID) {
				m.Waits = waiter{r, global, down, holders[turnkeeper.TurnID(r.TurnID)].silence}.waits()
				m.WaitsFor = waitsForModels(m.Waits)
			}
		}
	}
	return nil
}

func waitsForModels(waits []waiting.Wait) (models []string) {
	for _, w := range waits {
		if w.Reason == waiting.ModelDown {
			models = append(models, w.Model)
		}
	}
	return models
}

// A waiter is an open message and the state of everything that it may wait for.
type waiter struct {
	dbsqlc.WaitsOfMessagesRow
	global  dbsqlc.GlobalStateRow // scheduler and workers
	down    []modelhealth.Health
	silence *turnkeeper.Silence // of the worker of its lane's open turn
}

// waits lists what the message waits for: first its own reasons, then those that concern all
// messages.
func (w waiter) waits() (all []waiting.Wait) {
	if w.State == string(turnkeeper.MessageRunning) {
		if turnkeeper.TurnState(w.TurnState) == turnkeeper.TurnRunning {
			return w.running()
		}
		all = w.suspended()
	} else {
		all = w.inLane()
	}
	if turnkeeper.TurnState(w.TurnState) == turnkeeper.TurnWaiting && w.State == string(turnkeeper.MessageRunning) {
		return all
	}
	all = append(all, w.globalWaits(len(all) == 0)...)
	all = append(all, w.models()...)
	if len(all) == 0 {
		all = []waiting.Wait{{Reason: waiting.NextTick}}
	}
	return all
}

// running returns what a message waits for if its turn is running.
func (w waiter) running() []waiting.Wait {
	turn := w.turn()
	switch {
	case w.silence != nil: // and for what keeps another worker from taking over
		turn.Reason, turn.Silent, turn.Stopped, turn.Until = waiting.WorkerSilent, w.silence.For, w.silence.Stopped, w.silence.Until
	case turn.Worker == "":
		turn.Reason = waiting.NotTakenUp
	default:
		return nil
	}
	if w.silence == nil {
		return []waiting.Wait{turn}
	}
	return append([]waiting.Wait{turn}, w.globalWaits(false)...)
}

// suspended returns what a message waits for if its turn is queued or waiting.
func (w waiter) suspended() []waiting.Wait {
	turn := w.turn()
	turn.Worker = ""
	switch {
	case turn.State == turnkeeper.TurnWaiting:
		turn.Reason, turn.Count = waiting.DetachedCalls, int(w.Calls)
		if w.Asks > 0 {
			turn.Reason, turn.Count = waiting.Person, int(w.Asks)
		}
	case w.TurnDueAt == nil:
		return nil
	default:
		turn.Reason, turn.Until, turn.Why = waiting.Deferred, *w.TurnDueAt, w.Error
		if w.ErrorClass == "budget" {
			turn.Reason = waiting.BudgetSpent
		}
	}
	return []waiting.Wait{turn}
}

// turn returns a Wait with the open turn of the lane.
func (w waiter) turn() waiting.Wait {
	return waiting.Wait{
		Turn: turnkeeper.TurnID(w.TurnID), State: turnkeeper.TurnState(w.TurnState), Worker: turnkeeper.WorkerID(w.WorkerID),
		Lane: turnkeeper.Lane(w.Lane), Since: dbrow.OrZero(w.GrantedAt),
	}
}

// inLane returns what a message waits for in its lane if it has no open turn.
func (w waiter) inLane() (all []waiting.Wait) {
	lane := turnkeeper.Lane(w.Lane)
	if !w.Known {
		all = append(all, waiting.Wait{Reason: waiting.UnknownAgent, Agent: w.Agent})
	}
	if w.RetiredAt != nil && !w.Spawned { // sub-agents still work
		all = append(all, waiting.Wait{Reason: waiting.AgentRetired, Agent: w.Agent, Since: *w.RetiredAt})
	}
	if w.Early {
		all = append(all, waiting.Wait{Reason: waiting.NotDue, Until: w.DueAt})
	}
	if w.Before > 0 {
		all = append(all, waiting.Wait{
			Reason: waiting.EarlierMessage, Lane: lane, Message: turnkeeper.MessageID(w.FirstBefore), Count: int(w.Before),
		})
	}
	if w.TurnID != 0 {
		turn := w.turn()
		turn.Reason, turn.Asks = waiting.LaneHeld, int(w.Asks)
		switch turn.State {
		case turnkeeper.TurnRunning:
			turn.Until = dbrow.OrZero(w.LeaseUntil)
		case turnkeeper.TurnQueued:
			turn.Until, turn.Why, turn.Worker = dbrow.OrZero(w.TurnDueAt), w.Error, ""
		default:
			turn.Worker = ""
		}
		all = append(all, turn)
		if w.silence != nil {
			turn.Reason, turn.Silent, turn.Stopped, turn.Until = waiting.WorkerSilent, w.silence.For, w.silence.Stopped, w.silence.Until
			all = append(all, turn)
		}
	}
	if w.Pauses {
		all = append(all, waiting.Wait{
			Reason: waiting.LaneBackoff, Lane: lane, Until: dbrow.OrZero(w.NotBefore), Count: int(w.Failures), Why: w.LastError,
		})
	}
	return all
}

// tickLate is the age of the last recorded tick from which on no scheduler seems to run, unless the poll
// interval is longer: ticks that do nothing are recorded once a minute.
const tickLate = 3 * time.Minute

// globalWaits returns what every message waits for. It mentions busy slots only if free is set: the
// message waits for nothing else.
func (w waiter) globalWaits(free bool) (all []waiting.Wait) {
	h := w.global
	if h.PausedAt != nil {
		all = append(all, waiting.Wait{Reason: waiting.SchedulerPaused, Since: *h.PausedAt, Why: h.PausedReason})
	}
	if h.HoldUntil != nil && h.HoldUntil.After(h.Now) {
		all = append(all, waiting.Wait{Reason: waiting.SchedulerHoldsOff, Until: *h.HoldUntil, Why: h.HoldReason})
	}
	switch {
	case h.Workers == 0:
		return append(all, waiting.Wait{Reason: waiting.NoWorker})
	case h.LastTickAt == nil || h.Now.Sub(*h.LastTickAt) > max(tickLate, 3*dbrow.OrZero(h.PollInterval)):
		all = append(all, waiting.Wait{Reason: waiting.SchedulerSilent, Since: dbrow.OrZero(h.LastTickAt)})
	case free && len(all) == 0 && h.Held >= h.Slots:
		all = append(all, waiting.Wait{Reason: waiting.NoFreeSlot, Count: int(h.Slots)})
	}
	return all
}

// models returns the models of the agent if all of them are down.
func (w waiter) models() (all []waiting.Wait) {
	if !w.ModelsDown {
		return nil
	}
	for _, h := range w.down {
		if slices.Contains(w.Models, h.Model) {
			all = append(all, waiting.Wait{
				Reason: waiting.ModelDown, Model: h.Model, Since: h.DownSince, Until: h.Until, Turn: h.ProbeTurn, Why: classed(h.ErrorClass, h.Error),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b waiting.Wait) int {
		return cmp.Compare(slices.Index(w.Models, a.Model), slices.Index(w.Models, b.Model))
	})
	return all
}

// classed formats an error with its class.
func classed(class, text string) string {
	if class == "" || text == "" {
		return cmp.Or(text, class)
	}
	return class + ": " + text
}

// A holder is the worker that runs a turn.
type holder struct {
	worker   turnkeeper.WorkerID
	silence  *turnkeeper.Silence // nil: it is not silent
	underWay *turnkeeper.UnderWay
}

// holders reads which workers run the turns, and what the turns are doing.
func (s *Views) holders(ctx context.Context, turns []int64) (map[turnkeeper.TurnID]holder, error) {
	rows, err := s.db.Q.Holders(ctx, turns)
	if err != nil || len(rows) == 0 {
		return nil, pg.Translate(err)
	}
	calls, err := s.db.Q.OpenCalls(ctx, turns)
	if err != nil {
		return nil, pg.Translate(err)
	}
	holders := map[turnkeeper.TurnID]holder{}
	for _, r := range rows {
		h := holder{worker: turnkeeper.WorkerID(r.WorkerID)}
		if h.worker == "" { // no worker has bound the grant
			continue
		}
		h.underWay = underWay(r)
		h.silence = silenceOf(dbrow.OrZero(r.BeatAt), r.StoppedAt, r.SilentMs, r.TakeoverAfter, dbrow.OrZero(r.LeaseUntil))
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
	return &u
}

// silenceOf returns the silence of a worker by its heartbeat, or nil if it is not silent or has no heartbeat.
func silenceOf(beatAt time.Time, stoppedAt *time.Time, silentMs int64, takeover time.Duration, leaseUntil time.Time) *turnkeeper.Silence {
	silent := time.Duration(silentMs) * time.Millisecond
	if beatAt.IsZero() || stoppedAt == nil && silent <= turnkeeper.SilentAfter {
		return nil
	}
	until := leaseUntil
	if early := beatAt.Add(takeover); takeover > 0 && early.Before(until) {
		until = early
	}
	return &turnkeeper.Silence{For: silent, Stopped: stoppedAt != nil, Until: until}
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
		}
	}
	return err
}
