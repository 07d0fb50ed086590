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
	"strconv"
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
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// A bells is a database that records which of its functions notify: each pg_notify of the schema has a name, that of its function and
// channel.
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
	b.Exec(`create function tracked.rang(place text, channel text, payload text) returns void language plpgsql security definer as $$ begin
		insert into tracked.rung (place) values (place || case when payload = 'freed' then ' freed' else '' end);
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
				place += " again"
			}
			b.places = append(b.places, place)
			return "tracked.rang('" + place + "', '" + channel + "',"
		}))
	}
	if n := storagetest.One[int](b.DB, `select count(*) from pg_proc where pronamespace = 'turnkeeper'::regnamespace and prosrc ~ 'pg_notify'`); n > 0 {
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
	rang := storagetest.One[[]string](b.DB, "select coalesce(array_agg(place), '{}') from (select distinct place from tracked.rung) p")
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
		Call: storagetest.Key(1, 1), Kind: asks.KindApprove, N: 1, Tool: "tool", Arguments: "{}", Rule: "always", Reason: "because",
		Terms: asks.Terms{Hold: true, Timeout: time.Hour},
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
		Starts: []turnlog.CallStart{{Key: storagetest.Key(1, 1), Nonce: "n", Attempt: 1, Effect: turnkeeper.EffectOnce, Spawn: &turnlog.Spawn{
			Message: message, Agent: "desk", Task: "look", Root: d.Record.Turn.ID, Within: time.Hour, Agents: []string{"clerk", "desk"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 2},
		}}},
		Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallRunning, "not yet")},
	}
}

// failed ends a turn whose model has failed, and that waits for it.
func (b *bells) failed(d *storagetest.Dispatch) {
	f := modelhealth.Failure{Model: "script/m", ErrorClass: "overloaded", Error: "unavailable"}
	err := d.Append(b.t.Context(), turnlog.Entry{ModelFailures: []modelhealth.Failure{f}, Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no model", Retry: true, WaitsFor: []string{"script/m"}, Backoff: time.Hour,
	}}, journal.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Hour})
	b.fatal(err)
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

// A ringing is something that makes work ready, or stops it.
type ringing struct {
	name string
	by   string                     // the Go functions that ring, separated by spaces
	want []string                   // places in the schema and, after "go", channels
	when func(b *bells) (do func()) // prepares
}

var ringings = []ringing{
	{"a message is sent", "", []string{"enqueue_by inbox"}, func(b *bells) func() { return func() { b.sent() } }},
	{"a message is sent again", "", nil, func(b *bells) func() {
		send := func() {
			_, err := b.Enqueue(b.t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "x", Key: "k"})
			b.fatal(err)
		}
		send()
		return send
	}},
	{"a message is edited", "", []string{"edit_message inbox"}, func(b *bells) func() {
		id := b.sent()
		return func() { b.Exec("select turnkeeper.edit_message($1, 'better')", id) }
	}},
	{"a message is dropped", "", []string{"drop_message inbox"}, func(b *bells) func() {
		id := b.sent()
		return func() { b.Exec("select turnkeeper.drop_message($1)", id) }
	}},
	{"a message is cancelled", "", []string{"close_cancelled inbox", "close_cancelled turns"}, func(b *bells) func() {
		id := b.Submit("clerk", "", "x")
		return func() { _, err := b.CancelMessage(b.t.Context(), id, "enough"); b.fatal(err) }
	}},
	{"a failed message is retried", "", []string{"enqueue_by inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Reply: "sorry"}},
			journal.Ending{Message: turnkeeper.MessageFailed, Log: "finished"}))
		return b.retry(d.Record.Message.ID)
	}},
	{"a turn that waits for its time is retried", "", []string{"retry_message inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "later", Backoff: time.Hour}}, journal.Ending{Log: "deferred"}))
		return b.retry(d.Record.Message.ID)
	}},
	{"a message that waits for its lane is retried", "operate.tryModelsOf", []string{"retry_message inbox"}, func(b *bells) func() {
		d := b.Turn("x")
		b.failed(d)
		return b.retry(d.Record.Message.ID)
	}},
	{"a message that is set aside is retried", "operate.RetryAside", []string{"go inbox"}, func(b *bells) func() {
		b.Submit("clerk", "", "x")
		b.Exec("insert into turnkeeper.set_aside (kind, id, code, error, next_try) select 'message', id, 'XX000', 'x', now() + interval '1 hour' from turnkeeper.messages")
		return func() { _, err := b.RetryAside(b.t.Context(), granting.Subject{}); b.fatal(err) }
	}},

	{"a turn is granted to a worker", "", []string{"go river_insert"}, func(b *bells) func() {
		b.Submit("clerk", "", "x")
		return func() { b.Dispatch("") }
	}},
	{"a turn ends", "", []string{"end_many inbox freed", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() { d.Finish(b.t, "done") }
	}},
	{"a turn fails and is tried again", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() {
			b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "x", Retry: true, Backoff: time.Second}},
				journal.Ending{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: time.Second}))
		}
	}},
	{"a turn is handed back", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() {
			b.fatal(d.Append(b.t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}}, journal.Ending{Log: "handed_back"}))
		}
	}},
	{"a turn waits for a call", "", []string{"end_many inbox", "end_many turns"}, func(b *bells) func() {
		d := b.Detached("a", turnkeeper.EffectOnce)
		return func() { d.Wait(b.t) }
	}},
	{"a turn waits for a person, and its lane is free", "", []string{"end_many inbox", "end_many turns", "park_turn inbox"}, func(b *bells) func() {
		d, _ := b.asked(false)
		return func() { d.Wait(b.t) }
	}},
	{"a worker leaves a turn", "grants.GiveBack", []string{"go inbox"}, func(b *bells) func() {
		b.Turn("x")
		return func() { _, err := b.GiveBack(b.t.Context(), "worker-1", 0, nil, nil); b.fatal(err) }
	}},
	{"a lost turn is queued", "grants.RingHolders jobs.Requeue", []string{"end_many inbox", "end_many turns", "go cancels"}, func(b *bells) func() {
		b.lose(b.Turn("x"))
		return func() {
			b.tick(func(tick tickOf) error {
				lost, err := tick.Lost(b.t.Context(), 9)
				b.fatal(err)
				return tick.Requeue(b.t.Context(), lost[0])
			})
		}
	}},
	{"a lost turn is closed", "jobs.CloseLost", []string{"end_many inbox freed", "end_many turns", "go cancels"}, func(b *bells) func() {
		b.lose(b.Turn("x"))
		return func() {
			b.tick(func(tick tickOf) error {
				lost, err := tick.Lost(b.t.Context(), 9)
				b.fatal(err)
				return tick.CloseLost(b.t.Context(), lost[0])
			})
		}
	}},

	{"a running turn is cancelled", "", []string{"ask_end cancels"}, func(b *bells) func() { return b.end(b.Turn("x"), turnlog.EndCancel) }},
	{"a running turn is to finish", "", []string{"ask_end cancels"}, func(b *bells) func() { return b.end(b.Turn("x"), turnlog.EndFinish) }},
	{"a waiting turn is cancelled", "", []string{"ask_end cancels", "close_cancelled inbox", "close_cancelled turns"}, func(b *bells) func() {
		d, _ := b.asked(true)
		return b.end(d, turnlog.EndCancel)
	}},
	{"a waiting turn is to finish", "", []string{"ask_end cancels", "hurry_turn inbox"}, func(b *bells) func() {
		d, _ := b.asked(true)
		return b.end(d, turnlog.EndFinish)
	}},

	{"a call asks a person", "", []string{"open_asks asks"}, func(b *bells) func() {
		d := b.Turn("x")
		d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
		return func() { d.Write(b.t, turnlog.Entry{Asks: b.questions()}) }
	}},
	{"an ask is answered", "", []string{"wake_turn inbox"}, func(b *bells) func() {
		_, id := b.asked(true)
		return func() { b.answer(id) }
	}},
	{"an ask of a running turn is answered", "", nil, func(b *bells) func() {
		_, id := b.asked(false)
		return func() { b.answer(id) }
	}},
	{"an ask expires", "", []string{"wake_turn inbox"}, func(b *bells) func() {
		b.asked(true)
		b.Exec("update turnkeeper.asks set opened_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'")
		return func() {
			b.tick(func(tick tickOf) error { _, err := tick.ExpireAsks(b.t.Context(), 9); return err })
		}
	}},

	{"a call is detached", "", []string{"enqueue_by inbox", "ring_detached river_insert"}, func(b *bells) func() { return func() { b.Detached("a", turnkeeper.EffectOnce) } }},
	{"a detached call ends", "", []string{"arrive_call inbox"}, func(b *bells) func() {
		c := b.claimed(true)
		return func() {
			b.fatal(b.Arrive(b.t.Context(), c, storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, "ok")))
		}
	}},
	{"a detached call of a running turn ends", "", nil, func(b *bells) func() {
		c := b.claimed(false)
		return func() {
			b.fatal(b.Arrive(b.t.Context(), c, storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, "ok")))
		}
	}},
	{"a detached call is given up", "", []string{"arrive_call inbox", "end_detached calls"}, func(b *bells) func() {
		c := b.claimed(true)
		return func() {
			b.tick(func(tick tickOf) error {
				return tick.EndCall(b.t.Context(), granting.LostCall{Ref: c.Ref, Effect: turnkeeper.EffectOnce})
			})
		}
	}},
	{"a detached call is handed on", "", []string{"ring_detached river_insert", "run_detached_again calls"}, func(b *bells) func() {
		c := b.claimed(true)
		return func() { b.fatal(b.Release(b.t.Context(), c)) }
	}},
	{"a worker leaves a detached call", "grants.GiveBackCalls", []string{"go inbox"}, func(b *bells) func() {
		b.claimed(true)
		return func() { _, err := b.GiveBackCalls(b.t.Context(), "worker-1", 0, nil, nil); b.fatal(err) }
	}},
	{"the turn of a detached call is cancelled", "", []string{"ask_end cancels", "close_cancelled inbox", "close_cancelled turns", "stop_awaiting calls"}, func(b *bells) func() {
		return b.end(b.Waiting("a"), turnlog.EndCancel)
	}},

	{"a sub-agent is spawned", "", []string{"spawn_agents inbox"}, func(b *bells) func() {
		d := b.Turn("do it")
		d.Write(b.t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
		entry := b.spawn(d)
		return func() { d.Write(b.t, entry) }
	}},
	{"a sub-agent ends", "", []string{"arrive_call inbox", "end_many inbox freed", "end_many turns"}, func(b *bells) func() {
		b.spawned().Wait(b.t)
		child := b.Dispatch("worker-1")[0]
		return func() { child.Finish(b.t, "done") }
	}},
	{"a sub-agent ends while its parent's row is locked", "", []string{"end_many inbox freed", "end_many turns", "note_spawned_reply inbox"}, func(b *bells) func() {
		b.spawned()
		child := b.Dispatch("worker-1")[0]
		return func() {
			tx, err := b.Pool().Begin(b.t.Context())
			b.fatal(err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(b.t.Context(), "select from turnkeeper.turns where id <> $1 for update", child.Grant.TurnID)
			b.fatal(err)
			child.Finish(b.t, "done")
		}
	}},
	{"the parent of a running sub-agent is cancelled", "", []string{
		"ask_end cancels", "close_cancelled inbox", "close_cancelled turns", "stop_awaiting cancels", "stop_awaiting inbox",
	}, func(b *bells) func() {
		d := b.spawned()
		d.Wait(b.t)
		b.Dispatch("worker-1")
		return b.end(d, turnlog.EndCancel)
	}},

	{"a model fails", "", []string{"end_many inbox", "end_many turns", "note_models inbox again"}, func(b *bells) func() {
		d := b.Turn("x")
		return func() { b.failed(d) }
	}},
	{"a model is back", "", []string{"note_models inbox"}, func(b *bells) func() {
		b.failed(b.Turn("x"))
		return func() { b.Exec("select turnkeeper.note_models('{script/m}', '{0}')") }
	}},
	{"a model that was not down answers", "", nil, func(b *bells) func() {
		return func() { b.Exec("select turnkeeper.note_models('{script/m}', '{0}')") }
	}},
	{"a level changes", "", []string{"note_level inbox"}, func(b *bells) func() {
		b.Exec("update turnkeeper.agents set day_calls = 10, levels = '{\"low\": {}}' where name = 'clerk'")
		reserve := func(calls int64) {
			for range calls {
				_, err := b.ReserveSpend(b.t.Context(), grants.SpendRequest{Turn: 1, Agent: "clerk", DayCalls: 10})
				b.fatal(err)
			}
		}
		reserve(9)
		return func() { reserve(1) }
	}},
	{"a level is pinned", "operate.PinLevel", []string{"go inbox"}, func(b *bells) func() {
		return func() {
			b.fatal(b.PinLevel(b.t.Context(), operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"}))
		}
	}},
	{"a pin ends", "operate.UnpinLevel", []string{"go inbox"}, func(b *bells) func() {
		b.fatal(b.PinLevel(b.t.Context(), operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"}))
		return func() { b.fatal(b.UnpinLevel(b.t.Context(), "clerk")) }
	}},

	{"a schedule is run now", "", []string{"run_schedule inbox"}, func(b *bells) func() {
		b.Register("clerk", false, nightly)
		return func() { _, _, err := b.RunSchedule(b.t.Context(), "clerk", "nightly"); b.fatal(err) }
	}},
	{"a schedule has other times", "operate.ringIfChanged operate.OverrideSchedule", []string{"go inbox"}, func(b *bells) func() {
		b.Register("clerk", false, nightly)
		return func() { b.fatal(b.OverrideSchedule(b.t.Context(), "clerk", "nightly", "@hourly")) }
	}},
	{"a schedule is resumed", "operate.PauseSchedule", []string{"go inbox"}, func(b *bells) func() {
		b.Register("clerk", false, nightly)
		b.fatal(b.PauseSchedule(b.t.Context(), "clerk", "nightly", true, ""))
		return func() { b.fatal(b.PauseSchedule(b.t.Context(), "clerk", "nightly", false, "")) }
	}},
	{"a reply is to be delivered again", "operate.Redeliver operate.ringIfDue", []string{"go turns"}, func(b *bells) func() {
		b.delivered()
		return func() { _, err := b.Redeliver(b.t.Context(), "shop", b.reply()); b.fatal(err) }
	}},
	{"dead deliveries are to be delivered again", "operate.RedeliverDead", []string{"go turns"}, func(b *bells) func() {
		b.delivered()
		b.Exec("update turnkeeper.webhook_deliveries set state = 'dead', due_at = null")
		return func() { _, err := b.RedeliverDead(b.t.Context(), "shop"); b.fatal(err) }
	}},
	{"a webhook is resumed", "operate.ResumeWebhook", []string{"go turns"}, func(b *bells) func() {
		b.delivered()
		b.fatal(b.PauseWebhook(b.t.Context(), "shop", "moving"))
		return func() { b.fatal(b.ResumeWebhook(b.t.Context(), "shop")) }
	}},
	{"agents are registered", "storage.registerAll", []string{"go inbox"}, func(b *bells) func() { return func() { b.Register("clerk", true) } }},
	{"an agent is restored", "operate.RestoreAgent", []string{"go inbox"}, func(b *bells) func() {
		b.fatal(b.RetireAgent(b.t.Context(), "clerk"))
		return func() { b.fatal(b.RestoreAgent(b.t.Context(), "clerk")) }
	}},
	{"the scheduler is resumed", "operate.ResumeScheduler", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.ResumeScheduler(b.t.Context())) }
	}},
	{"a hold-off is ended", "operate.EndHold", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.EndHold(b.t.Context())) }
	}},
	{"the scheduler's intervals change", "operate.SetScheduler", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.SetScheduler(b.t.Context(), time.Minute, 9)) }
	}},
	{"a worker starts", "storage.RingInbox app.run", []string{"go inbox"}, func(b *bells) func() {
		return func() { b.fatal(b.RingInbox(b.t.Context())) }
	}},
}

var nightly = turnkeeper.Schedule{Name: "nightly", Cron: "0 3 * * *", TimeZone: "UTC", Conversation: "main", Message: "x"}

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

func (b *bells) lose(d *storagetest.Dispatch) {
	b.Exec("update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id = $1", d.Grant.GrantID)
}

// claimed returns a detached call that worker-1 runs; waits: its turn waits for it.
func (b *bells) claimed(waits bool) turnlog.ClaimedCall {
	d := b.Detached("a", turnkeeper.EffectKeyed)
	if waits {
		d.Wait(b.t)
	}
	b.Exec("update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{worker-1}' where kind = 'DetachedCall'")
	c, err := b.Claim(b.t.Context(), turnlog.CallRef{TurnID: d.Grant.TurnID, Key: storagetest.Key(1, 1), Attempt: 1}, "worker-1", []string{"tool"})
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
		if _, locked, err := tick.Look(b.t.Context(), true); err != nil || !locked {
			b.t.Errorf("locked %v, error %v", locked, err)
		}
		return part(tick)
	}))
}

// Whatever makes work ready, or stops work, notifies those who wait for it; what does neither notifies nobody. Each place that notifies, in the
// functions of the schema and in Go, is reached: without it, its thing would wait for a poll.
func TestWhatRings(t *testing.T) {
	b := newBells(t)
	reached := map[string]bool{}
	for _, r := range ringings {
		t.Run(r.name, func(t *testing.T) {
			b.t, b.T = t, t
			b.reset()
			got := b.rung(r.when(b))
			want := slices.Sorted(slices.Values(r.want))
			if diff := cmp.Diff(want, slices.Collect(slices.Values(got))); diff != "" {
				t.Errorf("it rings (-want +got):\n%s", diff)
			}
		})
		for _, place := range append(strings.Fields(r.by), r.want...) {
			reached[strings.TrimSuffix(place, " freed")] = true
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
	rings := []string{"RingInbox", "RingHolders", "RingCancels", "RingTurns", "ringIfChanged", "ringIfDue"}
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "dbsqlc" || name == "tests" || name == "bin" || strings.HasPrefix(name, ".") && path != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(rings, s.Sel.Name) {
					all = append(all, file.Name.Name+"."+f.Name.Name)
				}
				return true
			})
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatal("found ", strconv.Itoa(len(all)), err)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}
