package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/storesuite"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestSuite runs the suite that the store in memory passes, too.
func TestSuite(t *testing.T) {
	testrun.Guard(t)
	storesuite.Run(t, openDoor)
}

func openDoor(t *testing.T) storesuite.Store {
	t.Parallel()
	return openAnother(t)
}

func openAnother(t *testing.T) storesuite.Store {
	db := storagetest.Reused(t, inFarZone)
	s := &site{db, t, db.URL}
	t.Cleanup(func() { s.wantPromises(t) })
	return &door{site: s}
}

// inFarZone makes UTC+14 the time zone of the database's sessions. Nothing may depend on it.
const inFarZone = `do $$ begin
	execute format('alter database %I set timezone = %L', current_database(), 'Pacific/Kiritimati');
end $$`

// unchecked are promises that the suite breaks on purpose: it moves times, builds trees above the bounds, and writes
// recipes without parts.
var unchecked = []string{
	"every call was started under the grant that its turn had at that time", "the grants of a lane do not overlap",
	"a tree of sub-agents keeps its bounds, and no agent is its own ancestor",
	"all parts of a round's request are stored",
}

// wantPromises checks what turnctl check does.
func (s *site) wantPromises(t *testing.T) {
	promises, err := s.Check(context.Background(), false)
	if err != nil {
		t.Error(err)
	}
	for _, p := range promises {
		if len(p.Broken) > 0 && !slices.Contains(unchecked, p.Text) {
			t.Errorf("broken: %s: %s", p.Text, strings.Join(p.Broken, ", "))
		}
	}
}

// TestBlockers checks that a tick grants what has no blocker.
func TestBlockers(t *testing.T) {
	storesuite.Walks(t, openAnother, testrun.Count(3, 20), 40)
}

// A door implements storesuite.Store with a site.
type door struct {
	*site
	cutter *cutter
	far    *storagetest.DB // a store that connects through the cutter; nil: not used yet
	ears   *pgx.Conn       // hears the doorbells of schedulers; nil: not used yet
}

// Rang reports whether schedulers have been notified since the last call.
func (d *door) Rang() (rang bool) {
	ctx := d.t.Context()
	if d.ears == nil {
		var err error
		if d.ears, err = pgx.Connect(ctx, d.url); err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = d.ears.Close(context.Background()) })
		if _, err := d.ears.Exec(ctx, "listen turnkeeper_inbox; listen heard_all"); err != nil {
			d.t.Fatal(err)
		}
	}
	d.exec("notify heard_all")
	for {
		n, err := d.ears.WaitForNotification(ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		if n.Channel == "heard_all" {
			return rang
		}
		rang = true
	}
}

func (d *door) Scheduler() scheduler.Store {
	return &jobs.Dispatcher{Grants: d.DB.Grants, TTL: storesuite.LeaseTTL}
}

func (d *door) Register(a turnkeeper.AgentRegistration) {
	if err := d.RegisterAgents(d.t.Context(), []turnkeeper.AgentRegistration{a}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Beat(h presence.Heartbeat) {
	if err := d.DB.Beat(d.t.Context(), h); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Present(worker turnkeeper.WorkerID) (gone func()) {
	bell := storage.NewNotifier(d.url, zap.NewNop())
	bell.Worker = worker
	ctx, stop := context.WithCancel(d.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bell.Run(ctx)
	}()
	d.await("turnkeeper.worker_present($1)", worker)
	return func() {
		stop()
		<-ended
		d.await("not turnkeeper.worker_present($1)", worker)
	}
}

// Fetch takes jobs with the same update as River's client.
func (d *door) Fetch(worker turnkeeper.WorkerID) []storesuite.Job {
	rows, err := d.Pool().Query(d.t.Context(),
		`update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = $1
		where state = 'available' and kind = 'AgentTurn' returning id, (args ->> 'turn_id')::bigint, args ->> 'grant_id'`, []string{string(worker)})
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	var all []storesuite.Job
	for rows.Next() {
		var job storesuite.Job
		if err := rows.Scan(&job.ID, &job.TurnID, &job.GrantID); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, job)
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
	return all
}

func (d *door) ForgetFetch(job turnkeeper.JobID) {
	d.exec(
		`update turnkeeper.river_job set state = 'available', attempt = 0, attempted_at = null, attempted_by = null
		where id = $1 and state = 'running'`, job)
}

func (d *door) FetchCalls(worker turnkeeper.WorkerID) []turnlog.CallRef {
	rows, err := d.Pool().Query(d.t.Context(),
		`update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = $1
		where state = 'available' and kind = 'DetachedCall'
		returning (args ->> 'turn_id')::bigint, (args ->> 'round')::int, (args ->> 'ordinal')::int, (args ->> 'attempt')::int`, []string{string(worker)})
	if err != nil {
		d.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref turnlog.CallRef, err error) {
		return ref, row.Scan(&ref.TurnID, &ref.Key.Round, &ref.Key.Ordinal, &ref.Attempt)
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

func (d *door) Arrive(ctx context.Context, c turnlog.ClaimedCall, r turnlog.CallResult) error {
	return d.overCutter().Arrive(ctx, c, r)
}

// Journal returns a journal that writes through the cutter, where the suite can drop requests.
func (d *door) Journal(record *turnlog.Record, grant turnkeeper.Grant) agentturn.Journal {
	return jobs.NewJournal(d.overCutter().Journals, record, grant)
}

func (d *door) EndTurn(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd) (bool, error) {
	end := d.CancelTurn
	if how == turnlog.EndFinish {
		end = d.FinishTurn
	}
	done, err := end(ctx, id, "asked by the suite")
	return done.Closed, err
}

func (d *door) CancelMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.TurnID, bool, error) {
	done, err := d.Store.CancelMessage(ctx, id, "asked by the suite")
	return done.Turn, done.Closed, err
}

func (d *door) overCutter() *storagetest.DB {
	if d.far == nil {
		var url string
		d.cutter, url = newCutter(d.t, d.url)
		d.far = storagetest.Open(d.t, url)
	}
	return d.far
}

func (d *door) Extractions() extract.Cache { return d.Journals }

func (d *door) CutNext(done bool) { d.cutter.cutNext(done) }

func (d *door) Effect(ctx context.Context, name string) {
	tx, ok := storage.TxFrom(ctx)
	if !ok {
		d.t.Error("there is no transaction")
		return
	}
	if _, err := tx.Exec(ctx, "insert into turnkeeper.notes (agent, name, content) values ('clerk', $1, 'x')",
		name); err != nil {
		d.t.Error(err)
	}
}

func (d *door) Outputs() toolrun.Outputs { return d.Journals }

func (d keeper) Sweep() {
	if err := d.SweepDrafts(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *door) Effects() []string {
	return one[[]string](d.site, "select coalesce(array_agg(name), '{}') from turnkeeper.notes")
}

func (d *door) Retire(agent string, retired bool) {
	change := d.RestoreAgent
	if retired {
		change = d.RetireAgent
	}
	if err := change(d.t.Context(), agent); err != nil {
		d.t.Fatal(err)
	}
}

// failures are the triggers that make rows fail, by kind: table, event and condition. The row's id, split at slashes,
// is in id.
var failures = map[granting.SubjectKind]string{
	granting.AsideMessage:  "insert on turnkeeper.turns for each row when (new.message_id::text = '%[1]s')",
	granting.AsideTurn:     "update on turnkeeper.turns for each row when (new.id::text = '%[1]s')",
	granting.AsideCall:     "update on turnkeeper.detached_calls for each row when (format('%%s/%%s/%%s', new.turn_id, new.round, new.ordinal) = '%[1]s')",
	granting.AsideSchedule: "update on turnkeeper.schedules for each row when (new.agent || '/' || new.name = '%[1]s')",
}

func (d *door) Fail(row granting.Subject, fails bool) {
	if !fails {
		d.exec("drop function fails cascade")
		return
	}
	d.exec(
		"create function fails() returns trigger language plpgsql as $$ begin raise exception 'a fault of the suite'; end $$")
	d.exec(fmt.Sprintf("create trigger fails before "+failures[row.Kind]+" execute function fails()", row.ID))
}

// passes moves all times in the tables into the past by a number of microseconds, but those of the server and of
// River's own work.
const passes = `do $$ declare t record; begin
	for t in select c.relname, string_agg(format('%%1$I = %%1$I - interval ''%[1]d us''', a.attname), ', ') as moves
		from pg_class c join pg_attribute a on a.attrelid = c.oid -- views of information_schema take three times as long
		where c.relnamespace = 'turnkeeper'::regnamespace and c.relkind in ('r', 'p') and a.atttypid = 'timestamptz'::regtype
			and a.attgenerated = '' and a.attname <> 'server_started'
			and (c.relname, a.attname) <> ('asks', 'closed_at') -- a trigger keeps it
			and (c.relname not like 'river%%' or c.relname = 'river_job' and a.attname = 'attempted_at')
		group by c.relname loop
		execute format('update turnkeeper.%%I set %%s', t.relname, t.moves);
	end loop;
end $$`

// Pass simulates that time passes.
func (d *door) Pass(p time.Duration) {
	d.exec(fmt.Sprintf(passes, p.Microseconds()))
	if days := int(p / (24 * time.Hour)); days != 0 {
		d.exec(
			"update turnkeeper.spend set period = to_char(period::date - $1::integer, 'YYYY-MM-DD') where period <> ''",
			days)
	}
}

func (d *door) Budget() agentturn.Budget { return &jobs.Spend{Grants: d.DB.Grants} }

func (d *door) PinLevel(agent string, level survival.Level) {
	var err error
	if level == "" {
		err = d.UnpinLevel(d.t.Context(), agent)
	} else {
		err = d.Store.PinLevel(d.t.Context(), operate.Pin{Agent: agent, Level: level, By: "ada"})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// A keeper implements storesuite.Keeper.
type keeper struct{ *door }

func (d *door) Keeper() storesuite.Keeper { return keeper{d} }

func (d keeper) Expire(class retention.Class, kept time.Duration) int {
	done, err := d.Store.Expire(d.t.Context(), class, kept)
	if err != nil || done.Kept > 0 {
		d.t.Fatal(err, done.Kept)
	}
	return done.Turns
}

func (d *door) Schedule(agent, name string) turnkeeper.Schedule {
	all, err := d.Schedules(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, s := range all {
		if s.Agent == agent && s.Name == name {
			return s
		}
	}
	return turnkeeper.Schedule{}
}

func (d keeper) Rows() ([]turnkeeper.MessageID, []turnkeeper.TurnID) {
	const ids = "select coalesce(array_agg(id order by id), '{}') from turnkeeper."
	return one[[]turnkeeper.MessageID](d.site, ids+"messages"), one[[]turnkeeper.TurnID](d.site, ids+"turns")
}

func (d *door) Message(id turnkeeper.MessageID) turnkeeper.Message {
	m, err := d.Store.Message(d.t.Context(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return m.Message
}

func (d *door) FindMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error) {
	m, err := d.Store.Message(ctx, id)
	return m.Message, err
}

func (d *door) Reply(id turnkeeper.MessageID) (turnkeeper.Reply, bool) {
	reply, err := d.ReplyTo(d.t.Context(), id)
	return reply, err == nil
}

func (d *door) Blockers(id turnkeeper.MessageID) []waiting.Reason {
	return one[[]waiting.Reason](d.site, fmt.Sprintf(
		"select coalesce(array_agg(reason), '{}') from turnkeeper.blockers(%d)", id))
}

func (d *door) turnView(id turnkeeper.TurnID) operate.TurnView {
	view, err := d.ViewTurn(d.t.Context(), id)
	if err != nil {
		d.t.Fatal(err)
	}
	return view
}

func (d *door) Turn(id turnkeeper.TurnID) (turnkeeper.Turn, []turnkeeper.Round) {
	view := d.turnView(id)
	view.Turn.Silence, view.Turn.UnderWay = nil, nil // for operators: they differ with each query
	return view.Turn, view.Rounds
}

func (d *door) Events(id turnkeeper.TurnID) []turnkeeper.Event {
	all, err := d.Store.Events(d.t.Context(), id, 0, 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	return all
}

func (d *door) Grants(id turnkeeper.TurnID) []turnkeeper.Dispatch { return d.turnView(id).Dispatches }

func (d *door) Asks(turn turnkeeper.TurnID) []asks.Ask {
	listed, err := d.ListAsks(d.t.Context(), operate.AskFilter{Turn: turn})
	if err != nil {
		d.t.Fatal(err)
	}
	var all []asks.Ask
	for _, a := range listed {
		all = append([]asks.Ask{a.Ask}, all...)
	}
	return all
}

func (d *door) AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (asks.State, error) {
	return d.Store.AnswerAsk(ctx, id, a)
}
