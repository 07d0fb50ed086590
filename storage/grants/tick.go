package grants

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
	"turnkeeper/storage/journal"
)

// PointTickSent is the point at which a fault.Hook is called when the commit of a tick has been sent.
const PointTickSent = "tick.sent"

// FaultPoints returns all labels that a fault.Hook may be called with.
func FaultPoints() []string { return []string{PointTickSent} }

// A Tick is the scheduler's transaction. Snapshot must be called first: it opens the
// transaction and tries to take the scheduler's lock, which is held until the end.
type Tick struct {
	store  *Store
	conn   *pgxpool.Conn
	tx     pgx.Tx // nil before Snapshot
	q      *dbsqlc.Queries
	look   look
	last   pg.Pipeline          // statements that are sent with the commit
	asked  time.Time            // when they were sent
	handed []granting.Handed    // read with the commit
	ahead  []granting.Candidate // heads of free lanes, read by Snapshot, which saves most ticks a query; nil: not known
	few    bool                 // the oldest waiting messages that Snapshot looks at are all
	all    bool                 // ahead has all heads of free lanes
	apart  bool                 // Try was called: grants are sent at once
	aside  bool                 // rows are set aside
}

// A floor is where partial looks begin. Each full look notes it. No message without a queue_rank waits, or will wait,
// with a lower rank than waiting: messages that were visible have it, and those that were not yet visible were accepted
// by transactions that began after an earlier look, and are due no earlier than that. The exceptions are found by the
// next full look: a grant that becomes visible more than lateCommit after it was made, and messages that the last full
// look skipped because their lanes paused.
type floor struct {
	mu            sync.Mutex
	waiting, held time.Time
	passedSome    bool          // the last full look skipped messages of lanes that paused
	looks         []past        // newest last, at most maxLooks
	ttl           time.Duration // of the leases that this process grants; 0: not known yet
	room          int           // free slots that the last look found
}

// A past is a look that took the transaction id own: transactions with a higher one began to write later.
type past struct {
	at  time.Time
	own int64
}

const (
	maxLooks  = 40
	looksEach = 100 * time.Millisecond // least time between two that are kept
)

// lateCommit is the time from a grant to the commit that makes it visible which partial looks allow for. A message is
// due at most that long before its transaction gets an id: due times are whole seconds.
const lateCommit = 2 * time.Second

// A look says where a look at messages and leases begins. The zero time is the beginning.
type look struct {
	waiting time.Time // the rank of the first message
	ordered time.Time // from which rank on another message may be ahead of one that it finds
	held    time.Time // the end of the first lease
	heads   int       // how many heads of lanes it asks for
	passed  int32     // how many messages of lanes that pause it passes over at most
}

// partial returns the partial look. It asks for twice as many heads as there were free slots, so that a long queue
// costs little while workers are busy.
func (f *floor) partial() look {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := look{f.waiting, f.waiting, f.held, min(max(2*f.room, leastHeads), granting.MaxWaiting), 0}
	if f.passedSome {
		l.ordered = time.Time{}
	}
	return l
}

// maxPassed is how many messages of lanes that pause a full look passes over to find the oldest of the others, where
// partial looks begin. It takes a few microseconds for each.
const maxPassed = 100_000

// leastHeads is the least number of heads that a tick asks for.
const leastHeads = 8

func (f *floor) setRoom(room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room = int(room)
}

func (f *floor) set(row dbsqlc.SnapshotRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting, f.held = f.unseen(row.FirstOpen), row.Now.Add(f.ttl-lateCommit)
	f.passedSome = row.PassedSome
	if row.WaitingFrom.Before(f.waiting) { // no time is before the beginning
		f.waiting = row.WaitingFrom
	}
	// else none is held, and later grants end later
	if row.HeldFrom.Before(f.held) && row.HeldFrom.After(time.Unix(0, 0)) {
		f.held = row.HeldFrom
	}
}

// unseen returns a time after which all messages are due that a transaction accepts which is not visible yet: the
// newest look before the oldest open transaction, less lateCommit. It is the zero time if no look is kept from before
// it.
func (f *floor) unseen(firstOpen int64) time.Time {
	for _, look := range slices.Backward(f.looks) {
		if look.own < firstOpen {
			return look.at.Add(-lateCommit)
		}
	}
	return time.Time{}
}

// saw notes a look.
func (f *floor) saw(row dbsqlc.SnapshotRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.looks); row.OwnID == 0 || n > 0 && row.Now.Sub(f.looks[n-1].at).Abs() < looksEach {
		return
	}
	f.looks = append(f.looks, past{row.Now, row.OwnID})
	if len(f.looks) > maxLooks {
		f.looks = f.looks[1:]
	}
}

// setTTL notes how long new leases last.
func (f *floor) setTTL(ttl time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ttl = ttl
}

// A laneScan limits the share of the time that ReadyMessages takes to go from lane to lane. It does that
// only if most of the oldest messages are in busy lanes, or are not the first of their lanes.
type laneScan struct {
	long time.Duration // the duration of a query from which on the next one must wait
	mu   sync.Mutex
	next time.Time // not before
	left bool      // a scan was left out since the last one
}

// After a query that took longScan or more, laneScanPause times its duration must pass before the next one.
const (
	longScan      = 20 * time.Millisecond
	laneScanPause = 10
)

// due reports whether a scan may be made now.
func (s *laneScan) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = now.Before(s.next)
	return !s.left
}

// took notes a query that may have scanned.
func (s *laneScan) took(began, ended time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := ended.Sub(began); took >= s.long {
		s.next = ended.Add(laneScanPause * took)
	}
}

// until returns how long until a scan that was left out may be made; ok is false if none was.
func (s *laneScan) until(now time.Time) (d time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next.Sub(now), s.left
}

// InTick runs f in one transaction, which commits if f returns nil. BEGIN is sent with
// the first statements and COMMIT with the last ones: separate round trips would be a
// tenth of the time from a message to its grant.
func (s *Store) InTick(ctx context.Context, f func(*Tick) error) error {
	return pg.Translate(s.db.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		t := &Tick{store: s, conn: conn}
		err := f(t)
		if err == nil {
			err = t.commit(ctx)
		}
		if err != nil {
			pg.RollBack(ctx, conn)
		}
		return err
	}))
}

func (t *Tick) commit(ctx context.Context) error {
	if t.tx == nil {
		return nil
	}
	t.asked = time.Now()
	return t.last.Commit(ctx, t.conn, func() { t.store.db.At(ctx, PointTickSent) })
}

// Handed returns the turns that Grant has handed over, once the tick is committed.
func (t *Tick) Handed() []granting.Handed { return t.handed }

// Handed returns those of the grants that a tick has handed over to the worker, and that are still in
// force. If a tick is in progress, Handed waits for its end, so that no other grants can follow. While the
// database is unavailable, it retries until ctx ends.
func (s *Store) Handed(ctx context.Context, worker turnkeeper.WorkerID,
	grants []turnkeeper.GrantID) (handed []granting.Handed, err error) {
	ids := dbrow.Texts(grants)
	err = s.db.Patiently(ctx, func() error {
		return pg.Translate(pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
			q := dbsqlc.New(tx)
			if err := q.AwaitTick(ctx); err != nil {
				return err
			}
			read := time.Now()
			turns, err := q.TurnsOfGrants(ctx, ids)
			if err != nil {
				return err
			}
			rows, err := q.TurnForWorker(ctx, turns, []string{}, []string{})
			handed = nil
			for i := range rows {
				row := &rows[i]
				grant := turnkeeper.GrantID(dbrow.OrZero(row.GrantID))
				if slices.Contains(grants, grant) && journal.Holds(row, grant) &&
					dbrow.OrZero(row.WorkerID) == string(worker) {
					handed = append(handed, s.handedOf(row, read))
				}
			}
			return err
		}))
	})
	return handed, err
}

func (s *Store) handedOf(row *dbsqlc.TurnForWorkerRow, read time.Time) granting.Handed {
	turn := dbrow.TurnForWorker(row)
	return granting.Handed{TurnID: turn.ID, GrantID: turn.GrantID, Read: read,
		Load: func(ctx context.Context) (*turnlog.Record, error) {
			return s.journals.CompletePatiently(ctx, row)
		}}
}

// Snapshot begins the tick: it tries to take the scheduler's lock and returns what is due.
// locked is false if another process holds the lock; the tick must then end without changes. Unless
// everything is set, the snapshot lacks what can be lost or due rarely: see Store in package scheduler.
func (t *Tick) Snapshot(ctx context.Context, everything bool) (sit granting.Snapshot, locked bool, err error) {
	var row dbsqlc.SnapshotRow
	var ahead []dbsqlc.ReadyMessagesRow
	var down []dbsqlc.DownModelsRow
	t.look = t.store.floor.partial()
	waiting, held := t.look.waiting, t.look.held
	if everything {
		waiting, held, t.look.passed = time.Time{}, time.Time{}, maxPassed
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(dbsqlc.LockTick).QueryRow(func(row pgx.Row) error { return row.Scan(&locked) })
	batch.Queue(dbsqlc.Snapshot, everything, held, granting.MaxWaiting, waiting,
		t.look.passed).Query(func(rows pgx.Rows) (err error) {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[dbsqlc.SnapshotRow])
		return err
	})
	batch.Queue(dbsqlc.ReadyMessages, []string{}, []string{}, false, t.look.ordered, t.look.heads,
		granting.MaxWaiting, t.look.waiting, []string{}, t.look.passed).Query(func(rows pgx.Rows) (err error) {
		ahead, err = pgx.CollectRows(rows, pgx.RowToStructByPos[dbsqlc.ReadyMessagesRow])
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
		return granting.Snapshot{}, false, pg.Translate(err)
	}
	if everything && locked {
		t.store.floor.set(row)
	}
	t.store.floor.saw(row)
	t.ahead = dbrow.Map(ahead, readyOf)
	if row.WaitingFrom.Before(t.look.waiting) { // a message waits that was not looked at: somebody changed its row
		t.lookAgain()
	}
	t.few = row.Waiting < granting.MaxWaiting
	t.all = t.few && len(ahead) < t.look.heads
	t.store.floor.setRoom(row.FreeSlots)
	t.aside = row.Aside > 0
	return granting.Snapshot{
		Now: row.Now, Paused: row.Paused, PollInterval: dbrow.OrZero(row.PollInterval),
		MaxDispatches: int(dbrow.OrZero(row.MaxDispatchesPerTick)),
		Timeline:      row.CurrentTimeline, SeenTimeline: row.Timeline, Restarted: row.Restarted,
		LastTickAt: dbrow.OrZero(row.LastTickAt),
		HoldUntil:  dbrow.OrZero(row.HoldUntil), HoldReason: row.HoldReason, NewestGrant: newestOf(row.NewestGrant),
		QueryTime: time.Duration(row.TookUs) * time.Microsecond,
		Lost:      row.Lost, DueSchedules: row.DueSchedules, Calls: row.Calls, Spawns: row.Spawns, Asks: row.Asks,
		Held:   row.Held,
		Queued: row.Queued, Lanes: row.Lanes, Levels: row.Levels, FreeSlots: int(row.FreeSlots), Running: row.Running,
		Waiting: int(row.Waiting),
		Aside:   row.Aside > 0, Retry: row.Retry,
		Down: dbrow.Map(down, dbrow.DownModel),
	}, locked, nil
}

// newestOf returns the time of a lane's newest grant, for which the query has the epoch if there is none.
func newestOf(at time.Time) time.Time {
	if at.Unix() == 0 {
		return time.Time{}
	}
	return at
}

// Note records the tick.
func (t *Tick) Note(ctx context.Context, now time.Time, timeline string) error {
	return t.last.Queries().NoteTick(ctx, now, timeline)
}

// CountSilence makes the silence of workers count from since: before that, they could
// not write heartbeats.
func (t *Tick) CountSilence(ctx context.Context, since time.Time) error {
	return pg.Translate(t.q.CountSilence(ctx, since))
}

// Hold keeps all schedulers from taking turns from workers until then. A zero time ends
// the hold-off.
func (t *Tick) Hold(ctx context.Context, until time.Time, reason string) error {
	if until.IsZero() {
		t.lookAgain() // back-offs end
		return pg.Translate(errors.Join(t.q.EndHold(ctx), t.q.TryAllModels(ctx)))
	}
	return pg.Translate(t.q.HoldOff(ctx, until, reason))
}

// MoveLanes moves waiting messages from the former lanes of their agents to the current
// ones.
func (t *Tick) MoveLanes(ctx context.Context) error {
	t.lookAgain()
	return pg.Translate(t.q.MoveLanes(ctx, t.apart))
}

// lookAgain makes ReadyMessages look at all waiting messages, because others than Snapshot has read may be heads now.
func (t *Tick) lookAgain() {
	t.ahead, t.look = nil, look{passed: maxPassed}
}

// ReadyTurns lists queued turns that are due. It leaves out those of the held agents
// unless they are overdue, and those of the full agents.
func (t *Tick) ReadyTurns(ctx context.Context, limit int, held []string, full ...string) ([]granting.Candidate, error) {
	rows, err := t.q.ReadyTurns(ctx, journal.ClassNewer, dbrow.OrEmpty(held), dbrow.OrEmpty(full),
		int32(limit)) //nolint:gosec // small
	return dbrow.Map(rows, func(r dbsqlc.ReadyTurnsRow) granting.Candidate {
		return granting.Candidate{
			TurnID: turnkeeper.TurnID(r.ID), MessageID: turnkeeper.MessageID(r.MessageID), Agent: r.Agent,
			User: r.UserName, Conversation: r.Conversation,
			Lane: turnkeeper.Lane(r.Lane), Trigger: turnkeeper.Trigger(r.Trigger), Attempt: int(r.Attempt),
			DefinitionHash: r.DefinitionHash, Rank: r.Rank, MaxRunning: int(r.MaxRunning),
			WorkerID: turnkeeper.WorkerID(r.WorkerID),
			Overdue:  r.Overdue,
		}
	}), pg.Translate(err)
}

// ReadyMessages lists the heads of free lanes, except those of the held agents that are not overdue, and those of the
// full agents. Grant creates their turns. If it took long a short time ago to go from lane to lane, it lists only the
// heads among the oldest messages: NextDue says when to ask again.
func (t *Tick) ReadyMessages(ctx context.Context, limit int, held []string,
	full ...string) ([]granting.Candidate, error) {
	began, known := time.Now(), t.ahead != nil
	ready := slices.DeleteFunc(slices.Clone(t.ahead), func(c granting.Candidate) bool {
		return !c.Overdue && slices.Contains(held, c.Agent) || slices.Contains(full, c.Agent)
	})
	p := dbsqlc.ReadyMessagesParams{
		MaxHeads:   int32(limit), //nolint:gosec // small
		MaxWaiting: granting.MaxWaiting, Held: dbrow.OrEmpty(held),
		FullAgents: dbrow.OrEmpty(full), PassedAgents: []string{},
		WaitingFrom: t.look.waiting, OrderedFrom: t.look.ordered, MaxPassed: t.look.passed,
	}
	if known && (t.all || len(ready) >= limit) {
		return ready[:min(limit, len(ready))], nil // t.ahead stays: the next call has other full agents
	}
	t.ahead = nil
	if !t.few {
		p.PassedAgents = dbrow.OrEmpty(slices.Concat(held, full))
	}
	if !known || t.few || len(p.PassedAgents) > 0 { // else this finds no more than Snapshot
		more, err := t.readyMessages(ctx, p)
		if err != nil {
			return nil, err
		}
		ready = slices.Concat(more, slices.DeleteFunc(ready, func(c granting.Candidate) bool {
			return slices.ContainsFunc(more, func(m granting.Candidate) bool { return m.MessageID == c.MessageID })
		}))
	}
	if t.few || len(ready) >= limit || !t.store.scan.due(began) {
		return ready[:min(limit, len(ready))], nil
	}
	p.EveryLane = true
	defer func() { t.store.scan.took(began, time.Now()) }()
	return t.readyMessages(ctx, p)
}

func (t *Tick) readyMessages(ctx context.Context, p dbsqlc.ReadyMessagesParams) ([]granting.Candidate, error) {
	rows, err := t.q.ReadyMessages(ctx, p)
	return dbrow.Map(rows, readyOf), pg.Translate(err)
}

func readyOf(r dbsqlc.ReadyMessagesRow) granting.Candidate {
	return granting.Candidate{
		New: true, MessageID: turnkeeper.MessageID(r.MessageID), Agent: r.Agent,
		User: r.UserName, Conversation: r.Conversation, Lane: turnkeeper.Lane(r.Lane),
		Trigger: turnkeeper.Trigger(r.Trigger), Attempt: int(r.Attempt),
		DefinitionHash: r.DefinitionHash, Rank: r.Rank, MaxRunning: int(r.MaxRunning), Overdue: r.Overdue,
	}
}

// A Job describes the River job of a grant.
type Job struct {
	Kind, Queue string
	// QueueOf returns the queue that only this worker works. nil: no worker has one.
	QueueOf func(turnkeeper.WorkerID) string
}

func (j Job) queueFor(r granting.Candidate) string {
	if r.WorkerID == "" || r.Slot != "" || j.QueueOf == nil {
		return j.Queue
	}
	return j.QueueOf(r.WorkerID)
}

// Grant grants each of ready its lane: it takes the lease, creates the turn or takes the
// queued one, logs the grant, and inserts its job, in one statement that is sent with
// the tick's commit. grants[i] is the id for ready[i]. The job's arguments are turn_id
// and grant_id. If a lane is not free, the commit fails and the tick is undone. It hands
// over the turns that have a slot: see Handed.
func (t *Tick) Grant(ctx context.Context, ready []granting.Candidate, grants []turnkeeper.GrantID, job Job,
	ttl time.Duration) error {
	t.store.floor.setTTL(ttl)
	p := dbsqlc.GrantParams{Ttl: ttl, Kind: job.Kind}
	var handed, lanes []string
	for i, r := range ready {
		p.Lanes = append(p.Lanes, string(r.Lane))
		p.Agents = append(p.Agents, r.Agent)
		p.GrantIds = append(p.GrantIds, string(grants[i]))
		p.TurnIds = append(p.TurnIds, int64(r.TurnID))
		p.MessageIds = append(p.MessageIds, int64(r.MessageID))
		p.Attempts = append(p.Attempts, int32(r.Attempt)) //nolint:gosec // few
		p.UserNames, p.Conversations = append(p.UserNames, r.User), append(p.Conversations, r.Conversation)
		p.Triggers = append(p.Triggers, string(r.Trigger))
		p.DefinitionHashes = append(p.DefinitionHashes, r.DefinitionHash)
		p.IsNew = append(p.IsNew, r.New)
		p.Queues = append(p.Queues, job.queueFor(r))
		p.HandedTo = append(p.HandedTo, "")
		if r.Slot != "" {
			p.HandedTo[i] = string(r.WorkerID)
			handed, lanes = append(handed, string(grants[i])), append(lanes, string(r.Lane))
		}
	}
	if t.apart {
		return t.grantNow(ctx, p, ready, grants, lanes, handed)
	}
	if err := t.last.Queries().Grant(ctx, p); err != nil {
		return err
	}
	if len(handed) > 0 {
		t.last.Queue(func(q *dbsqlc.Queries) error {
			rows, err := q.TurnForWorker(ctx, nil, nil, nil)
			t.handed = t.handedOf(rows, t.asked)
			return err
		}, dbsqlc.TurnForWorker, []int64{}, lanes, handed)
	}
	return t.noteProbes(ctx, t.last.Queries(), ready, grants)
}

// grantNow is the end of Grant in a tick whose parts are tried apart.
func (t *Tick) grantNow(ctx context.Context, p dbsqlc.GrantParams, ready []granting.Candidate,
	grants []turnkeeper.GrantID, lanes, handed []string) error {
	read := time.Now()
	if err := t.q.Grant(ctx, p); err != nil {
		return pg.Translate(err)
	}
	if err := t.noteProbes(ctx, t.q, ready, grants); err != nil || len(handed) == 0 {
		return pg.Translate(err)
	}
	rows, err := t.q.TurnForWorker(ctx, []int64{}, lanes, handed)
	if err == nil {
		t.handed = append(t.handed, t.handedOf(rows, read)...)
	}
	return pg.Translate(err)
}

func (t *Tick) handedOf(rows []dbsqlc.TurnForWorkerRow, read time.Time) []granting.Handed {
	var handed []granting.Handed
	for i := range rows {
		handed = append(handed, t.store.handedOf(&rows[i], read))
	}
	return handed
}

// Try runs a part of the tick that is about the subjects, in a savepoint. If it fails, it is undone, and failed is its
// error; a single subject is set aside. err means that the tick itself cannot go on: the error is of the connection or
// the server, not of one row.
func (t *Tick) Try(ctx context.Context, subjects []granting.Subject, f func() error) (failed, err error) {
	t.apart = true
	handed := t.handed
	if _, err := t.tx.Exec(ctx, "savepoint part"); err != nil {
		return nil, pg.Translate(err)
	}
	if failed = f(); failed == nil {
		// what would fail at the commit fails here
		_, failed = t.tx.Exec(ctx, "set constraints all immediate; release savepoint part")
		failed = pg.Translate(failed)
	}
	if failed == nil {
		return nil, t.notAside(ctx, subjects)
	}
	if !pg.BelongsToRow(failed) {
		return nil, failed
	}
	t.handed = handed // the database is as it was before
	t.lookAgain()     // other lanes may be free
	if _, err := t.tx.Exec(ctx, "rollback to savepoint part; release savepoint part"); err != nil {
		return nil, errors.Join(failed, pg.Translate(err))
	}
	if len(subjects) != 1 {
		return failed, nil
	}
	t.aside = true
	return failed, t.store.db.PutAside(ctx, t.q, string(subjects[0].Kind), subjects[0].ID, failed)
}

// notAside records that the subjects are set aside no longer. If that fails, it is recorded as a failed step, and the
// subjects' work is kept.
func (t *Tick) notAside(ctx context.Context, subjects []granting.Subject) error {
	if !t.aside {
		return nil
	}
	kinds := dbrow.Map(subjects, func(s granting.Subject) string { return string(s.Kind) })
	ids := dbrow.Map(subjects, func(s granting.Subject) string { return s.ID })
	failed := pgx.BeginFunc(ctx, t.tx, func(pgx.Tx) error { return t.q.ForgetAside(ctx, kinds, ids) })
	if !pg.BelongsToRow(failed) {
		return pg.Translate(failed)
	}
	return t.store.db.PutAside(ctx, t.q, string(granting.AsideStep), "rows set aside", failed)
}

// ForgetAside forgets the rows that are set aside and need no work any more.
func (t *Tick) ForgetAside(ctx context.Context) error { return pg.Translate(t.q.ForgetAsideOver(ctx)) }

// TickFailed records that ticks fail, in a transaction of its own. With nil it forgets that they did.
func (s *Store) TickFailed(ctx context.Context, failed error) error {
	if failed == nil {
		return pg.Translate(s.db.Q.ForgetAside(ctx, []string{string(granting.AsideTick)}, []string{""}))
	}
	return s.db.PutAside(ctx, s.db.Q, string(granting.AsideTick), "", failed)
}

// NextDue returns how long until something becomes due that was not due at then, at most an hour.
// It returns zero or less if something has become due since.
func (s *Store) NextDue(ctx context.Context, then time.Time) (time.Duration, error) {
	seconds, err := s.db.Q.NextDue(ctx, then, s.floor.partial().held)
	due := time.Duration(seconds * float64(time.Second))
	if d, left := s.scan.until(time.Now()); left {
		due = min(due, max(d, 0))
	}
	return due, pg.Translate(err)
}

// SettleSpawned delivers results of sub-agents to their parents, ends the wait for overdue
// sub-agents if timely is set (the clock can be trusted), and cancels sub-agents whose call no longer
// waits. It returns the number of sub-agents that it changed, at most limit of each kind.
func (t *Tick) SettleSpawned(ctx context.Context, timely bool, limit int) (int, error) {
	t.ahead = nil                                          // what waits may be closed now
	n, err := t.q.SettleSpawned(ctx, timely, int32(limit)) //nolint:gosec // small
	return int(n), pg.Translate(err)
}

// ExpireAsks closes asks whose time is over, at most limit, and queues their turns. It returns how many it closed.
func (t *Tick) ExpireAsks(ctx context.Context, limit int) (int, error) {
	n, err := t.q.ExpireAsks(ctx, int32(limit)) //nolint:gosec // small
	return int(n), pg.Translate(err)
}

// MoveLevels moves messages that the survival levels of their agents hold out of the lanes that they would block, and
// those that they hold no longer back. It returns how many changed.
func (t *Tick) MoveLevels(ctx context.Context) (int, error) {
	n, err := t.q.MoveLevels(ctx, granting.MaxWaiting)
	if n > 0 {
		t.ahead = nil
	}
	return int(n), pg.Translate(err)
}

// MoveHeld moves messages that a parked turn holds out of the lanes that they would block, and returns how many. It
// looks at the oldest waiting messages: those behind them block nothing yet.
func (t *Tick) MoveHeld(ctx context.Context) (int, error) {
	n, err := t.q.MoveHeld(ctx, granting.MaxWaiting)
	if n > 0 {
		t.ahead = nil
	}
	return int(n), pg.Translate(err)
}
