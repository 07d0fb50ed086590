package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/inference/tokens"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/netguard"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/version"
	"turnkeeper/jobs"
	"turnkeeper/lease"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/tools"
)

// Ready is what a worker says of itself when it takes work.
type Ready struct {
	WorkerID  turnkeeper.WorkerID
	Agents    []string
	Providers []string
	Roles     []string
	Slots     int
	Private   bool   // the database is the private one
	API       string // URL of the HTTP API; empty: there is none here
}

// A WorkerOption adds to a worker what its configuration cannot say.
type WorkerOption func(*worker)

// WithTools adds tools that agents can list.
func WithTools(more ...tools.Tool) WorkerOption {
	return func(w *worker) { w.moreTools = append(w.moreTools, more...) }
}

// WithReload makes the worker read its agent files again at each value.
func WithReload(again <-chan os.Signal) WorkerOption {
	return func(w *worker) { w.reload = again }
}

// RunWorker runs a worker until soft ends: then it takes no more turns, gives
// those that run their grace, hands back what is left, and returns. When hard
// ends it stops at once. ready is called when it takes work. Where the agents'
// files have faults, the error is one of ErrAgents and no database was touched; none
// is either where an address of the settings cannot be had.
func RunWorker(soft, hard context.Context, cfg *config.Config, log *zap.Logger, ready func(Ready), options ...WorkerOption) error {
	w := &worker{cfg: cfg, log: log, id: newWorkerID(), agents: &setup.Agents{}, pushed: make(chan struct{}), windowsWarned: map[string]bool{}}
	for _, option := range options {
		option(w)
	}
	if err := w.readAgents(); err != nil {
		return err
	}
	w.warnOfRoot()
	var err error
	if w.bound, err = bind(soft, cfg, log); err != nil {
		return err
	}
	defer w.bound.close()
	for _, address := range w.bound.addresses() {
		w.own.Add(address)
	}
	telling, err := startTelling(soft, cfg, string(w.id), log)
	if err != nil {
		return err
	}
	w.telling = telling
	stopTelling := telling.closer(hard)
	defer stopTelling()
	db, err := database.Open(soft, cfg, log, w.fault)
	if err != nil {
		return err
	}
	defer closeSoon(hard, db, log)
	defer stopTelling() // its last look needs the database
	w.db, w.store = db, newWorkerStore(db.Store)
	if err := w.prepare(soft); err != nil {
		return err
	}
	return w.run(soft, hard, ready)
}

// closeTime bounds the wait for connections that turns still hold, and atOnce
// each wait of a worker that was told twice to stop.
const (
	closeTime = 10 * time.Second
	atOnce    = time.Second
)

// closeSoon closes the database, but does not wait for ever for a turn that
// would not stop.
func closeSoon(hard context.Context, db *database.Database, log *zap.Logger) {
	closed := make(chan error, 1)
	go func() { closed <- db.Close(hard) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), closeTime)
	defer cancel()
	defer soonAfter(hard, cancel)()
	select {
	case err := <-closed:
		if err != nil {
			log.Warn("closing the database", zap.Error(err))
		}
	case <-ctx.Done():
		log.Warn("the database was not closed in time")
	}
}

// soonAfter calls f a moment after hard has ended. The function it returns
// undoes that.
func soonAfter(hard context.Context, f func()) (undo func()) {
	var timer *time.Timer
	set := make(chan struct{})
	stop := context.AfterFunc(hard, func() {
		timer = time.AfterFunc(atOnce, f)
		close(set)
	})
	return func() {
		if !stop() {
			<-set
			timer.Stop()
		}
	}
}

// A worker is one run of a worker process.
type worker struct {
	cfg       *config.Config
	log       *zap.Logger
	db        *database.Database
	store     *workerStore
	id        turnkeeper.WorkerID
	moreTools []tools.Tool
	fault     fault.Hook // nil in production
	reload    <-chan os.Signal

	agents *setup.Agents
	models *setup.Models
	tools  *tools.Registry
	mcp    *setup.MCPSource
	runner *agentturn.Runner
	turns  *jobs.Worker
	calls  *jobs.CallWorker
	client *jobs.Client
	heart  *lease.Heart
	bell   *storage.Notifier
	bound  bound
	api    *api
	own    netguard.Listeners // what tools must not reach
	pushed chan struct{}      // closed when nothing is pushed any more

	telling *telling

	windowsWarned map[string]bool // models; used by one goroutine at a time

	mu       sync.Mutex
	draining bool
}

// readAgents loads the agents' files before there is a database: they need to
// know the names of tools and nothing else.
func (w *worker) readAgents() error {
	known, err := setup.KnownTools(w.cfg, w.moreTools...)
	if err != nil {
		return err
	}
	return w.agents.Load(w.cfg, known, w.log)
}

// warnOfRoot warns of what tools can do where the worker is root.
func (w *worker) warnOfRoot() {
	if os.Geteuid() == 0 && w.cfg.HasRole(config.RoleWorker) {
		w.log.Warn("this worker runs as root, and so do its tools: a program tool or MCP server can read every file and the worker's secrets, " +
			"and change this machine; start the worker as a user of its own")
	}
}

// prepare makes everything that can be wrong go wrong before any work is taken.
func (w *worker) prepare(ctx context.Context) error {
	masker := w.cfg.Masker()
	var err error
	if w.models, err = setup.NewModels(w.cfg, w.agents.Script, completions.Read, masker, w.log); err != nil {
		return err
	}
	if w.tools, err = setup.NewToolbox(w.agents, w.store.Store, w.cfg, masker, &w.own, append(setup.Programs(w.cfg), w.moreTools...)); err != nil {
		return err
	}
	if err := w.store.CheckSessions(ctx); err != nil {
		return err
	}
	warnOfEncoding(ctx, w.store.Store, w.log)
	if w.cfg.MigrateOnStart {
		if _, err := setup.Migrate(ctx, w.db); err != nil {
			return err
		}
	} else if err := w.db.CheckSchema(ctx); err != nil {
		return err
	}
	if err := w.store.CheckTables(ctx); err != nil {
		return err
	}
	if err := w.checkTokens(ctx); err != nil {
		return err
	}
	if err := w.store.SetMaxMessageBytes(ctx, w.cfg.MaxMessageBytes); err != nil {
		return err
	}
	if err := w.agents.Register(ctx, w.store.Store, w.cfg); err != nil {
		return err
	}
	w.agents.TellFileless(ctx, w.store.Store, w.log)
	w.learnWindows(ctx)
	if w.mcp, err = setup.NewMCPSource(ctx, w.cfg, w.store, masker, w.log); err != nil {
		return err
	}
	return w.prepareTurns()
}

func (w *worker) prepareTurns() (err error) {
	w.runner = agentturn.New(agentturn.Config{
		Models: w.models, DefaultModel: w.cfg.DefaultModel, Tools: w.tools, More: w.mcp, Bounds: w.cfg.Bounds,
		ExtractionModel: w.cfg.ExtractionModel, Extractions: w.store,
		Agents: w.agents, Freshness: w.store, Outputs: w.store, Budget: &jobs.Spend{Grants: w.store.leases}, Log: w.log, Observer: w.telling, Fault: w.fault,
		Tokens: func(model string) prompt.TokenCounter { return tokens.For(model) },
	})
	w.turns = jobs.NewWorker(jobs.WorkerConfig{
		DB: w.store.DB, Runner: w.runner, WorkerID: w.id, Bounds: w.cfg.Bounds, Log: w.log, Observed: w.telling.Traces(), Fault: w.fault,
		BoundsFor: func(d *agentdef.Definition) turnkeeper.Bounds { return w.cfg.BoundsFor(d) },
	})
	w.calls = jobs.NewCallWorker(jobs.CallWorkerConfig{
		DB: w.store.DB, Runner: w.runner, WorkerID: w.id, Tools: detached(w.tools), Log: w.log, Fault: w.fault,
	})
	client := jobs.ClientConfig{Pool: w.store.QueuePool(), WorkerID: w.id, Slots: w.cfg.WorkerSlots, Log: w.log}
	if w.cfg.HasRole(config.RoleWorker) {
		client.Worker, client.Calls, client.CallSlots = w.turns, w.calls, w.cfg.DetachedSlots
	}
	w.client, err = jobs.NewClient(client)
	w.heart = lease.NewHeart(w.beat, w.cfg.TakeoverAfter, w.log)
	w.bell = storage.NewNotifier(w.db.URL, w.log)
	w.bell.Worker = w.id
	return err
}

func (w *worker) run(soft, hard context.Context, ready func(Ready)) (err error) {
	// What runs in the background ends with this function, not with soft.
	ctx, stop := context.WithCancel(context.WithoutCancel(soft))
	background := &sync.WaitGroup{}
	defer background.Wait()
	defer stop()
	w.at(ctx, pointStarting)
	if err := firstBeat(soft, w.heart.Beat, w.log); err != nil {
		return err
	}
	if w.api, err = w.openAPI(ctx); err != nil {
		return err
	}
	defer w.api.close(hard)
	w.telling.serve(w.bound.metrics)
	if err := w.watch(); err != nil {
		return err
	}
	push, err := w.openWebhooks(ctx)
	if err != nil {
		return err
	}
	scheduling, stopScheduling := context.WithCancel(ctx)
	defer stopScheduling()
	background.Go(func() { w.bell.Run(ctx) })
	background.Go(func() { w.heart.Run(ctx, func() { w.turns.Stop(lease.ErrSilent) }) })
	background.Go(func() { w.db.KeepUp(ctx) })
	background.Go(func() { w.tidy(ctx) })
	background.Go(func() { w.rereadAgents(ctx) })
	if w.cfg.HasRole(config.RoleWorker) {
		defer w.mcp.Client.Close()
		w.mcp.Use(w.agents.Current.Load())
		if err := w.client.Start(ctx); err != nil {
			return fmt.Errorf("starting River: %w", err)
		}
		background.Go(func() { w.turns.GiveBackOverlooked(ctx) })
		background.Go(func() { w.watchCalls(ctx) })
		background.Go(func() { w.models.Windows.KeepAsking(ctx, w.log) })
		background.Go(func() { w.watchCancels(ctx) })
	}
	if w.cfg.HasRole(config.RoleScheduler) {
		background.Go(func() { w.schedule(scheduling) })
	}
	background.Go(func() {
		defer close(w.pushed)
		push.run(scheduling, hard)
	})
	// There is room now: schedulers elsewhere need not wait for their poll.
	if err := w.store.RingInbox(ctx); err != nil {
		w.log.Warn("the schedulers could not be told of this worker; they find it by their poll", zap.Error(err))
	}
	ready(w.ready())
	w.at(ctx, pointReady)
	<-soft.Done()
	w.at(ctx, pointStopping)
	w.api.drain()
	stopScheduling()
	return w.shutDown(ctx, hard)
}

// beatPause is how long a worker waits before it tries its first heartbeat again.
const beatPause = time.Second

// firstBeat writes the first heartbeat. A database that is slow or away is waited for, until ctx ends.
func firstBeat(ctx context.Context, beat func(context.Context) error, log *zap.Logger) error {
	for {
		err := beat(ctx)
		switch {
		case err == nil:
			return nil
		case !storage.Passes(err) || ctx.Err() != nil:
			return fmt.Errorf("the heartbeat cannot be written: %w", err)
		}
		log.Warn("the first heartbeat could not be written; it is tried again", zap.Error(err))
		_ = pause.For(ctx, beatPause)
	}
}

// warnOfEncoding warns of a database that cannot hold every text.
func warnOfEncoding(ctx context.Context, store interface {
	Encoding(ctx context.Context) (string, error)
}, log *zap.Logger) {
	if name, err := store.Encoding(ctx); err == nil && name != "UTF8" {
		log.Warn("the database is not UTF-8: text with other characters fails; make one with: create database NAME encoding 'UTF8' template template0",
			zap.String("encoding", name))
	}
}

// learnWindows finds out the context windows of the agents' models, and warns of those that nobody
// knows.
func (w *worker) learnWindows(ctx context.Context) {
	if !w.cfg.HasRole(config.RoleWorker) {
		return
	}
	names := setup.WindowsNeeded(w.cfg, slices.Collect(w.agents.Current.Load().All()))
	w.models.Windows.Tell(w.models.Windows.Learn(ctx, names), w.windowsWarned, w.log)
}

// watchCalls stops detached calls that are no longer this worker's, and gives back
// what it overlooked.
func (w *worker) watchCalls(ctx context.Context) {
	rings, cancel := w.bell.Subscribe(storage.TopicCalls)
	defer cancel()
	w.calls.Watch(ctx, rings)
}

// watchCancels ends the turns here that somebody asked to be cancelled.
func (w *worker) watchCancels(ctx context.Context) {
	rings, cancel := w.bell.Subscribe(storage.TopicCancels)
	defer cancel()
	w.turns.WatchCancels(ctx, rings)
}

// stop ends every turn and detached call that runs, with the cause.
func (w *worker) stop(cause error) {
	w.turns.Stop(cause)
	w.calls.Stop(cause)
}

// detached are the names of the tools whose calls run in jobs of their own.
func detached(all *tools.Registry) (names []string) {
	for _, spec := range all.Specs() {
		if spec.Detached {
			names = append(names, spec.Name)
		}
	}
	return names
}

func (w *worker) ready() Ready {
	return Ready{
		WorkerID: w.id, Agents: w.agents.Names(), Providers: slices.Sorted(maps.Keys(w.models.Providers)),
		Roles: w.cfg.Roles, Slots: w.slots(), Private: w.db.Private, API: w.api.url(),
	}
}

func (w *worker) schedule(ctx context.Context) {
	rings, cancel := w.bell.Subscribe(storage.TopicInbox)
	defer cancel()
	freed, cancel := w.bell.Subscribe(storage.TopicFreed)
	defer cancel()
	scheduler.New(scheduler.Config{
		Store: &jobs.Dispatcher{Grants: w.store.leases, Client: w.client, TTL: w.cfg.Bounds.LeaseTTL},
		Wake:  rings, Freed: freed, PollInterval: w.cfg.PollInterval, MaxDispatches: w.cfg.MaxDispatchesPerTick,
		MaxLosses: w.cfg.Bounds.MaxDispatches, LeaseTTL: w.cfg.Bounds.LeaseTTL, Log: w.log, Observer: w.telling, Fault: w.fault,
	}).Run(ctx)
}

func (w *worker) slots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining || !w.cfg.HasRole(config.RoleWorker) {
		return 0
	}
	return w.cfg.WorkerSlots
}

func (w *worker) beat(ctx context.Context) error {
	host, _ := os.Hostname() // only shown to operators
	w.at(ctx, pointBeat)
	defer w.at(ctx, pointBeaten)
	return w.store.Beat(ctx, turnkeeper.Heartbeat{
		WorkerID: w.id, Host: host, PID: os.Getpid(), Version: version.Version(), Roles: w.cfg.Roles, Slots: w.slots(), TakeoverAfter: w.cfg.TakeoverAfter,
	})
}

// handBack is what turns get to end at a journal boundary once their grace is
// over.
const handBack = 10 * time.Second

// shutDown takes no more turns, and ends those that run.
func (w *worker) shutDown(ctx, hard context.Context) error {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.log.Info("stopping: no new turns are taken", zap.Int("running", w.turns.Running()), zap.Int("detached", w.calls.Running()),
		zap.Duration("grace", w.cfg.ShutdownGrace))
	if err := w.heart.Beat(ctx); err != nil {
		w.log.Warn("the heartbeat could not be written", zap.Error(err))
	}
	w.at(ctx, pointDrained)
	if w.cfg.HasRole(config.RoleWorker) {
		if err := w.stopTurns(ctx, hard); err != nil {
			return err
		}
		w.turns.GiveBack(ctx, 0)
		w.calls.GiveBack(ctx, 0)
	}
	w.at(ctx, pointStopped)
	<-w.pushed // others take what is under way from a worker that has stopped
	if err := w.store.StopBeating(ctx, w.id); err != nil {
		w.log.Warn("the end of this worker could not be noted", zap.Error(err))
	}
	w.at(ctx, pointNoted)
	if n := w.runner.LeftBehind(); n > 0 {
		w.log.Warn("tools that did not return in their time end with this process", zap.Int64("left_behind", n))
	}
	w.log.Info("stopped")
	return nil
}

// errStoppedHard is what a worker says that was told twice to stop.
var errStoppedHard = errors.New("stopped at once: a turn that still ran and was not handed back goes on when this worker is found silent")

func (w *worker) stopTurns(ctx, hard context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- w.client.Stop(ctx) }()
	w.calls.HandOn()
	grace := time.NewTimer(w.cfg.ShutdownGrace)
	defer grace.Stop()
	over := time.NewTimer(w.cfg.ShutdownGrace + handBack)
	defer over.Stop()
	for {
		select {
		case err := <-stopped:
			return err
		case <-grace.C:
			w.log.Info("the grace is over; turns are handed back", zap.Int("running", w.turns.Running()))
			w.stop(agentturn.ErrShutdown)
		case <-over.C:
			return fmt.Errorf("%d turns did not stop in time; they are brought back when their leases end", w.turns.Running())
		case <-hard.Done():
			w.stop(agentturn.ErrShutdown)
			if w.awaitMoment(stopped) {
				w.noteEndAtOnce(ctx)
			}
			return errStoppedHard
		}
	}
}

// awaitMoment lets turns be handed back, and River end, where that takes no time. It
// says whether River has ended.
func (w *worker) awaitMoment(stopped <-chan error) bool {
	timer := time.NewTimer(atOnce)
	defer timer.Stop()
	select {
	case err := <-stopped:
		if err != nil {
			w.log.Warn("stopping River", zap.Error(err))
		}
		return true
	case <-timer.C:
		return false
	}
}

// noteEndAtOnce notes the end of a worker that was told twice to stop, unless something
// of it still runs: that is found by its silence alone.
func (w *worker) noteEndAtOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	select {
	case <-w.pushed:
	case <-ctx.Done():
		return
	}
	if w.turns.Running()+w.calls.Running() > 0 {
		return
	}
	if err := w.store.StopBeating(ctx, w.id); err != nil {
		w.log.Warn("the end of this worker could not be noted", zap.Error(err))
	}
}

// tidyEvery is how often a worker removes the traces of workers long gone, and
// extractions that were kept for long enough.
const tidyEvery = time.Hour

func (w *worker) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if err := w.store.ForgetWorkers(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("old heartbeats could not be removed", zap.Error(err))
		}
		if err := w.store.ForgetExtractions(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("old extractions could not be removed", zap.Error(err))
		}
		if err := w.store.SweepDrafts(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("parts of results that nobody finished could not be removed", zap.Error(err))
		}
		if err := w.store.SweepDeliveries(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("deliveries to webhooks that are gone could not be removed", zap.Error(err))
		}
		w.retain(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// retain removes messages that were closed for longer than they are kept.
func (w *worker) retain(ctx context.Context) {
	if w.cfg.Retention == 0 {
		return
	}
	done, err := w.store.Purge(ctx, operate.PurgeScope{OlderThan: w.cfg.Retention})
	if err != nil && ctx.Err() == nil {
		w.log.Warn("old messages could not all be removed", zap.Error(err))
	}
	if done.Messages > 0 {
		w.log.Info("old messages are removed", zap.Int("messages", done.Messages), zap.Int("turns", done.Turns), zap.Duration("retention", w.cfg.Retention))
	}
}

// rereadAgents reads the agent files again when it is told to. With a fault the
// old ones stay.
func (w *worker) rereadAgents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.reload:
		}
		err := w.agents.Load(w.cfg, w.tools, w.log)
		if err == nil {
			err = w.agents.Register(ctx, w.store.Store, w.cfg)
		}
		if err != nil {
			w.log.Error("the agents were not reloaded; the old ones stay", zap.Error(err))
			continue
		}
		if w.cfg.HasRole(config.RoleWorker) {
			w.mcp.Use(w.agents.Current.Load())
		}
		w.learnWindows(ctx)
		w.log.Info("the agents were reloaded", zap.Strings("agents", w.agents.Names()))
		w.agents.TellFileless(ctx, w.store.Store, w.log)
	}
}

// newWorkerID names this run of this process.
func newWorkerID() turnkeeper.WorkerID {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host, _, _ = strings.Cut(host, ".")
	return turnkeeper.WorkerID(fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8])))
}
