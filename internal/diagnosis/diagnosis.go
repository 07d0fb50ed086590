// Package diagnosis finds problems of an installation, from its database alone. turnctl doctor, the API and the page
// show what it finds. It knows no files, providers or MCP servers: turnctl doctor checks these in addition.
package diagnosis

import (
	"cmp"
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A Verdict says how bad a finding is.
type Verdict string

// The verdicts, the worst first.
const (
	Fail Verdict = "fail"
	Warn Verdict = "warn"
	OK   Verdict = "ok"
)

// Verdicts lists the verdicts, the worst first.
var Verdicts = []Verdict{Fail, Warn, OK}

// A Check is one finding.
type Check struct {
	Name    string
	Verdict Verdict
	Found   string
	Advice  string // what to do; empty: nothing
	Agent   string // the agent it is about; empty: the installation
	Unread  bool   // the check did not run, because it could not read the database

	ForSome string // what a caller who does not see all agents gets in place of Found; empty: Found
}

// A Report holds findings. The zero value is empty.
type Report struct {
	Checks []Check
	At     time.Time // when the checks began, by this process's clock; zero: not known
}

// Add adds a finding about the installation.
func (d *Report) Add(verdict Verdict, name, found, advice string) {
	d.AddAbout("", verdict, name, found, advice)
}

// AddAbout adds a finding about an agent.
func (d *Report) AddAbout(agent string, verdict Verdict, name, found, advice string) {
	d.Checks = append(d.Checks, Check{Name: name, Verdict: verdict, Found: found, Advice: advice, Agent: agent})
}

// Judge adds a finding about the installation: OK if well, else with the verdict and the advice.
func (d *Report) Judge(well bool, verdict Verdict, name, found, advice string) {
	if well {
		verdict, advice = OK, ""
	}
	d.Add(verdict, name, found, advice)
}

// Unread adds that a check did not run, because it could not read the database.
func (d *Report) Unread(name string, err error) {
	d.Checks = append(d.Checks, Check{Name: name, Verdict: Fail, Found: err.Error(), Unread: true})
}

// For returns the findings about the agents for which sees returns true. Of a check that did not run it keeps that it
// did not, without the error.
func (d *Report) For(sees func(agent string) bool) Report {
	some := Report{At: d.At}
	for _, c := range d.Checks {
		switch {
		case c.Unread:
			some.Add(Fail, c.Name, "this check could not read the database", "")
		case c.Agent != "" && sees(c.Agent):
			c.Found = cmp.Or(c.ForSome, c.Found)
			some.Checks = append(some.Checks, c)
		}
	}
	return some
}

// Sort orders the findings by verdict, the worst first.
func (d *Report) Sort() {
	slices.SortStableFunc(d.Checks, func(a, b Check) int {
		return slices.Index(Verdicts, a.Verdict) - slices.Index(Verdicts, b.Verdict)
	})
}

// Count returns the number of findings with a verdict.
func (d *Report) Count(verdict Verdict) (n int) {
	for _, c := range d.Checks {
		if c.Verdict == verdict {
			n++
		}
	}
	return n
}

// Settings are what the checks need to know of the process. The zero value is that of a process with the defaults of an
// empty Postgres.
type Settings struct {
	Database     string                   // where the database is, for people
	NeedsToken   bool                     // the HTTP API answers nobody without a token
	DBPoolSize   int                      // connections of a worker's pool
	PollInterval time.Duration            // of the scheduler, unless an operator has set another
	Retention    retention.Policy         // of the settings
	Zone         *time.Location           // of the times in findings; nil: UTC
	Command      func(name string) string // how to call a program of Turnkeeper; nil: by its name
	Mask         func(string) string      // masks secrets in errors; nil: no masking
}

func (s Settings) command(name string) string {
	if s.Command == nil {
		return name
	}
	return s.Command(name)
}

// A Store reads what the checks look at; *operate.Store implements it.
type Store interface {
	ServerFacts(ctx context.Context) (storage.ServerFacts, error)
	Migrations(ctx context.Context) ([]storage.Migration, error)
	TryWrite(ctx context.Context) error
	RightsToRevoke(ctx context.Context) ([]string, error)
	Workers(ctx context.Context) ([]presence.Heartbeat, error)
	Queue(ctx context.Context) (operate.Totals, error)
	AnyToken(ctx context.Context) (bool, error)
	Webhooks(ctx context.Context) ([]operate.WebhookView, error)
	Models(ctx context.Context) ([]modelhealth.Health, error)
	Messages(ctx context.Context, p operate.Page) ([]waiting.Message, error)
	WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (waiting.Message, error)
	SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error)
	Aside(ctx context.Context) ([]granting.Aside, error)
	LongWaits(ctx context.Context, dueFor time.Duration) ([]operate.LongWait, error)
	ListAsks(ctx context.Context, f operate.AskFilter) ([]operate.Ask, error)
	LossyTurns(ctx context.Context, endedWithin time.Duration) ([]operate.LossyTurn, error)
	KeptFor(ctx context.Context) (time.Duration, error)
	StoredParts(ctx context.Context) (operate.StoredParts, error)
	DaySpend(ctx context.Context) ([]operate.DaySpend, error)
	Levels(ctx context.Context) (operate.Levels, error)
	Schedules(ctx context.Context) ([]turnkeeper.Schedule, error)
}

// Examine adds what it finds to d; an error becomes a failed check. usable is false if nothing can be read from the
// schema.
func Examine(ctx context.Context, d *Report, set Settings, store Store) (usable bool) {
	d.At = time.Now()
	facts, usable := examineDatabase(ctx, d, set, store)
	if usable {
		zone := set.Zone
		if zone == nil {
			zone = time.UTC
		}
		examineWork(ctx, d, set, store, facts, words.Clock{Now: facts.Now, Zone: zone})
	}
	for i := range d.Checks {
		if set.Mask != nil {
			d.Checks[i].Found = set.Mask(d.Checks[i].Found)
		}
	}
	return usable
}

// examineWork checks what runs and waits. Its times are the database's.
func examineWork(ctx context.Context, d *Report, set Settings, store Store, facts storage.ServerFacts, c words.Clock) {
	workers, err := store.Workers(ctx)
	if err != nil {
		d.Unread("workers", err)
		return
	}
	queue, err := store.Queue(ctx)
	if err != nil {
		d.Unread("queue", err)
		return
	}
	alive := examineWorkers(d, set, workers, queue)
	examineRefused(d, workers)
	examineTokens(ctx, d, set, store)
	examineWebhooks(ctx, d, store, c)
	examineModels(ctx, d, store, c)
	examineConnections(d, set, facts, alive)
	scheduler, err := store.SchedulerSettings(ctx)
	if err != nil {
		d.Unread("scheduler", err)
		return
	}
	by := schedulersOf(workers)
	examineScheduler(d, set, scheduler, c, scheduling{by, alive > 0 || len(by) > 0,
		examineAside(ctx, d, set, store, c)})
	examineWaits(ctx, d, store, c)
	examineAsks(ctx, d, store, queue, c)
	examineLosses(ctx, d, store)
	examineRetention(ctx, d, set, store, c)
	examineBudgets(ctx, d, store, c)
	examineLevels(ctx, d, store, c)
	examineSchedules(ctx, d, set, store, c)
}
