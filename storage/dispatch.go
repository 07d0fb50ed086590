package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
)

// A Tick is the scheduler's transaction. Look opens it and comes first; it holds
// the scheduler's lock, where Look got it, until it ends.
type Tick struct {
	store *Store
	conn  *pgxpool.Conn
	tx    pgx.Tx // nil before Look
	q     *dbsqlc.Queries
	last  pipeline           // statements without answers, sent with the commit
	ahead []turnkeeper.Ready // all heads of free lanes, read with the look: most ticks need no question more; nil: to be read
}

// InTick runs f in one transaction, which commits when f returns nil. Its begin
// travels with its first statements and its commit with its last: the round
// trips of their own would be a tenth of the way from a message to its grant.
func (s *Store) InTick(ctx context.Context, f func(*Tick) error) error {
	return translate(s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		t := &Tick{store: s, conn: conn}
		err := f(t)
		if err == nil {
			err = t.commit(ctx)
		}
		if err != nil {
			rollBack(ctx, conn)
		}
		return err
	}))
}

func (t *Tick) commit(ctx context.Context) error {
	if t.tx == nil {
		return nil
	}
	return commitWith(ctx, t.conn, &t.last.batch, func() { t.store.at(ctx, PointTickSent) })
}

// Tx is the transaction, for what must become true with the tick.
func (t *Tick) Tx() pgx.Tx { return t.tx }

// Look opens the tick, takes the scheduler's lock if it is free and says what there is to do.
// locked is false while another process ticks; nothing may be done then.
func (t *Tick) Look(ctx context.Context) (sit turnkeeper.Situation, locked bool, err error) {
	var row dbsqlc.LookRow
	var ahead []dbsqlc.ShortQueueRow
	var down []dbsqlc.DownModelsRow
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(dbsqlc.Look, turnkeeper.MaxWaiting).Query(func(rows pgx.Rows) (err error) {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[dbsqlc.LookRow])
		return err
	})
	batch.Queue(dbsqlc.ShortQueue, turnkeeper.MaxWaiting).Query(func(rows pgx.Rows) (err error) {
		ahead, err = pgx.CollectRows(rows, pgx.RowToStructByPos[dbsqlc.ShortQueueRow])
		return err
	})
	batch.Queue(dbsqlc.DownModels).Query(func(rows pgx.Rows) (err error) {
		down, err = pgx.CollectRows(rows, pgx.RowToStructByPos[dbsqlc.DownModelsRow])
		return err
	})
	results := t.conn.SendBatch(ctx, batch)
	t.tx = results.Tx()
	t.q = dbsqlc.New(t.tx)
	if err := results.Close(); err != nil {
		return turnkeeper.Situation{}, false, translate(err)
	}
	if row.Waiting < turnkeeper.MaxWaiting {
		t.ahead = mapRows(ahead, func(r dbsqlc.ShortQueueRow) turnkeeper.Ready { return readyOf(dbsqlc.ReadyMessagesRow(r)) })
	}
	return turnkeeper.Situation{
		Now: row.Now, Paused: row.Paused, PollInterval: orZero(row.PollInterval), MaxDispatches: int(orZero(row.MaxDispatchesPerTick)),
		Timeline: row.CurrentTimeline, SeenTimeline: row.Timeline, Restarted: row.Restarted, LastTickAt: orZero(row.LastTickAt),
		HoldUntil: orZero(row.HoldUntil), HoldReason: row.HoldReason, NewestGrant: row.NewestGrant,
		Lost: row.Lost, Slots: row.Slots, Calls: row.Calls, Spawns: row.Spawns, Queued: row.Queued, Lanes: row.Lanes, Room: int(row.Room), Waiting: int(row.Waiting),
		Down: mapRows(down, downModel),
	}, row.Locked, nil
}

// Note puts the tick on record.
func (t *Tick) Note(ctx context.Context, now time.Time, timeline string) error {
	return t.last.queries().NoteTick(ctx, now, timeline)
}

// CountSilence makes the silence of workers count from then on.
func (t *Tick) CountSilence(ctx context.Context, since time.Time) error {
	return translate(t.q.CountSilence(ctx, since))
}

// Hold makes all schedulers hold off until then. A zero time ends the hold.
func (t *Tick) Hold(ctx context.Context, until time.Time, reason string) error {
	if until.IsZero() {
		return translate(errors.Join(t.q.EndHold(ctx), t.q.TryAllModels(ctx)))
	}
	return translate(t.q.HoldOff(ctx, until, reason))
}

// Lost lists grants whose lease has lapsed or whose worker is silent, oldest
// first, and locks them.
func (t *Tick) Lost(ctx context.Context, limit int) ([]turnkeeper.LostGrant, error) {
	rows, err := t.q.LostGrants(ctx, int32(limit)) //nolint:gosec // small
	return mapRows(rows, func(r dbsqlc.LostGrantsRow) turnkeeper.LostGrant {
		return turnkeeper.LostGrant{
			Lane: turnkeeper.Lane(r.Lane), TurnID: turnkeeper.TurnID(r.TurnID), GrantID: turnkeeper.GrantID(r.GrantID),
			JobID: turnkeeper.JobID(r.JobID), MessageID: turnkeeper.MessageID(r.MessageID), WorkerID: turnkeeper.WorkerID(r.WorkerID),
			Trigger: turnkeeper.Trigger(r.Trigger), GrantedAt: r.GrantedAt, Lapsed: r.Lapsed, Alive: r.Alive, Losses: int(r.Losses),
			Dispatches: int(r.Dispatches), Rounds: int(r.InferenceRounds), LastSeq: r.LastSeq,
		}
	}), translate(err)
}

// Requeue takes the lane from a lost grant and opens its turn to the next. A
// grant that no worker ever took is not counted as a loss.
func (t *Tick) Requeue(ctx context.Context, lost turnkeeper.LostGrant) error {
	t.ahead = nil // its lane is free now
	log := "lost"
	if lost.WorkerID == "" {
		log = "unclaimed"
	}
	return translate(errors.Join(
		t.q.NoteTaker(ctx, string(lost.WorkerID), int64(lost.TurnID)),
		t.q.EndDispatch(ctx, dbsqlc.EndDispatchParams{
			Turn: int64(lost.TurnID), GrantID: string(lost.GrantID), State: string(turnkeeper.TurnQueued), Log: log,
			Lost: lost.WorkerID != "",
		}),
		t.q.CloseJobs(ctx, []int64{int64(lost.JobID)}),
	))
}

// Rounds reads the journal of a turn, for its summary. It fails with
// ErrNewerJournal, and the tick goes on, where only a newer program reads it.
func (t *Tick) Rounds(ctx context.Context, turn turnkeeper.TurnID) ([]turnkeeper.Round, error) {
	ids := []int64{int64(turn)}
	answers, err := t.q.RoundsOfTurns(ctx, ids)
	if err != nil {
		return nil, translate(err)
	}
	calls, err := t.q.CallsOfTurns(ctx, ids)
	if err != nil {
		return nil, translate(err)
	}
	return rounds(answers, calls), readable(answers, calls)
}

// OpenRound is the round of a turn that has begun to stream and is not among the so many
// that its journal has; 0: there is none.
func (t *Tick) OpenRound(ctx context.Context, turn turnkeeper.TurnID, rounds int) (int, error) {
	position, err := t.q.StreamPosition(ctx, int64(turn))
	return openRound(position, rounds), translate(err)
}

// Definition is the file of a turn's agent, as it was when the turn was made.
func (t *Tick) Definition(ctx context.Context, turn turnkeeper.TurnID) (agent string, file []byte, err error) {
	row, err := t.q.DefinitionOfTurn(ctx, int64(turn))
	return row.Agent, []byte(row.Content), translate(err)
}

// SettleCalls gives every open call of a turn its last word: a started one may
// or may not have happened, a planned one has not or, without an effect, perhaps, and one whose
// sub-agent has not replied has ended with the turn.
func (t *Tick) SettleCalls(ctx context.Context, turn turnkeeper.TurnID, unknown, perhaps, notRun, ended string) error {
	return translate(errors.Join(
		t.q.SettleArrivedCalls(ctx, int64(turn)),
		t.q.SettleSpawnCalls(ctx, ended, int64(turn)),
		t.q.SettleOpenCalls(ctx, unknown, perhaps, notRun, int64(turn)),
	))
}

// Close ends a turn whose workers were lost once too often, without running it.
func (t *Tick) Close(ctx context.Context, lost turnkeeper.LostGrant, o turnkeeper.Outcome, events []turnkeeper.Event) error {
	t.ahead = nil // its lane is free now
	return errors.Join(
		translate(t.q.NoteTaker(ctx, string(lost.WorkerID), int64(lost.TurnID))),
		translate(t.q.InsertEvents(ctx, t.store.eventsOf(lost.LastSeq, events).params(lost.TurnID))),
		translate(t.q.BumpSeq(ctx, int32(len(events)), int64(lost.TurnID))), //nolint:gosec // few
		translate(t.q.EndDispatch(ctx, dbsqlc.EndDispatchParams{
			Turn: int64(lost.TurnID), GrantID: string(lost.GrantID), State: string(o.State), Log: "lost", Stop: string(o.StopReason),
			Reply: t.store.clean(o.Reply), InnerDialogue: t.store.clean(o.InnerDialogue), ErrorClass: t.store.clean(o.ErrorClass), Error: t.store.clean(o.Error),
			MessageState: string(turnkeeper.MessageAnswered), Lost: true,
		})),
		translate(queueSilent(ctx, t.q, lost.TurnID, o)),
		translate(t.q.CloseJobs(ctx, []int64{int64(lost.JobID)})),
	)
}

// MoveLanes moves waiting messages out of the lanes that their agents had before.
func (t *Tick) MoveLanes(ctx context.Context) error {
	t.ahead = nil
	return translate(t.q.MoveLanes(ctx))
}

// DueSchedules lists the schedules whose next slot has come or is not known.
func (t *Tick) DueSchedules(ctx context.Context, limit int) ([]turnkeeper.DueSchedule, error) {
	rows, err := t.q.DueSchedules(ctx, int32(limit)) //nolint:gosec // small
	return mapRows(rows, func(r dbsqlc.DueSchedulesRow) turnkeeper.DueSchedule {
		return turnkeeper.DueSchedule{
			Agent: r.Agent, Name: r.Name, Cron: r.Cron, TimeZone: r.TimeZone, Conversation: r.Conversation, Message: r.Message,
			NextDue: orZero(r.NextDue), LastSlot: orZero(r.LastSlot),
		}
	}), translate(err)
}

// Occur turns a due slot into a message, once, and moves the schedule on.
func (t *Tick) Occur(ctx context.Context, d turnkeeper.SlotDecision) error {
	s := d.Schedule
	if !d.Slot.IsZero() {
		t.ahead = nil // there is a message more
		err := t.q.Occur(ctx, dbsqlc.OccurParams{
			Agent: s.Agent, Conversation: s.Conversation, Body: s.Message, Schedule: s.Name, Slot: d.Slot,
		})
		if err != nil {
			return translate(err)
		}
	}
	return translate(t.q.AdvanceSchedule(ctx, dbsqlc.AdvanceScheduleParams{
		Agent: s.Agent, Name: s.Name, NextDue: orNullTime(d.NextDue), LastSlot: orNullTime(d.Slot), LastError: orNull(d.Error),
	}))
}

func orNullTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// ReadyTurns lists open turns that wait for a lease of a free lane. Those of the held agents
// are among them only where they are overdue.
func (t *Tick) ReadyTurns(ctx context.Context, limit int, held []string) ([]turnkeeper.Ready, error) {
	rows, err := t.q.ReadyTurns(ctx, ClassNewer, orNone(held), int32(limit)) //nolint:gosec // small
	return mapRows(rows, func(r dbsqlc.ReadyTurnsRow) turnkeeper.Ready {
		return turnkeeper.Ready{
			TurnID: turnkeeper.TurnID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), Agent: r.Agent, Conversation: r.Conversation,
			Lane: turnkeeper.Lane(r.Lane), Trigger: turnkeeper.Trigger(r.Trigger), Attempt: int(r.Attempt),
			DefinitionHash: r.DefinitionHash, DueAt: r.DueAt, Priority: int(r.Priority), WorkerID: turnkeeper.WorkerID(r.WorkerID),
			Overdue: r.Overdue,
		}
	}), translate(err)
}

// ReadyMessages lists the heads of free lanes, but for those of the held agents. Their turns are
// made by Grant.
func (t *Tick) ReadyMessages(ctx context.Context, limit int, held []string) ([]turnkeeper.Ready, error) {
	if t.ahead != nil && len(held) == 0 {
		ready := t.ahead[:min(limit, len(t.ahead))]
		t.ahead = nil
		return ready, nil
	}
	rows, err := t.q.ReadyMessages(ctx, int32(limit), orNone(held)) //nolint:gosec // small
	return mapRows(rows, readyOf), translate(err)
}

func readyOf(r dbsqlc.ReadyMessagesRow) turnkeeper.Ready {
	return turnkeeper.Ready{
		New: true, MessageID: turnkeeper.MessageID(r.MessageID), Agent: r.Agent,
		Conversation: r.Conversation, Lane: turnkeeper.Lane(r.Lane), Trigger: turnkeeper.Trigger(r.Trigger), Attempt: int(r.Attempt),
		DefinitionHash: r.DefinitionHash, DueAt: r.DueAt, Priority: int(r.Priority),
	}
}

// A Job says which River job rings for a grant.
type Job struct {
	Kind, Queue string
	// QueueOf is the queue that only this worker works. nil: there are none.
	QueueOf func(turnkeeper.WorkerID) string
}

func (j Job) queueFor(r turnkeeper.Ready) string {
	if r.WorkerID == "" || j.QueueOf == nil {
		return j.Queue
	}
	return j.QueueOf(r.WorkerID)
}

// Grant gives each lane its lease, makes or takes the turn, notes the grant and
// inserts its job, in one statement that goes with the tick's commit. grants go
// with ready, index by index. The job's arguments are turn_id and grant_id. The
// tick is undone when a lane was not free after all.
func (t *Tick) Grant(ctx context.Context, ready []turnkeeper.Ready, grants []turnkeeper.GrantID, job Job, ttl time.Duration) error {
	p := dbsqlc.GrantParams{Ttl: ttl, Kind: job.Kind}
	for i, r := range ready {
		p.Lanes = append(p.Lanes, string(r.Lane))
		p.Agents = append(p.Agents, r.Agent)
		p.GrantIds = append(p.GrantIds, string(grants[i]))
		p.TurnIds = append(p.TurnIds, int64(r.TurnID))
		p.MessageIds = append(p.MessageIds, int64(r.MessageID))
		p.Attempts = append(p.Attempts, int32(r.Attempt)) //nolint:gosec // few
		p.Conversations = append(p.Conversations, r.Conversation)
		p.Triggers = append(p.Triggers, string(r.Trigger))
		p.DefinitionHashes = append(p.DefinitionHashes, r.DefinitionHash)
		p.IsNew = append(p.IsNew, r.New)
		p.Queues = append(p.Queues, job.queueFor(r))
	}
	if err := t.last.queries().Grant(ctx, p); err != nil {
		return err
	}
	return t.noteProbes(ctx, ready, grants)
}

// NextDue returns how long until something comes due that was not due then, at most an hour. It
// is zero or less for what has come due since.
func (s *Store) NextDue(ctx context.Context, then time.Time) (time.Duration, error) {
	seconds, err := s.q.NextDue(ctx, then)
	return time.Duration(seconds * float64(time.Second)), translate(err)
}
