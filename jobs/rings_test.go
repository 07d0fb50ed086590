package jobs_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage/storagetest"
)

// A bells is a database that records which of its functions notify: each pg_notify of the schema has a name, that of
// its function and channel.
type bells struct {
	*storagetest.DB
	places []string
	t      *testing.T
}

var notifies = regexp.MustCompile(`pg_notify\('([a-z_.]+)',`)

func newBells(t *testing.T) *bells {
	b := &bells{storagetest.WithAgents(t), nil, t}
	b.Exec("create schema tracked")
	b.Exec("create table tracked.rung (n serial, place text)")
	b.Exec(
		`create function tracked.rang(place text, channel text, payload text) returns void language plpgsql security definer as $$ begin
		insert into tracked.rung (place) values (concat_ws(' ', place,
			case when payload like '{%' then payload::json ->> 'queue' else nullif(payload, '') end));
		perform pg_catalog.pg_notify(channel, payload);
	end $$`)
	rows, _ := b.Pool().Query(t.Context(), `select proname, pg_get_functiondef(oid) from pg_proc
		where pronamespace = 'turnkeeper'::regnamespace and prosrc ~ 'pg_notify' order by proname`)
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Name, Source string }])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		b.Exec(notifies.ReplaceAllStringFunc(f.Source, func(call string) string {
			channel := notifies.FindStringSubmatch(call)[1]
			place := f.Name + " " + channelOf(channel)
			if slices.Contains(b.places, place) {
				place = f.Name + " again " + channelOf(channel)
			}
			b.places = append(b.places, place)
			return "tracked.rang('" + place + "', '" + channel + "',"
		}))
	}
	if n := storagetest.One[int](b.DB, `select count(*) from pg_proc
		where pronamespace = 'turnkeeper'::regnamespace and prosrc ~ 'pg_notify'`); n > 0 {
		t.Fatalf("%d functions notify in a form that this test does not know", n)
	}
	return b
}

func channelOf(channel string) string {
	return strings.TrimPrefix(strings.TrimPrefix(channel, "turnkeeper_"), "turnkeeper.")
}

// rung returns where f notifies: places in the schema and, after "go", channels that Go statements notify.
func (b *bells) rung(f func()) []string {
	b.t.Helper()
	b.Exec("delete from tracked.rung")
	heard := b.Heard(f, "turnkeeper_turns", "turnkeeper_asks")
	rang := storagetest.One[[]string](b.DB,
		"select coalesce(array_agg(place), '{}') from (select distinct place from tracked.rung) p")
	for _, channel := range slices.Compact(heard) {
		if !slices.ContainsFunc(rang, func(place string) bool { return strings.Contains(place+" ", " "+channel+" ") }) {
			rang = append(rang, "go "+channel)
		}
	}
	slices.Sort(rang)
	return rang
}

func (b *bells) fatal(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// asked returns a turn of clerk that has asked a person about a call; waits: it has ended its dispatch.
func (b *bells) asked(waits bool) (*storagetest.Dispatch, asks.ID) {
	d := b.Turn("do it")
	d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	d.Write(b.t, turnlog.Entry{Asks: b.questions()})
	if waits {
		d.Wait(b.t)
	}
	return d, storagetest.One[asks.ID](b.DB, "select max(id) from turnkeeper.asks")
}

func (b *bells) questions() []asks.Question {
	return []asks.Question{{
		Call: storagetest.Key(1, 1), Kind: asks.KindApprove, N: 1, Tool: "tool", Arguments: "{}", Rule: "always",
		Reason: "because",
		Terms:  asks.Terms{Hold: true, Timeout: time.Hour},
	}}
}

func (b *bells) answer(id asks.ID) {
	_, err := b.AnswerAsk(b.t.Context(), id, asks.Answer{Decision: asks.Approved, By: "ann", Channel: "test"})
	b.fatal(err)
}

// spawned returns a turn of clerk that has spawned desk.
func (b *bells) spawned() *storagetest.Dispatch {
	d := b.Turn("do it")
	d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	d.Write(b.t, b.spawn(d))
	return d
}

func (b *bells) spawn(d *storagetest.Dispatch) turnlog.Entry {
	message, err := d.NewMessage(b.t.Context())
	b.fatal(err)
	return turnlog.Entry{
		Starts: []turnlog.CallStart{{Key: storagetest.Key(1, 1), Nonce: "n", Attempt: 1, Effect: turnkeeper.EffectOnce,
			Spawn: &turnlog.Spawn{
				Message: message, Agent: "desk", Task: "look", Root: d.Record.Turn.ID, Within: time.Hour,
				Agents: []string{"clerk", "desk"},
				Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 2},
			}}},
		Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "n",
			turnkeeper.CallRunning, "not yet")},
	}
}

// failed ends a turn whose model has failed, and that waits for it.
func (b *bells) failed(d *storagetest.Dispatch) {
	f := modelhealth.Failure{Model: "script/m", ErrorClass: "overloaded", Error: "unavailable"}
	err := d.Append(b.t.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no model", Retry: true,
		WaitsFor: []string{"script/m"}, Backoff: time.Hour,
	}}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Hour})
	b.fatal(err)
}

// deferred ends the dispatch of a turn that waits for its time.
func (b *bells) deferred(d *storagetest.Dispatch) {
	b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued,
		Error: "later", Backoff: time.Hour}}, turnlog.Consequence{Log: "deferred"}))
}

// sent sends a message as a database role does.
func (b *bells) sent() turnkeeper.MessageID {
	return storagetest.One[turnkeeper.MessageID](b.DB, "select turnkeeper.enqueue('clerk', 'hello')")
}

func (b *bells) dispatcher() *jobs.Dispatcher {
	return &jobs.Dispatcher{Grants: b.Grants, TTL: storagetest.TTL}
}

// reset removes what a row has left.
func (b *bells) reset() {
	b.Exec(`do $$ declare t text; begin
		set local session_replication_role = replica; -- in any order
		for t in select oid::regclass::text from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind = 'r'
			and relname not in ('settings', 'agents', 'definitions', 'scheduler_lock', 'schema_migrations', 'river_migration')
		loop execute 'delete from ' || t; end loop;
	end $$`)
	b.Exec("update turnkeeper.agents set day_calls = 0, levels = '{}', retired_at = null")
	b.Register("clerk", false)
	b.Register("desk", true)
	b.HeartBeat("worker-1", 9, time.Hour)
}

var nightly = turnkeeper.Schedule{Name: "nightly", Cron: "0 3 * * *", TimeZone: "UTC",
	Conversation: "main", Message: "x"}

func (b *bells) retry(id turnkeeper.MessageID) func() {
	return func() { _, err := b.Retry(b.t.Context(), id, false); b.fatal(err) }
}

func (b *bells) end(d *storagetest.Dispatch, how turnlog.WantedEnd) func() {
	end := b.CancelTurn
	if how == turnlog.EndFinish {
		end = b.FinishTurn
	}
	return func() { _, err := end(b.t.Context(), d.Grant.TurnID, "enough"); b.fatal(err) }
}

// delivered makes a reply that a webhook gets.
func (b *bells) delivered() {
	b.fatal(b.RegisterWebhook(b.t.Context(), outbox.Webhook{Name: "shop", Origin: "https://shop.example"}))
	b.Turn("x").Finish(b.t, "done")
}

func (b *bells) reply() turnkeeper.ReplyID {
	return storagetest.One[turnkeeper.ReplyID](b.DB, "select max(id) from turnkeeper.replies")
}

// one returns the id of the only row of a table.
func (b *bells) one(table string) string {
	return storagetest.One[string](b.DB, "select id::text from turnkeeper."+table)
}

func (b *bells) retryAside(one granting.Subject) {
	_, err := b.RetryAside(b.t.Context(), one)
	b.fatal(err)
}

func (b *bells) lose(d *storagetest.Dispatch) {
	b.Exec(`update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp()
		where grant_id = $1`, d.Grant.GrantID)
}

// claimed returns a detached call that worker-1 runs; waits: its turn waits for it.
func (b *bells) claimed(waits bool) turnlog.ClaimedCall {
	d := b.Detached("a", turnkeeper.EffectKeyed)
	if waits {
		d.Wait(b.t)
	}
	b.Exec(
		`update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{worker-1}'
		where kind = 'DetachedCall'`)
	c, err := b.Claim(b.t.Context(), turnlog.CallRef{TurnID: d.Grant.TurnID, Key: storagetest.Key(1, 1),
		Attempt: 1}, "worker-1",
		[]string{"tool"})
	b.fatal(err)
	return c
}

type tickOf = interface {
	Lost(ctx context.Context, limit int) ([]granting.LostGrant, error)
	Requeue(ctx context.Context, lost granting.LostGrant) error
	CloseLost(ctx context.Context, lost granting.LostGrant) error
	EndCall(ctx context.Context, call granting.LostCall) error
	ExpireAsks(ctx context.Context, limit int) (int, error)
}

// tick does a part of a tick.
func (b *bells) tick(part func(tickOf) error) {
	b.t.Helper()
	b.fatal(b.dispatcher().InTick(b.t.Context(), func(tick scheduler.Tick) error {
		if _, locked, err := tick.Snapshot(b.t.Context(), true); err != nil || !locked {
			b.t.Errorf("locked %v, error %v", locked, err)
		}
		return part(tick)
	}))
}

// Whatever makes work ready, or stops work, notifies those who wait for it; what does neither notifies nobody. Each
// place that notifies, in the functions of the schema and in Go, is reached: without it, its thing would wait for a
// poll.
func TestWhatRings(t *testing.T) {
	b := newBells(t)
	reached := map[string]bool{}
	for _, r := range ringings {
		t.Run(r.name, func(t *testing.T) {
			b.t, b.T = t, t
			b.reset()
			got := b.rung(r.when(b))
			want := slices.Sorted(slices.Values(r.want))
			if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
				t.Errorf("it rings (-want +got):\n%s", diff)
			}
		})
		for _, place := range append(strings.Fields(r.by), r.want...) {
			reached[place] = true
			if words := strings.Fields(place); len(words) > 2 && words[1] != "again" { // with its payload
				reached[words[0]+" "+words[1]] = true
			}
		}
	}
	for _, place := range append(b.places, ringers(t)...) {
		if !reached[place] {
			t.Errorf("no row of this test rings at %s", place)
		}
	}
}

// ringers returns the Go functions that notify, with their packages.
func ringers(t *testing.T) (all []string) {
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "dbsqlc" || name == "tests" || name == "bin" || strings.HasPrefix(name,
			".") && path != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && rings(f) {
				all = append(all, file.Name.Name+"."+f.Name.Name)
			}
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rings reports whether a function calls one that notifies.
func rings(f *ast.FuncDecl) (found bool) {
	names := []string{"RingInbox", "RingHolders", "RingCancels", "RingTurns", "ringIfChanged", "ringIfDue", "afterTick"}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains(names, name.Name)
		return true
	})
	return found
}
