package turnctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper/agentdef"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// The checks of doctor. Each function adds its checks; an error becomes a failed
// check.

func examineSettings(d *diagnosis, cfg *config.Config) {
	d.add(checkOK, "settings", "from "+cmp.Or(cfg.File, "flags, variables and defaults; there is no config file"), "")
	b := cfg.Bounds
	d.add(checkOK, "lease", fmt.Sprintf("%s; a turn takes at most %s and keeps a margin of %s; a silent worker counts as lost %s",
		b.LeaseTTL, b.MaxDuration, b.Margin, lostAfter(cfg.TakeoverAfter)), "")
}

func lostAfter(takeover time.Duration) string {
	if takeover == 0 {
		return "when its leases end"
	}
	return "after " + takeover.String()
}

func examineDatabase(ctx context.Context, d *diagnosis, cfg *config.Config, db *database.Database, c term.Clock) {
	asked := time.Now()
	facts, err := db.Store.ServerFacts(ctx)
	if err != nil {
		d.add(checkFail, "database", err.Error(), "the user of DATABASE_URL must be able to read the server's settings")
		return
	}
	off := facts.Now.Sub(asked.Add(time.Since(asked) / 2))
	examineServer(d, cfg, db.Private, facts, off)
	migrations, err := db.Store.Migrations(ctx)
	if err != nil {
		d.add(checkFail, "schema", err.Error(), "the user of DATABASE_URL must own the schema turnkeeper")
		return
	}
	if err := storage.CheckCompatible(migrations); err != nil {
		d.add(checkFail, "schema", err.Error(), "use the program that migrated it, or a later one")
		return
	}
	if newer := slices.IndexFunc(migrations, func(m storage.Migration) bool { return m.Newer }); newer >= 0 {
		d.add(checkWarn, "schema", fmt.Sprintf("newer than this program, which does not know %s", term.Plural(len(migrations)-newer, "migration")), "use the program that migrated it")
	}
	pending := shell.PendingOf(migrations)
	d.judge(pending == 0, checkFail, "schema", fmt.Sprintf("%d of %s applied", len(migrations)-pending, term.Plural(len(migrations), "migration")),
		`run "`+shell.Command("turnctl")+` migrate", or start a worker`)
	if pending == 0 {
		examineWrites(ctx, d, db.Store, facts.InRecovery)
		examineRights(ctx, d, db.Store)
		examineProcesses(ctx, d, cfg, db.Store, c, facts)
	}
}

// examineWrites reports whether the database accepts the writes of a turn.
func examineWrites(ctx context.Context, d *diagnosis, store *operate.Store, standby bool) {
	if standby {
		d.add(checkFail, "writable", "no: the server is a standby", "set DATABASE_URL to the primary")
		return
	}
	if err := store.TryWrite(ctx); err != nil {
		d.add(checkFail, "writable", "no: "+err.Error(), words.WriteAdvice(storage.Cause(err)))
		return
	}
	d.add(checkOK, "writable", "yes: a write as a turn makes it was accepted, and rolled back", "")
}

// examineRefused reports what the database refuses to workers, as of their last heartbeats.
func examineRefused(d *diagnosis, workers []presence.Heartbeat) {
	for _, w := range workers {
		if len(w.Refused) == 0 || w.State() == presence.Stopped {
			continue
		}
		longest, turns := w.Refused[0], []string{}
		for _, r := range w.Refused {
			if r.Turn != 0 {
				turns = append(turns, fmt.Sprint(r.Turn))
			}
		}
		found := fmt.Sprintf("of worker %s: %s: %s", w.WorkerID, words.Refusing(longest.For, longest.Attempts, longest.SQLState), longest.Message)
		if len(turns) > 0 {
			found += "; " + term.Plural(len(turns), "turn") + " " + verb(len(turns), "waits", "wait") + ": " + strings.Join(turns, ", ")
		}
		d.add(checkFail, "refused writes", term.OneLine(found, 500), words.WriteAdvice(longest.SQLState))
	}
}

// examineRights reports roles that may write rows without the functions for senders.
func examineRights(ctx context.Context, d *diagnosis, store *operate.Store) {
	statements, err := store.RightsToRevoke(ctx)
	if err != nil {
		d.add(checkFail, "rights", err.Error(), "")
		return
	}
	if len(statements) == 0 {
		d.add(checkOK, "rights", "only the workers' role may write to the tables", "")
	}
	for _, statement := range statements {
		d.add(checkFail, "rights", "a role may do more than call the functions for senders, and so stop the service",
			"run: "+statement+` It can send with the rights in README.md, section "From your own program"`)
	}
}

// The oldest supported Postgres, and the maximum difference between clocks.
const (
	oldestServer = 14
	clocksApart  = 2 * time.Second
)

func examineServer(d *diagnosis, cfg *config.Config, private bool, f storage.ServerFacts, off time.Duration) {
	where := "that of DATABASE_URL"
	if private {
		where = "private, in " + cfg.DataDir
	}
	version, _, _ := strings.Cut(f.Version, ".")
	major, _ := strconv.Atoi(version)
	d.judge(major >= oldestServer, checkWarn, "database", "Postgres "+f.Version+", "+where, fmt.Sprintf("use Postgres %d or later", oldestServer))
	d.judge(f.FSync == "on", checkFail, "fsync", f.FSync, "set fsync = on: without it a crash of the machine loses messages and replies")
	d.judge(f.SynchronousCommit != "off", checkFail, "synchronous_commit", f.SynchronousCommit,
		"set synchronous_commit = on for this database: with off, acknowledged messages can be lost and calls started twice")
	d.judge(f.FullPageWrites == "on", checkWarn, "full_page_writes", f.FullPageWrites,
		"set full_page_writes = on, unless the file system writes pages atomically")
	d.judge(f.Encoding == "UTF8", checkFail, "encoding", f.Encoding, "create a database with encoding UTF8 and set DATABASE_URL to it")
	d.judge(off.Abs() <= clocksApart, checkWarn, "clock", fmt.Sprintf("the database's is %s", ahead(off)),
		"synchronise both clocks by NTP: leases use the database's clock, logs use this one")
}

func ahead(off time.Duration) string {
	switch {
	case off.Abs() < 100*time.Millisecond:
		return "the same as this machine's"
	case off > 0:
		return term.Exact(off) + " ahead of this machine's"
	default:
		return term.Exact(-off) + " behind this machine's"
	}
}

func examineProcesses(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store, c term.Clock, f storage.ServerFacts) {
	workers, err := store.Workers(ctx)
	if err != nil {
		d.add(checkFail, "workers", err.Error(), "")
		return
	}
	queue, err := store.Queue(ctx)
	if err != nil {
		d.add(checkFail, "queue", err.Error(), "")
		return
	}
	alive := examineWorkers(d, workers, queue)
	examineRefused(d, workers)
	examineTokens(ctx, d, cfg, store)
	examineWebhooks(ctx, d, store, c)
	examineModels(ctx, d, store, c)
	examineConnections(d, cfg, f, alive)
	settings, err := store.SchedulerSettings(ctx)
	if err != nil {
		d.add(checkFail, "scheduler", err.Error(), "")
		return
	}
	c = term.Clock{Now: f.Now, Zone: c.Zone} // the times below are the database's
	schedulers := schedulersOf(workers)
	examineScheduler(d, cfg, settings, c, scheduling{schedulers, alive > 0 || len(schedulers) > 0, examineAside(ctx, d, store, c)})
	examineWaits(ctx, d, store, c)
	examineAsks(ctx, d, store, queue, c)
	examineLosses(ctx, d, store)
	examineRetention(ctx, d, cfg, store, c)
	examineBudgets(ctx, d, store, c)
	examineLevels(ctx, d, store, c)
	reported := examineSchedules(ctx, d, cfg, store, c)
	examineRegistered(ctx, d, cfg, store, reported)
	examinePins(ctx, d, cfg, store)
	examineLogins(ctx, d, cfg, store, c.Now)
}

// examineTokens reports an HTTP API that answers nobody, because there is no token.
func examineTokens(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store) {
	if !cfg.NeedsToken() {
		return
	}
	there, err := store.AnyToken(ctx)
	if err != nil {
		d.add(checkFail, "tokens", err.Error(), "")
		return
	}
	d.judge(there, checkWarn, "tokens", map[bool]string{true: "there are tokens for the HTTP API", false: "there is none, so the HTTP API answers every request with 401"}[there],
		"create one: "+shell.Command("turnctl")+" tokens create NAME --scopes send,read")
}

// examineSchedules reports paused schedules, and agents that have an active
// schedule but no file in the folder, for example because it was removed. It
// returns these agents.
func examineSchedules(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store, c term.Clock) (foreign []string) {
	schedules, err := store.Schedules(ctx)
	if err != nil {
		d.add(checkFail, "schedules", err.Error(), "")
		return nil
	}
	for _, s := range schedules {
		if s.Active && !s.PausedAt.IsZero() {
			found := fmt.Sprintf("%s has been paused since %s", s.Name, c.At(s.PausedAt))
			if s.PausedReason != "" {
				found += ": " + term.OneLine(s.PausedReason, 300)
			}
			d.add(checkWarn, "schedule "+s.Agent, found, fmt.Sprintf("%s schedules resume %s/%s", shell.Command("turnctl"), s.Agent, s.Name))
		}
		if s.Active && s.PausedAt.IsZero() && !slices.Contains(foreign, s.Agent) && !hasFile(cfg.AgentsDir, s.Agent) {
			foreign = append(foreign, s.Agent)
		}
	}
	for _, agent := range foreign {
		d.add(checkWarn, "schedules", fmt.Sprintf("%s runs by its schedule, but has no file in %s", agent, cfg.AgentsDir),
			fmt.Sprintf("ignore this if another worker has the file; else pause the schedule: %s schedules pause %s", shell.Command("turnctl"), agent))
	}
	return foreign
}

// examineRegistered reports the other registered agents without a file in the folder.
func examineRegistered(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store, reported []string) {
	agents, err := store.Agents(ctx)
	if err != nil {
		d.add(checkFail, "agents", err.Error(), "")
		return
	}
	without := slices.DeleteFunc(fileless(cfg.AgentsDir, agents), func(name string) bool { return slices.Contains(reported, name) })
	if len(without) > 0 {
		d.add(checkWarn, "agents", fmt.Sprintf("registered, but without a file in %s: %s", cfg.AgentsDir, strings.Join(without, ", ")),
			"ignore this if another worker has the file; else it was removed: they still accept messages and run with their last definition")
	}
	examineFiles(ctx, d, cfg, store, agents)
}

// examineWorkers checks the workers and returns how many are alive. That none is alive is a failure if messages or
// turns wait.
func examineWorkers(d *diagnosis, workers []presence.Heartbeat, queue operate.Totals) (alive int) {
	slots := 0
	var silent, draining, serving []string
	for _, w := range workers {
		switch w.State() {
		case presence.Alive:
			alive++
			slots += w.Slots
		case presence.Serving:
			serving = append(serving, string(w.WorkerID)+" ("+strings.Join(w.Roles, ", ")+")")
		case presence.Draining:
			draining = append(draining, string(w.WorkerID))
		case presence.Silent:
			silent = append(silent, string(w.WorkerID))
		}
	}
	verdict, found := checkWarn, fmt.Sprintf("%d alive with %s", alive, term.Plural(slots, "slot"))
	for _, waits := range []struct {
		n    int
		noun string
	}{{queue.Waiting, "message"}, {queue.Queued, "queued turn"}} {
		if alive == 0 && waits.n > 0 {
			verdict, found = checkFail, found+"; "+term.Plural(waits.n, waits.noun)+" "+verb(waits.n, "waits", "wait")
		}
	}
	d.judge(alive > 0, verdict, "workers", found, "start one: "+shell.Command("worker"))
	if len(silent) > 0 {
		d.add(checkWarn, "lost workers", strings.Join(silent, ", "), "find out why they died; other workers take over their turns")
	}
	if len(draining) > 0 {
		d.add(checkOK, "taking no turns", strings.Join(draining, ", ")+": shutting down", "")
	}
	if len(serving) > 0 {
		d.add(checkOK, "other roles", strings.Join(serving, ", ")+": they take no turns", "")
	}
	return alive
}

// extraConnections is the number of a worker's connections outside its pool:
// for ends of turns, the doorbell, and River's listener.
const extraConnections = 4

func examineConnections(d *diagnosis, cfg *config.Config, f storage.ServerFacts, alive int) {
	each := cfg.DBPoolSize + extraConnections
	needed := each*max(alive, 1) + 10
	d.judge(f.MaxConnections >= needed, checkWarn, "connections",
		fmt.Sprintf("the server allows %d; a worker may use %d", f.MaxConnections, each),
		fmt.Sprintf("raise max_connections to %d or more, or lower db_pool_size", needed))
}

// schedulersOf returns the live processes with the role scheduler.
func schedulersOf(workers []presence.Heartbeat) (ids []string) {
	for _, w := range workers {
		if state := w.State(); state != presence.Stopped && state != presence.Silent && slices.Contains(w.Roles, config.RoleScheduler) {
			ids = append(ids, string(w.WorkerID))
		}
	}
	return ids
}

// A scheduling says who schedules.
type scheduling struct {
	by       []string // live processes with the role scheduler
	expected bool     // some process is alive; if not, the check of the workers says what to do
	failing  bool     // ticks fail, which is reported already
}

// examineScheduler reports a scheduler that does not grant.
func examineScheduler(d *diagnosis, cfg *config.Config, set operate.SchedulerSettings, c term.Clock, who scheduling) {
	poll := cmp.Or(set.PollInterval, cfg.PollInterval)
	late := max(6*poll, time.Minute)
	ran := "last ran " + c.At(set.LastTickAt)
	silent := set.LastTickAt.IsZero() || c.Now.Sub(set.LastTickAt) > late
	if set.LastTickAt.IsZero() {
		ran = "has never run"
	}
	advice := "give a worker the role scheduler"
	if len(who.by) > 0 && silent {
		ran += fmt.Sprintf(", though %s %s the role scheduler", words.Enumerate(who.by), verb(len(who.by), "has", "have"))
		advice = "look in its log, and in pg_stat_activity for what its session waits for"
		if who.failing {
			advice = "its ticks fail: see the check \"set aside\""
		}
	}
	switch {
	case !set.PausedAt.IsZero():
		d.add(checkWarn, "scheduler", "paused since "+c.At(set.PausedAt)+": "+set.PausedReason, shell.Command("turnctl")+" scheduler resume")
	case set.HoldUntil.After(c.Now):
		d.add(checkWarn, "scheduler", "holds off until "+c.At(set.HoldUntil)+": "+set.HoldReason, "it continues by itself; if no commit was lost: "+shell.Command("turnctl")+" scheduler resume --now")
	default:
		d.judge(!silent || !who.expected, checkWarn, "scheduler", ran, advice)
	}
}

func examineAgents(ctx context.Context, s *shell.Session, d *diagnosis, cfg *config.Config) {
	report, servers := checkFiles(ctx, s, cfg.AgentsDir, cfg)
	for _, problem := range report.Problems {
		d.add(checkFail, "agent files", problem, "correct it: a worker does not start with it")
	}
	for _, warning := range report.Warnings {
		d.add(checkWarn, "agent files", warning, "change the file, or ignore this if it is intended")
	}
	if len(report.Problems)+len(report.Warnings) == 0 {
		d.add(checkOK, "agent files", strings.Join(report.Agents, ", ")+" in "+cfg.AgentsDir, "")
	}
	examineMCP(d, servers)
	providers := setup.CheckProviders(ctx, cfg)
	examineProviders(d, providers, usedModels(cfg))
	examineWindows(d, s.Masker.String, report.windows, providers)
}

// examineProviders reports which providers work, and which of the agents' models they do not list.
func examineProviders(d *diagnosis, checks []setup.ProviderCheck, used map[string][]string) {
	for _, p := range checks {
		verdict := checkWarn
		for model := range used {
			if provider, _, _ := strings.Cut(model, "/"); provider == p.Name && !p.Unasked {
				verdict = checkFail
			}
		}
		d.judge(p.OK, verdict, "provider "+p.Name, strings.TrimSpace(p.BaseURL+" "+p.Detail), p.Advice)
		for _, model := range slices.Sorted(maps.Keys(used)) {
			if !p.Lacks(model) {
				continue
			}
			advice := "correct the name, unless the provider serves unlisted models; calls of a missing model fail"
			if near := p.Nearest(model); len(near) > 0 {
				advice += "; similar names are " + strings.Join(near, ", ")
			}
			d.add(checkWarn, "model "+model, fmt.Sprintf("the provider does not list it; used by %s", strings.Join(used[model], ", ")), advice)
		}
	}
}

// examineWindows reports the context windows of the agents' models. It omits one that is unknown because its provider
// fails: the provider's check says what to do.
func examineWindows(d *diagnosis, masked func(string) string, windows []setup.ModelWindow, providers []setup.ProviderCheck) {
	var known []string
	for _, w := range windows {
		provider, _, _ := strings.Cut(w.Model, "/")
		fails := slices.ContainsFunc(providers, func(p setup.ProviderCheck) bool { return p.Name == provider && !p.OK })
		if what, advice := w.Warning(); what != "" {
			if fails {
				continue
			}
			d.add(checkWarn, "context window", masked(what), advice)
			continue
		}
		known = append(known, w.String())
	}
	if len(known) > 0 {
		d.add(checkOK, "context window", strings.Join(known, "; "), "")
	}
}

// usedModels returns the models of the folder's agents, with the agents' names.
func usedModels(cfg *config.Config) map[string][]string {
	used := map[string][]string{}
	agents, _ := agentdef.Load(cfg.AgentsDir) // examineAgents reports errors
	for _, agent := range agents {
		for _, model := range setup.ModelsOf(agent, cfg) {
			used[model] = append(used[model], agent.Name)
		}
	}
	return used
}

// examineWebhooks reports the state of each webhook.
func examineWebhooks(ctx context.Context, d *diagnosis, store *operate.Store, c term.Clock) {
	all, err := store.Webhooks(ctx)
	if err != nil {
		d.add(checkFail, "webhooks", err.Error(), "")
		return
	}
	for _, w := range all {
		name := "webhook " + w.Name
		switch {
		case !w.PausedAt.IsZero():
			d.add(checkWarn, name, fmt.Sprintf("paused %s: %s; %d replies wait", c.Ago(w.PausedAt), w.PausedReason, w.Pending), "turnctl webhooks resume "+w.Name)
		case !w.Served():
			d.add(checkWarn, name, fmt.Sprintf("no worker has it in its settings; %d replies wait", w.Pending),
				"start a worker that has it, or remove it: turnctl webhooks remove "+w.Name)
		case w.Dead > 0 || w.Pending > 0 && w.FailedAt.After(w.SucceededAt):
			found, advice := failingWebhook(w, c)
			d.add(checkWarn, name, found, advice)
		default:
			d.add(checkOK, name, fmt.Sprintf("%d pending, none dead", w.Pending), "")
		}
	}
}

// failingWebhook describes undelivered replies, and says what to do.
func failingWebhook(w operate.WebhookView, c term.Clock) (found, advice string) {
	advice = "fix the endpoint: pending replies are retried by themselves; see turnctl webhooks show " + w.Name
	if w.Pending > 0 && w.FailedAt.After(w.SucceededAt) {
		found = fmt.Sprintf("its newest attempt failed %s; %s %s, the oldest for %s; ", c.Ago(w.FailedAt),
			term.Thousands(int64(w.Pending)), verb(w.Pending, "reply waits", "replies wait"), term.Coarse(w.Oldest))
	}
	if w.Dead > 0 {
		found += fmt.Sprintf("%d dead deliveries; ", w.Dead)
		advice = "fix the endpoint, then run turnctl webhooks redeliver " + w.Name + " --dead"
	}
	return found + "last error: " + term.OrDash(term.OneLine(w.LastError, 300)), advice
}
