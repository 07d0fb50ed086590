package diagnosis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// An installation is what the checks read. A method whose number is fails returns an error.
type installation struct {
	set        diagnosis.Settings
	facts      storage.ServerFacts
	migrations []storage.Migration
	write      error
	rights     []string
	workers    []presence.Heartbeat
	queue      operate.Totals
	noToken    bool
	webhooks   []operate.WebhookView
	models     []modelhealth.Health
	messages   map[string][]waiting.Message // by the agent and the state
	waits      map[turnkeeper.MessageID]waiting.Message
	scheduler  operate.SchedulerSettings
	aside      []granting.Aside
	long       []operate.LongWait
	asks       []operate.Ask
	lossy      []operate.LossyTurn
	kept       time.Duration
	stored     operate.StoredParts
	spent      []operate.DaySpend
	levels     operate.Levels
	schedules  []turnkeeper.Schedule

	fails int // number of the call that fails, from 1; 0: none
	calls []string
}

func read[V any](i *installation, v V, call string, args ...any) (V, error) {
	i.calls = append(i.calls, call+fmt.Sprint(args...))
	if len(i.calls) == i.fails {
		var none V
		return none, errors.New(call + " cannot be read: secret")
	}
	return v, nil
}

func (i *installation) ServerFacts(context.Context) (storage.ServerFacts, error) {
	return read(i, i.facts, "facts")
}
func (i *installation) Migrations(context.Context) ([]storage.Migration, error) {
	return read(i, i.migrations, "migrations")
}
func (i *installation) TryWrite(context.Context) error {
	_, err := read(i, 0, "write")
	return errors.Join(err, i.write)
}
func (i *installation) RightsToRevoke(context.Context) ([]string, error) {
	return read(i, i.rights, "rights")
}
func (i *installation) Workers(context.Context) ([]presence.Heartbeat, error) {
	return read(i, i.workers, "workers")
}
func (i *installation) Queue(context.Context) (operate.Totals, error) {
	return read(i, i.queue, "queue")
}
func (i *installation) AnyToken(context.Context) (bool, error) { return read(i, !i.noToken, "token") }
func (i *installation) Webhooks(context.Context) ([]operate.WebhookView, error) {
	return read(i, i.webhooks, "webhooks")
}
func (i *installation) Models(context.Context) ([]modelhealth.Health, error) {
	return read(i, i.models, "models")
}
func (i *installation) Messages(_ context.Context, p operate.Page) ([]waiting.Message, error) {
	return read(i, i.messages[p.Agent+" "+p.State], "messages ", p.Agent, " ", p.State, " ", p.Limit)
}
func (i *installation) WaitingMessage(_ context.Context, id turnkeeper.MessageID) (waiting.Message, error) {
	return read(i, i.waits[id], "message ", id)
}
func (i *installation) SchedulerSettings(context.Context) (operate.SchedulerSettings, error) {
	return read(i, i.scheduler, "scheduler")
}
func (i *installation) Aside(context.Context) ([]granting.Aside, error) {
	return read(i, i.aside, "aside")
}
func (i *installation) LongWaits(_ context.Context, due time.Duration) ([]operate.LongWait, error) {
	return read(i, i.long, "long waits ", due)
}
func (i *installation) ListAsks(_ context.Context, f operate.AskFilter) ([]operate.Ask, error) {
	return read(i, i.asks, "asks ", f.State)
}
func (i *installation) LossyTurns(_ context.Context, within time.Duration) ([]operate.LossyTurn, error) {
	return read(i, i.lossy, "lossy turns ", within)
}
func (i *installation) KeptFor(context.Context) (time.Duration, error) {
	return read(i, i.kept, "kept")
}
func (i *installation) StoredParts(context.Context) (operate.StoredParts, error) {
	return read(i, i.stored, "stored")
}
func (i *installation) DaySpend(context.Context) ([]operate.DaySpend, error) {
	return read(i, i.spent, "spent")
}
func (i *installation) Levels(context.Context) (operate.Levels, error) {
	return read(i, i.levels, "levels")
}
func (i *installation) Schedules(context.Context) ([]turnkeeper.Schedule, error) {
	return read(i, i.schedules, "schedules")
}

// ahead is how far the clock of the database, which gives all times of an installation, is ahead of this process's.
var ahead time.Duration

// at returns a time before now, by the clock of the database.
func at(before time.Duration) time.Time { return time.Now().Add(ahead - before) }

func beat(id string, roles ...string) presence.Heartbeat {
	return presence.Heartbeat{WorkerID: turnkeeper.WorkerID(id), Slots: 4, Roles: roles, BeatAt: at(time.Second),
		Silent: time.Second}
}

// well returns an installation with nothing to report.
func well() *installation {
	return &installation{
		set: diagnosis.Settings{
			Database: "db of test", NeedsToken: true, DBPoolSize: 7, PollInterval: time.Second,
			Mask:    func(s string) string { return strings.ReplaceAll(s, "secret", "***") },
			Command: func(name string) string { return "./" + name },
		},
		facts: storage.ServerFacts{
			Version: "16.3", FSync: "on", SynchronousCommit: "on", FullPageWrites: "on", Encoding: "UTF8",
			MaxConnections: 100, Now: at(0),
		},
		migrations: []storage.Migration{{Version: 1, Name: "a", Applied: true}, {Version: 2, Name: "b", Applied: true}},
		workers:    []presence.Heartbeat{beat("w-1", presence.RoleWorker, presence.RoleScheduler)},
		models:     []modelhealth.Health{{Model: "p/up", Agents: []string{"clerk"}, NeededBy: []string{"clerk"}}},
		scheduler:  operate.SchedulerSettings{LastTickAt: at(time.Second)},
	}
}

// write writes down a report, and the part of it for those who see clerk alone.
func write(b *strings.Builder, name string, i *installation) {
	var d diagnosis.Report
	usable := diagnosis.Examine(context.Background(), &d, i.set, i)
	d.Sort()
	fmt.Fprintf(b, "=== %s: usable %t, %d fail, %d warn, %d ok\n", name, usable, d.Count(diagnosis.Fail),
		d.Count(diagnosis.Warn), d.Count(diagnosis.OK))
	show := func(c diagnosis.Check) {
		if c.Verdict != diagnosis.OK || name == "well" {
			fmt.Fprintf(b, "%s %s %s: %s\n    -> %s\n", c.Agent, c.Verdict, c.Name, c.Found, c.Advice)
		}
	}
	for _, c := range d.Checks {
		show(c)
	}
	b.WriteString("for clerk:\n")
	for _, c := range d.For(func(agent string) bool { return agent == "clerk" }).Checks {
		show(c)
	}
}

// TestFindingsAreByTheClockOfTheDatabase sets that clock forward and back, and shows times in a zone that undoes it.
// All findings are the same, but for the one about the clocks.
func TestFindingsAreByTheClockOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() { ahead = 0 }()
		find := func(add func(*installation), off time.Duration) []diagnosis.Check {
			ahead = off
			i := well()
			add(i)
			i.set.Zone = time.FixedZone("", -int(off.Seconds()))
			var d diagnosis.Report
			diagnosis.Examine(t.Context(), &d, i.set, i)
			return slices.DeleteFunc(d.Checks, func(c diagnosis.Check) bool { return c.Name == "clock" })
		}
		const off = 100 * 24 * time.Hour // longer than any time in the findings
		for _, trouble := range troubles {
			want := find(trouble.add, 0)
			for _, off := range []time.Duration{off, -off} {
				if diff := cmp.Diff(want, find(trouble.add, off)); diff != "" {
					t.Errorf("%s, the clock is set by %s (-want +got):\n%s", trouble.name, off, diff)
				}
			}
		}
	})
}

// TestFindings records what the checks find in installations with one trouble each, and what they say if something
// cannot be read.
func TestFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		write(&b, "well", well())
		for _, trouble := range troubles {
			i := well()
			trouble.add(i)
			write(&b, trouble.name, i)
		}
		all := well()
		for _, trouble := range troubles[serverTroubles:] {
			trouble.add(all)
		}
		write(&b, "many", all)
		calls := all.calls
		b.WriteString("calls: " + strings.Join(calls, ", ") + "\n")
		for n := range calls {
			i := well()
			for _, trouble := range troubles[serverTroubles:] {
				trouble.add(i)
			}
			i.fails = n + 1
			var d diagnosis.Report
			usable := diagnosis.Examine(t.Context(), &d, i.set, i)
			fmt.Fprintf(&b, "without %s: usable %t, %d findings, %d calls\n", calls[n], usable,
				len(d.Checks), len(i.calls))
			for _, c := range d.Checks {
				if strings.Contains(c.Found, "***") {
					fmt.Fprintf(&b, "    %s %s %s: %s -> %s, unread %t\n", c.Agent, c.Verdict, c.Name, c.Found,
						c.Advice, c.Unread)
				}
			}
		}
		golden.File(t, "testdata/findings.txt", b.String())
	})
}

// serverTroubles is the number of the first troubles, after which others cannot be seen.
const serverTroubles = 8

var five = 5

var troubles = []struct {
	name string
	add  func(*installation)
}{
	{"an old server", func(i *installation) {
		i.facts = storage.ServerFacts{Version: "13.9", FSync: "off", SynchronousCommit: "off", FullPageWrites: "off",
			Encoding: "LATIN1", MaxConnections: 20, Now: at(0)}
	}},
	{"a clock behind", func(i *installation) {
		i.facts.Now = at(3 * time.Second)
	}}, {"a clock ahead", func(i *installation) { i.facts.Now = at(-3 * time.Second) }},
	{"a standby", func(i *installation) {
		i.facts.InRecovery = true
	}}, {"no writes", func(i *installation) { i.write = errors.New("the disk is full") }},
	{"a newer schema", func(i *installation) {
		i.migrations = append(i.migrations, storage.Migration{Version: 3, Name: "c", Applied: true, Newer: true,
			OldestProgram: 1})
	}},
	{"a schema too new", func(i *installation) {
		i.migrations = append(i.migrations, storage.Migration{Version: 3, Name: "c", Applied: true, Newer: true,
			OldestProgram: 3})
	}},
	{"half a schema", func(i *installation) { i.migrations[1].Applied = false }},
	{"rights", func(i *installation) { i.rights = []string{"revoke a", "revoke b"} }},
	{"workers", func(i *installation) {
		silent, gone, drains, serves := beat("w-silent"), beat("w-gone"), beat("w-drains", presence.RoleWorker),
			beat("w-serves", "http", "webhooks")
		silent.Silent, gone.StoppedAt, drains.Slots, serves.Slots = time.Hour, at(time.Minute), 0, 0
		silent.Refused = []presence.Refusal{{Turn: 7, For: time.Minute, Attempts: 3, SQLState: "53100",
			Message: "disk full"}, {For: time.Second}, {Turn: 8, For: time.Second}}
		gone.Refused = silent.Refused
		i.workers = append(i.workers, silent, gone, drains, serves)
	}},
	{"no worker", func(i *installation) { i.workers, i.queue.Waiting, i.queue.Queued = nil, 2, 1 }},
	{"no token", func(i *installation) { i.noToken = true }},
	{"webhooks", func(i *installation) {
		hook := func(name string) operate.WebhookView {
			return operate.WebhookView{Webhook: outbox.Webhook{Name: name, SeenAt: at(0),
				SucceededAt: at(time.Hour)}, Now: at(0)}
		}
		fine, paused, unserved, dead, fails := hook("fine"), hook("paused"), hook("unserved"),
			hook("dead"), hook("fails")
		paused.PausedAt, paused.PausedReason, paused.Pending = at(time.Minute), "it moves", 1
		unserved.SeenAt, unserved.Pending, dead.Dead = at(1000*time.Hour), 2, 1
		fails.Pending, fails.FailedAt, fails.Oldest, fails.LastError, fails.Dead = 3, at(time.Minute),
			2*time.Hour, "no route", 2
		i.webhooks = append(i.webhooks, fine, paused, unserved, dead, fails)
	}},
	{"models", func(i *installation) {
		for _, class := range []string{"auth", "quota", "not_found", "overloaded"} {
			i.models = append(i.models, modelhealth.Health{
				Model: "q/" + class, Agents: []string{"desk", "clerk"}, NeededBy: []string{"desk"}, Failures: 2,
				DownSince: at(time.Hour), Until: at(-time.Minute), ErrorClass: class, Error: "it says no",
			})
		}
		i.models = append(i.models, modelhealth.Health{Model: "q/unused", Failures: 1, DownSince: at(time.Hour)},
			modelhealth.Health{
				Model: "p/spare", Agents: []string{"clerk"}, NeededBy: []string{"clerk"}, Failures: 1,
				DownSince: at(time.Hour), ErrorClass: "overloaded",
			})
		i.messages = map[string][]waiting.Message{
			"desk running": {{Waits: []waiting.Wait{{Reason: waiting.ModelDown, Model: "q/quota"}}}}}
	}},
	{"few connections", func(i *installation) { i.facts.MaxConnections = 20 }},
	{"a pause", func(i *installation) { i.scheduler.PausedAt, i.scheduler.PausedReason = at(time.Minute), "night" }},
	{"a hold", func(i *installation) { i.scheduler.HoldUntil, i.scheduler.HoldReason = at(-time.Minute), "the clock" }},
	{"a hold that is over", func(i *installation) {
		i.scheduler.HoldUntil, i.scheduler.HoldReason = at(0), "the clock"
	}},
	{"no tick yet", func(i *installation) { i.scheduler.LastTickAt = time.Time{} }},
	{"no tick lately", func(i *installation) { i.scheduler.LastTickAt = at(61 * time.Second) }},
	{"a tick just in time", func(i *installation) { i.scheduler.LastTickAt = at(60 * time.Second) }},
	{"slow ticks", func(i *installation) {
		i.scheduler.LastTickAt, i.scheduler.PollInterval = at(10*time.Minute), 2*time.Minute
	}},
	{"no scheduler", func(i *installation) {
		i.scheduler.LastTickAt, i.workers = at(time.Hour), []presence.Heartbeat{beat("w-1", presence.RoleWorker)}
	}},
	{"two schedulers", func(i *installation) {
		i.scheduler.LastTickAt, i.workers = at(time.Hour), append(i.workers, beat("w-2", presence.RoleScheduler))
	}},
	{"set aside", func(i *installation) {
		for n, kind := range []granting.SubjectKind{
			granting.AsideMessage, granting.AsideTurn, granting.AsideCall, granting.AsideAsk, granting.AsideSubAgent,
			granting.AsideSchedule, granting.AsideAgent, granting.AsideDelivery,
			granting.AsidePurge, granting.AsideStep,
		} {
			i.aside = append(i.aside, granting.Aside{
				Subject: granting.Subject{Kind: kind, ID: "7/1/2"}, Since: at(time.Hour), Failures: n + 1,
				LastAt: at(time.Second), NextTry: at(-time.Second), Error: "a trigger",
			})
		}
	}},
	{"ticks that fail", func(i *installation) {
		i.scheduler.LastTickAt = at(time.Hour)
		i.aside = append(i.aside, granting.Aside{Subject: granting.Subject{Kind: granting.AsideTick},
			Since: at(time.Hour), Failures: 9, Error: "a lock"})
	}},
	{"waits", func(i *installation) {
		i.long = []operate.LongWait{{Agent: "clerk", Message: 3, DueAt: at(time.Hour), Messages: 1200},
			{Agent: "desk", Message: 4, DueAt: at(time.Hour), Messages: 1}, {Agent: "desk", Message: 5}}
		i.waits = map[turnkeeper.MessageID]waiting.Message{
			3: {Waits: []waiting.Wait{{Reason: waiting.LaneHeld, Turn: 7, Lane: "clerk"}, {Reason: waiting.NoWorker}}},
			4: {Waits: []waiting.Wait{{Reason: waiting.NotDue, Until: at(-time.Hour)}}},
		}
	}},
	{"asks", func(i *installation) {
		i.queue.Waits = []waiting.Tally{{Reason: waiting.DetachedCalls, Turns: 9}, {Reason: waiting.Person, Turns: 2,
			Since: at(5 * time.Minute), Until: at(-time.Hour)}}
		ask := operate.Ask{Agent: "clerk"}
		ask.ID, ask.Turn, ask.Kind, ask.ClosedAt = 5, 7, asks.KindApprove, at(time.Hour)
		old := ask
		old.ID, old.ClosedAt = 4, at(24*time.Hour)
		i.asks = []operate.Ask{ask, old}
	}},
	{"an ask of just now", func(i *installation) {
		i.queue.Waits = append(i.queue.Waits, waiting.Tally{Reason: waiting.Person, Turns: 1, Since: at(0)})
	}},
	{"losses", func(i *installation) {
		i.lossy = []operate.LossyTurn{
			{Turn: 7, Message: 3, Agent: "clerk", Losses: 1, State: turnkeeper.TurnRunning},
			{Turn: 8, Message: 4, Agent: "clerk", Losses: 2, State: turnkeeper.TurnSucceeded, Tools: []string{"pay"}},
			{Turn: 9, Message: 5, Agent: "desk", Losses: 3, State: turnkeeper.TurnDegraded, GivenUp: true,
				Tools: []string{"pay", "read"}},
		}
	}},
	{"much stored", func(i *installation) {
		i.stored = operate.StoredParts{Bytes: 3 << 30, Oldest: at(1000 * time.Hour)}
	}},
	{"much kept", func(i *installation) {
		i.stored, i.kept = operate.StoredParts{Bytes: 3 << 30, Oldest: at(1000 * time.Hour)}, 720*time.Hour
	}},
	{"budgets", func(i *installation) {
		source := func(budget string) []byte { return []byte("---\nbudget: {" + budget + "}\n---\nYou are it.\n") }
		i.spent = []operate.DaySpend{
			{Agent: "clerk", Definition: source("day_tokens: 1000, day_calls: 5"), Tokens: 1000, Calls: 5,
				Until: at(-time.Hour)}, {Agent: "even", Definition: source("day_tokens: 1000"), Tokens: 999},
			{Agent: "desk", Definition: source("day_calls: 5"), Calls: 4, PutOff: 1, Until: at(-time.Hour)},
			{Agent: "free", Definition: source("turn_tokens: 5000"), PutOff: 2, Until: at(-time.Hour)},
			{Agent: "odd", Definition: []byte("---\nnot: [\n---\n"), PutOff: 3},
		}
	}},
	{"levels", func(i *installation) {
		pin := &operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann", At: at(time.Hour), Until: at(-time.Hour),
			Reason: "a test"}
		all := &operate.Pin{Level: survival.Normal, By: "bob", At: at(time.Hour)}
		rules := survival.Rules{survival.Low: {Models: []string{"p/small", "p/other"}, NoSchedules: true,
			MinPriority: &five}}
		i.levels = operate.Levels{All: all, Agents: []operate.AgentLevel{
			{Agent: "clerk", Level: survival.Low, Pin: pin, Rules: rules, Held: 2, Skipping: 1},
			{Agent: "desk", Level: survival.Normal, Pin: all},
			{Agent: "low", Level: survival.Low, Used: survival.Day{Tokens: 85, TokenLimit: 100},
				NextDay: at(-time.Hour), Rules: rules}, {Agent: "normal", Level: survival.Normal},
			{Agent: "spent", Level: survival.Critical, Used: survival.Day{Calls: 100, CallLimit: 100},
				NextDay: at(-time.Hour), Rules: rules, Held: 1},
		}}
	}},
	{"schedules", func(i *installation) {
		i.schedules = []turnkeeper.Schedule{
			{Agent: "clerk", Name: "daily", Active: true, PausedAt: at(time.Hour), PausedReason: "holidays"},
			{Agent: "desk", Name: "daily", Active: true, PausedAt: at(time.Hour)},
			{Agent: "desk", Name: "gone", PausedAt: at(time.Hour)}, {Agent: "desk", Name: "on", Active: true},
		}
	}},
}
