package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/calls"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/scheduler"
)

var _ scheduler.Store = (*Conn)(nil)

// A tick is one pass of a scheduler, in one transaction. It reads committed data and its own
// writes.
type tick struct {
	gate  // with what this pass has done
	conn  *Conn
	tx    *tx
	ends  map[turnkeeper.TurnID]bool // turns of lost workers that this tick ends
	first func() error               // a check before the commit; nil: none
	ops   []func(*[]Bell)

	handed []granting.Handed // filled by the commit
	asked  time.Time         // when the commit was sent
}

// InTick runs f in one transaction.
func (c *Conn) InTick(ctx context.Context, f func(scheduler.Tick) error) error {
	t := &tick{conn: c, gate: gate{s: c.store, freed: map[turnkeeper.Lane]bool{},
		again: map[turnkeeper.TurnID]bool{}, gone: map[turnkeeper.MessageID]bool{}},
		ends: map[turnkeeper.TurnID]bool{}}
	defer t.end()
	if err := f(t); err != nil {
		return err
	}
	if t.tx == nil {
		return nil
	}
	t.asked = time.Now()
	return c.ask(ctx, "tick.commit", t.commit)
}

// Handed returns those of the grants that a tick has handed over to the worker, and that are in force. No
// tick of this connection is in progress.
func (c *Conn) Handed(ctx context.Context, worker turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) (handed []granting.Handed, err error) {
	err = patiently(ctx, func() error {
		return c.ask(ctx, "handed", func() error {
			c.store.mu.Lock()
			defer c.store.mu.Unlock()
			handed = nil
			for _, lane := range lanesOf(c.store.state.held) {
				l := c.store.state.held[lane]
				if turn := c.store.state.turn(l.TurnID); turn != nil && slices.Contains(grants, l.GrantID) &&
					turn.WorkerID == worker {
					handed = append(handed, c.store.handedOf(turn, time.Now()))
				}
			}
			return nil
		})
	})
	return handed, err
}

func (s *Store) handedOf(turn *turnRow, read time.Time) granting.Handed {
	record := s.recordOf(turn)
	return granting.Handed{TurnID: turn.ID, GrantID: turn.GrantID, Read: read,
		Load: func(context.Context) (*turnlog.Record, error) {
			return record, nil
		}}
}

func (t *tick) Handed() []granting.Handed { return t.handed }

func (t *tick) end() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.tx != nil {
		t.tx.end()
	}
}

func (t *tick) commit() error {
	if len(t.ops) == 0 {
		t.end()
		return nil
	}
	return t.s.locked(func(rings *[]Bell) error {
		if err := t.tx.alive(); err != nil {
			return err
		}
		defer t.tx.end()
		if t.first != nil {
			if err := t.first(); err != nil {
				return err
			}
		}
		t.s.commit++
		for _, op := range t.ops {
			op(rings)
		}
		return nil
	})
}

// read runs a statement of the tick that changes nothing.
func (t *tick) read(f func(s *state, now time.Time)) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if err := t.tx.alive(); err != nil {
		return err
	}
	f(&t.s.state, t.s.now())
	return nil
}

// later queues a write for the commit.
func (t *tick) later(op func(rings *[]Bell)) { t.ops = append(t.ops, op) }

func (t *tick) Snapshot(ctx context.Context, everything bool) (sit granting.Snapshot, locked bool, err error) {
	err = t.conn.ask(ctx, "tick.look", func() error {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		t.tx = t.conn.begin()
		_, busy := t.s.ticker.blocks()
		locked = !busy || t.s.bugs.has(BugTicksOverlap)
		if locked {
			t.s.ticker = t.tx
		}
		sit = t.s.state.situation(t.s.now())
		sit.Down = downNow(t.s, t.s.now())
		if !everything {
			sit.Lost, sit.DueSchedules, sit.Calls, sit.Lanes, sit.NewestGrant = false, false, false, false, time.Time{}
		}
		return nil
	})
	return sit, locked, err
}

func (s *state) situation(now time.Time) granting.Snapshot {
	sit := granting.Snapshot{
		Now: now, Timeline: s.timeline, SeenTimeline: s.seenTimeline, LastTickAt: s.lastTickAt,
		HoldUntil: s.holdUntil, HoldReason: s.holdReason, FreeSlots: -len(s.held),
	}
	for _, l := range s.held {
		if turn := s.turn(l.TurnID); turn != nil && s.aside.hasTurn(turn, now) {
			sit.FreeSlots++ // its worker has left it
		}
		sit.Lost = sit.Lost || s.isLost(l, now)
		sit.Running, sit.NewestGrant = append(sit.Running, l.Lane.Agent()), later(sit.NewestGrant, l.GrantedAt)
	}
	for _, messages := range s.waiting {
		for _, m := range messages {
			if isDue(m, now) {
				sit.Waiting++
			}
		}
	}
	for _, sched := range s.schedules {
		sit.DueSchedules = sit.DueSchedules || due(sched, now) && !s.retired(sched.Agent)
	}
	for _, turn := range s.open {
		addOpen(s, &sit, turn, now)
	}
	for _, row := range s.aside {
		sit.Aside = true
		sit.Retry = sit.Retry || !row.nextTry.After(now)
	}
	sit.Spawns = s.spawnsToSettle(now)
	for _, w := range s.workers {
		if w.StoppedAt.IsZero() && w.BeatAt.Add(max(w.TakeoverAfter, presence.SilentAfter)).After(now) &&
			!granting.YetToCome(w.BeatAt, now) {
			sit.FreeSlots += w.Slots
		}
	}
	return sit
}

// addOpen adds an open turn to a snapshot.
func addOpen(s *state, sit *granting.Snapshot, turn *turnRow, now time.Time) {
	sit.Queued = sit.Queued || turn.State == turnkeeper.TurnQueued
	sit.Held = sit.Held || turn.holds
	sit.Asks = sit.Asks || turn.waited(now)
	for _, a := range turn.asks {
		sit.Asks = sit.Asks || !a.Closed() && !a.ExpiresAt.After(now)
	}
	sit.Calls = sit.Calls || len(s.lostCalls(turn, now)) > 0
}

func due(sched *turnkeeper.Schedule, now time.Time) bool {
	return sched.Active && sched.PausedAt.IsZero() && !sched.NextDue.After(now)
}

// isLost reports whether the lease has lapsed, or the worker that took its job is silent.
func (s *state) isLost(l *leaseRow, now time.Time) bool {
	return lapsed(l, now) || s.silent(l, now)
}

func lapsed(l *leaseRow, now time.Time) bool {
	return !l.Until.After(now) || granting.YetToCome(l.GrantedAt, now)
}

func (s *state) silent(l *leaseRow, now time.Time) bool {
	w := s.workers[s.taker(l)]
	return w != nil && s.fellSilent(w, now)
}

// fellSilent reports whether a worker has been silent for TakeoverAfter.
func (s *state) fellSilent(w *presence.Heartbeat, now time.Time) bool {
	from := granting.SilentFrom(w.BeatAt, s.silenceFrom)
	return w.TakeoverAfter > 0 && (!from.Add(w.TakeoverAfter).After(now) || granting.YetToCome(from, now))
}

// lossCounts reports whether a lost grant counts against its message.
func (s *state) lossCounts(g turnkeeper.Dispatch, now time.Time) bool {
	loss := granting.Loss{
		GrantedAt: g.GrantedAt, Until: g.Until, LostAt: g.EndedAt, SilenceFrom: s.silenceFrom,
		Present: s.present[g.WorkerID] != nil, Now: now,
	}
	if w := s.workers[g.WorkerID]; w != nil {
		loss.BeatAt, loss.StoppedAt = w.BeatAt, w.StoppedAt
	}
	return loss.Counts()
}

// losses returns how many lost grants count against a message.
func (s *state) losses(id turnkeeper.MessageID, now time.Time) (n int) {
	for _, g := range s.grants {
		if turn := s.turn(g.TurnID); g.Outcome == "lost" && turn != nil && turn.MessageID == id &&
			s.lossCounts(g.Dispatch, now) {
			n++
		}
	}
	return n
}

// holderAlive reports whether the loss of a lease that is held does not count.
func (s *state) holderAlive(l *leaseRow, now time.Time) bool {
	g := s.grant(l.GrantID).Dispatch
	g.WorkerID, g.EndedAt = s.taker(l), now
	return !s.lossCounts(g, now)
}

// taker returns the worker that the grant of a lease is bound to, or else the one that took its job.
func (s *state) taker(l *leaseRow) turnkeeper.WorkerID {
	if turn := s.turn(l.TurnID); turn != nil && turn.WorkerID != "" {
		return turn.WorkerID
	}
	if job := s.job(l.jobID); job != nil {
		return job.attemptedBy
	}
	return ""
}

func (t *tick) Note(_ context.Context, now time.Time, timeline string) error {
	t.later(func(*[]Bell) { t.s.state.lastTickAt, t.s.state.seenTimeline = now, timeline })
	return nil
}

// CountSilence takes effect at once, which is harmless if the tick is undone.
func (t *tick) CountSilence(_ context.Context, since time.Time) error {
	return t.read(func(s *state, _ time.Time) { s.silenceFrom = since })
}

// MoveLevels has nothing to do: ReadyMessages leaves out what a survival level holds.
func (*tick) MoveLevels(context.Context) (int, error) { return 0, nil }

// MoveLanes has nothing to do: RegisterAgents has moved all messages.
func (t *tick) MoveLanes(context.Context) error { return nil }

func (t *tick) Hold(_ context.Context, until time.Time, reason string) error {
	t.later(func(*[]Bell) {
		t.s.state.holdUntil, t.s.state.holdReason = until, reason
		if until.IsZero() { // after the clock was set back, back-offs would last that much longer
			for _, l := range t.s.state.leases {
				endPause(&t.s.state, l, t.s.now())
			}
			t.s.state.models.try(sorted(t.s.state.models.health), t.s.now())
			for _, turn := range t.s.state.open {
				if len(turn.waitsFor) > 0 {
					turn.DueAt = t.s.now()
				}
			}
		}
	})
	return nil
}

func (t *tick) Lost(_ context.Context, limit int) (lost []granting.LostGrant, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, lane := range lanesOf(s.held) {
			l := s.held[lane]
			turn := s.turn(l.TurnID)
			if turn == nil || !s.isLost(l, now) || s.aside.hasTurn(turn, now) {
				continue
			}
			lost = append(lost, granting.LostGrant{
				Lane: lane, TurnID: turn.ID, GrantID: l.GrantID, JobID: turn.JobID, MessageID: turn.MessageID,
				WorkerID: s.taker(l),
				Trigger:  turn.Trigger, GrantedAt: l.GrantedAt, Lapsed: lapsed(l, now), Alive: s.holderAlive(l, now),
				Losses:     s.losses(turn.MessageID, now),
				Dispatches: turn.Dispatches, Rounds: len(turn.rounds),
			})
		}
		slices.SortFunc(lost, func(a, b granting.LostGrant) int {
			return cmp.Or(a.GrantedAt.Compare(b.GrantedAt), cmp.Compare(a.TurnID, b.TurnID))
		})
		// Like `for update skip locked`: a turn that is being written to has a live worker.
		lost = slices.DeleteFunc(lost, func(l granting.LostGrant) bool {
			_, busy := s.turn(l.TurnID).held.blocks()
			return busy
		})
		lost = lost[:min(limit, len(lost))]
		for _, l := range lost {
			s.turn(l.TurnID).held = t.tx
		}
	})
	return lost, err
}

func (t *tick) Requeue(_ context.Context, lost granting.LostGrant) error {
	if err := failure(t.s, lost.AsideOf()); err != nil {
		return err
	}
	t.freed[lost.Lane] = true
	if err := t.read(func(s *state, _ time.Time) {
		t.ends[lost.TurnID] = s.ends.cancelled(lost.TurnID) || t.ends[s.parentOf(lost.MessageID)]
		t.again[lost.TurnID] = !t.ends[lost.TurnID]
	}); err != nil {
		return err
	}
	t.later(func(rings *[]Bell) { t.endLost(lost, nil, requeued(lost), rings) })
	return nil
}

// requeued returns the end of a lost grant whose turn runs again.
func requeued(lost granting.LostGrant) endWrite {
	return endWrite{Consequence: lost.Consequence(true), outcome: turnlog.Outcome{State: turnkeeper.TurnQueued}}
}

func (t *tick) CloseLost(_ context.Context, lost granting.LostGrant) error {
	if err := failure(t.s, lost.AsideOf()); err != nil {
		return err
	}
	t.freed[lost.Lane], t.ends[lost.TurnID] = true, true
	t.later(func(rings *[]Bell) {
		if t.s.state.ends.cancelled(lost.TurnID) { // this tick may have ended its parent
			t.endLost(lost, nil, requeued(lost), rings)
			return
		}
		draft := t.s.state.turn(lost.TurnID).draft()
		if !t.s.bugs.has(BugCallsLeftOpen) {
			draft.settleCalls(t.s.now(), agentturn.ShownPerhaps)
		}
		outcome, events := agentturn.Lost(lost, draft.Agent, t.s.state.definitions[draft.DefinitionHash],
			cloneRounds(draft.rounds), openRound(draft))
		for _, event := range events {
			event.Seq, event.At = int64(len(draft.events)+1), t.s.now()
			draft.events = append(draft.events, event)
			draft.LastSeq++
		}
		draft.writes = append(draft.writes, "")
		t.endLost(lost, draft, endWrite{Consequence: lost.Consequence(false), outcome: outcome}, rings)
	})
	return nil
}

// settleCalls writes the final result of every open call of a turn. perhaps is the text for planned
// calls of effect none.
func (t *turnRow) settleCalls(now time.Time, perhaps string) {
	t.settleArrived(now)
	t.endSpawned(now)
	for i := range t.rounds {
		for j := range t.rounds[i].Calls {
			call := &t.rounds[i].Calls[j]
			if call.State.Answered() {
				continue
			}
			t.closeAwaited(call.Key)
			state, shown := turnkeeper.CallUnknown, agentturn.ShownUnknown
			if call.State == turnkeeper.CallPlanned {
				state, shown = turnkeeper.CallCancelled, agentturn.ShownNotRun
				if call.Effect == turnkeeper.EffectNone {
					shown = perhaps
				}
			} else {
				t.verdicts = append(t.verdicts, call.Key)
				if ask := t.askOf(call.Key, asks.KindApprove, 1); ask != nil && ask.Edited != "" {
					shown += calls.ShownEdited(call.AsRun())
				}
			}
			settle(call, state, shown, now)
		}
	}
}

// settle gives an open call its final result. The model keeps the handle that it was shown.
func settle(call *turnkeeper.ToolCall, state turnkeeper.CallState, text string, now time.Time) {
	if call.State != turnkeeper.CallRunning || call.OutputID == "" {
		call.Shown = text
	}
	call.State, call.Preview, call.EndedAt = state, text, now
}

// endLost ends the dispatch of a lost grant, whose turn the tick has locked.
func (t *tick) endLost(lost granting.LostGrant, draft *turnRow, end endWrite, rings *[]Bell) {
	if draft == nil {
		draft = t.s.state.turn(lost.TurnID).draft()
	}
	if draft.WorkerID == "" {
		draft.WorkerID = lost.WorkerID
	}
	if err := t.s.endDispatch(draft, lost.GrantID, end, rings); err != nil {
		t.s.state.moved = append(t.s.state.moved, fmt.Sprintf("turn %d was taken from its holder: %v",
			lost.TurnID, err))
		return
	}
	t.s.state.setTurn(draft)
	*rings = append(*rings, Bell{Topic: TopicTaken, Grant: lost.GrantID})
	if job := t.s.state.job(lost.JobID); job != nil && job.state != "deleted" {
		job.state = "cancelled"
	}
}

func (t *tick) DueSchedules(_ context.Context, limit int) (list []granting.DueSchedule, err error) {
	err = t.read(func(s *state, now time.Time) {
		for _, sched := range s.schedules {
			row := granting.DueSchedule{
				Agent: sched.Agent, Name: sched.Name, Cron: sched.InForce(), TimeZone: sched.TimeZone,
				Conversation: sched.Conversation, Message: sched.Message, NextDue: sched.NextDue,
				LastSlot: sched.LastSlot,
			}
			if s.levels.effect(sched.Agent, now).NoSchedules {
				row.Level = string(s.levels.of(sched.Agent, now))
			}
			if due(sched, now) && !s.retired(sched.Agent) && !s.aside.has(row.AsideOf(), now) {
				list = append(list, row)
			}
		}
		slices.SortFunc(list, func(a, b granting.DueSchedule) int {
			return cmp.Or(a.NextDue.Compare(b.NextDue), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Name, b.Name))
		})
		list = list[:min(limit, len(list))]
	})
	return list, err
}

// waits reports whether a message of the schedule already waits. That message is also
// the run for the next slot.
func (t *tick) waits(lane turnkeeper.Lane, sched granting.DueSchedule) bool {
	ofSchedule := func(m *turnkeeper.Message) bool {
		return m.Agent == sched.Agent && m.Schedule == sched.Name && m.Trigger == turnkeeper.TriggerSchedule
	}
	return slices.ContainsFunc(t.s.state.waiting[lane], ofSchedule) || slices.ContainsFunc(t.slots, ofSchedule) ||
		slices.ContainsFunc(heldIn(&t.s.state, sched.ConversationKey()), ofSchedule)
}

// heldIn returns the messages that a parked turn of the conversation holds.
func heldIn(s *state, of turnkeeper.ConversationKey) []*turnkeeper.Message {
	for _, turn := range s.open {
		if turn.home != "" && turn.holds && turn.ConversationKey() == of {
			return s.waiting[turn.Lane]
		}
	}
	return nil
}

func (t *tick) Fire(_ context.Context, d granting.SlotDecision) error {
	sched := d.Schedule
	if err := failure(t.s, sched.AsideOf()); err != nil {
		return err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	slot := slotKey{sched.Agent, sched.Name, d.Slot.UnixMicro()}
	lane := laneOf(t.s.state.agents[sched.Agent], sched.ConversationKey())
	if _, taken := t.s.state.slots[slot]; !d.Slot.IsZero() && d.Skipped == "" && !taken && !t.waits(lane, sched) &&
		!t.s.state.retired(sched.Agent) {
		m := &turnkeeper.Message{
			ID: t.s.state.nextMessage(), Agent: sched.Agent, Conversation: sched.Conversation,
			Lane: lane, Body: sched.Message, Trigger: turnkeeper.TriggerSchedule,
			Schedule: sched.Name, Slot: d.Slot, State: turnkeeper.MessageWaiting, DueAt: d.Slot.Truncate(time.Second),
			AcceptedAt: t.s.now(),
		}
		t.slots = append(t.slots, m)
		t.later(func(*[]Bell) {
			t.s.state.insertMessage(m)
			t.s.state.slots[slot] = m.ID
		})
	}
	t.later(func(*[]Bell) {
		row := t.s.state.schedules[scheduleKey{sched.Agent, sched.Name}]
		row.NextDue, row.LastError = d.NextDue, d.Error
		row.Active = row.Active && !d.NextDue.IsZero()
		switch {
		case d.Skipped != "":
			row.SkippedSlot, row.SkippedWhy = d.Slot, d.Skipped
			row.Skipped++
		case !d.Slot.IsZero():
			row.LastSlot, row.SkippedSlot, row.SkippedWhy, row.Skipped = d.Slot, time.Time{}, "", 0
		}
	})
	return nil
}

// NextDue returns how long until something becomes due that was not due at then, at most an hour.
func (c *Conn) NextDue(ctx context.Context, then time.Time) (wait time.Duration, err error) {
	err = c.ask(ctx, "next due", func() error {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		wait = c.store.state.nextDue(then, c.store.now())
		return nil
	})
	return wait, err
}

func (s *state) nextDue(then, now time.Time) time.Duration {
	wait := time.Hour
	consider := func(at time.Time) {
		if at.After(then) {
			wait = min(wait, at.Sub(now))
		}
	}
	eachDue(s, consider)
	for _, row := range s.aside {
		consider(row.nextTry)
	}
	for _, h := range s.models.health {
		consider(h.Until)
	}
	if len(s.levels.spend) > 0 {
		consider(now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)) // levels end
	}
	for _, w := range s.workers {
		if w.StoppedAt.IsZero() && w.TakeoverAfter > 0 {
			consider(granting.SilentFrom(w.BeatAt, s.silenceFrom).Add(w.TakeoverAfter))
		}
	}
	return wait
}

// eachDue calls consider with the times at which schedules, messages, lanes, turns and asks are due.
func eachDue(s *state, consider func(time.Time)) {
	for _, sched := range s.schedules {
		if sched.Active && sched.PausedAt.IsZero() {
			consider(sched.NextDue)
		}
	}
	for _, messages := range s.waiting {
		for _, m := range messages {
			consider(m.DueAt)
		}
	}
	for _, l := range s.leases {
		if l.Held() {
			consider(l.Until)
		} else {
			consider(l.NotBefore)
		}
	}
	for _, turn := range s.open {
		if turn.State == turnkeeper.TurnQueued || len(turn.waitsFor) > 0 {
			consider(turn.DueAt)
		}
		for _, a := range turn.openAsks() {
			consider(a.ExpiresAt)
		}
	}
}
