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
	"turnkeeper/inference/tokens"
	"turnkeeper/internal/app/setup"
	"turnkeeper/internal/config"
	"turnkeeper/internal/database"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/membudget"
	"turnkeeper/internal/netguard"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/version"
	"turnkeeper/jobs"
	"turnkeeper/lease"
	"turnkeeper/policy"
	"turnkeeper/policy/cel"
	"turnkeeper/scheduler"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/telemetry"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// Ready describes a worker that has started.
type Ready struct {
	WorkerID  turnkeeper.WorkerID
	Agents    []string
	Providers []string
	Roles     []string
	Slots     int
	Private   bool   // the worker uses a private database
	API       string // URL of the HTTP API; empty: none
}

// A WorkerOption sets what the configuration cannot.
type WorkerOption func(*worker)

// WithTools adds tools that agents can list.
func WithTools(more ...tools.Tool) WorkerOption {
	return func(w *worker) { w.moreTools = append(w.moreTools, more...) }
}

// WithReload makes the worker read its agent files again for each value received.
func WithReload(again <-chan os.Signal) WorkerOption {
	return func(w *worker) { w.reload = again }
}

// RunWorker runs a worker until soft ends. Then it takes no more turns, lets running turns finish within
// the grace period, hands back the rest, and returns. When hard ends, it stops at once. ready is called
// when the worker takes work. If agent files have faults, the error matches ErrAgents; then, and if it
// cannot listen on a configured address, the database is not opened.
func RunWorker(soft, hard context.Context, cfg *config.Config, log *zap.Logger, ready func(Ready),
	options ...WorkerOption) error {
	outage := storage.NewOutage(log)
	log = log.WithOptions(zap.WrapCore(storage.QuietLog))
	w := &worker{cfg: cfg, log: log, outage: outage, id: newWorkerID(), agents: &setup.Agents{Rules: cel.Compile},
		pushed: make(chan struct{}), windowsWarned: map[string]bool{}}
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
	db, err := database.Open(soft, cfg, log, w.outage, w.fault)
	if err != nil {
		return err
	}
	defer closeSoon(hard, db, log)
	defer stopTelling() // the last reading of gauges needs the database
	w.db, w.store = db, newWorkerStore(db.Store)
	if err := w.prepare(soft); err != nil {
		return err
	}
	return w.run(soft, hard, ready)
}

// closeTime is the maximum wait for connections that turns still hold. atOnce is the maximum of each
// wait after the second signal to stop.
const (
	closeTime = 10 * time.Second
	atOnce    = time.Second
)

// The waits of a stop, one after the other, fit into config.StopMargin: a negative constant does not compile.
const _ = uint(config.StopMargin - (handBack + 2*mcp.EndTime + apiCloseTime + telemetry.FlushTime + closeTime))

// closeSoon closes the database, and waits at most closeTime for turns that do not stop.
func closeSoon(hard context.Context, db *database.Database, log *zap.Logger) {
	closed := make(chan error, 1)
	go func() { closed <- db.Close(hard) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), closeTime)
	defer cancel()
	defer soonAfter(hard, cancel)()
	select {
	case err := <-closed:
		if err != nil {
			log.Warn("could not close the database", zap.Error(err))
		}
	case <-ctx.Done():
		log.Warn("the database was not closed in time")
	}
}

// soonAfter calls f atOnce after hard has ended, unless undo is called first.
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
	outage    *storage.Outage
	db        *database.Database
	store     *workerStore
	id        turnkeeper.WorkerID
	moreTools []tools.Tool
	fault     fault.Hook // nil in production
	reload    <-chan os.Signal

	agents       *setup.Agents
	models       *setup.Models
	tools        *tools.Registry
	mcp          *setup.MCPSource
	runner       *agentturn.Runner
	turns        *jobs.Worker
	calls        *jobs.CallWorker
	unregistered []string // agents whose rows could not be written; rereadAgents retries them
	client       *jobs.Client
	heart        *lease.Heart
	bell         *storage.Notifier
	bound        bound
	api          *api
	memory       *membudget.Budget  // of the results of tools
	own          netguard.Listeners // the worker's ports, which tools must not reach
	pushed       chan struct{}      // closed when deliveries have stopped

	telling *telling

	windowsWarned map[string]bool // models that were warned of; used by one goroutine at a time

	mu       sync.Mutex
	draining bool
}

// readAgents loads the agents' files. It needs the names of tools, but no database.
func (w *worker) readAgents() error {
	known, err := setup.KnownTools(w.cfg, w.moreTools...)
	if err == nil {
		err = setup.CheckRules(w.cfg, cel.Compile)
	}
	if err != nil {
		return err
	}
	return w.agents.Load(w.cfg, known, w.log)
}

// warnOfRoot warns if the worker's tools run as root.
func (w *worker) warnOfRoot() {
	if os.Geteuid() == 0 && w.cfg.HasRole(config.RoleWorker) {
		w.log.Warn(
			"this worker runs as root, and so do its tools: a program tool or MCP server can read every file and the worker's secrets, " +
				"and change this machine; run the worker as a separate user")
	}
}

// prepare does everything that can fail before the worker takes any work.
func (w *worker) prepare(ctx context.Context) error {
	masker := w.cfg.Masker()
	w.memory = membudget.New(int64(w.cfg.MaxResultMemory)<<20, mcp.MaxResultMemory)
	var err error
	if w.models, err = setup.NewModels(w.cfg, w.agents.Script, readers, masker, w.log); err != nil {
		return err
	}
	if w.tools, err = setup.NewToolbox(w.agents, w.store.Store, w.cfg, masker, &w.own, append(setup.Programs(w.cfg),
		w.moreTools...)); err != nil {
		return err
	}
	if err := w.store.CheckSessions(ctx); err != nil {
		return err
	}
	warnOfEncoding(ctx, w.store.Store, w.log)
	if err := w.prepareSchema(ctx); err != nil {
		return err
	}
	if err := w.warnOfNoToken(ctx); err != nil {
		return err
	}
	if err := w.applySenderLimits(ctx); err != nil {
		return err
	}
	if w.unregistered, err = w.agents.Register(ctx, w.store.Store, w.cfg); err != nil {
		return err
	}
	w.agents.TellFileless(ctx, w.store.Store, w.log)
	w.learnWindows(ctx)
	if w.mcp, err = setup.NewMCPSource(ctx, w.cfg, w.store, masker, w.memory, w.log); err != nil {
		return err
	}
	return w.prepareTurns()
}

// prepareSchema migrates the schema if the settings say so, and checks that it is complete.
func (w *worker) prepareSchema(ctx context.Context) error {
	if w.cfg.MigrateOnStart {
		_, err := setup.Migrate(ctx, w.db)
		return err
	}
	if err := w.db.CheckSchema(ctx); err != nil {
		return err
	}
	return w.store.CheckTables(ctx)
}

// applySenderLimits stores the limits on messages, which the database checks.
func (w *worker) applySenderLimits(ctx context.Context) error {
	return errors.Join(w.store.SetMaxMessageBytes(ctx, w.cfg.MaxMessageBytes), w.store.SetMaxSenderPriority(ctx,
		w.cfg.MaxSenderPriority))
}

func (w *worker) prepareTurns() (err error) {
	w.runner = agentturn.New(agentturn.Config{
		Models: w.models, DefaultModel: w.cfg.DefaultModel, Tools: w.tools, More: w.mcp, Bounds: w.cfg.Bounds,
		Rules: &policy.Cache{Compiler: cel.Compile}, Approve: w.cfg.Approve, ReplySink: w.cfg.ReplySink,
		ExtractionModel: w.cfg.ExtractionModel, Extractions: w.store,
		Agents: w.agents, Freshness: w.store, Outputs: w.store, Budget: &jobs.Spend{Grants: w.store.leases}, Log: w.log,
		Observer: w.telling, Fault: w.fault,
		ResultMemory: w.memory,
		Tokens:       func(model string) prompt.TokenCounter { return tokens.For(model) },
	})
	w.turns = jobs.NewWorker(jobs.WorkerConfig{
		DB: w.store.DB, Runner: w.runner, WorkerID: w.id, Bounds: w.cfg.Bounds, Log: w.log,
		Observed: w.telling.Traces(), Fault: w.fault,
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
	// Background tasks end with this function, not with soft.
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
	background.Go(func() { w.heart.Run(ctx, w.turns.Stop) })
	background.Go(func() { w.db.KeepUp(ctx) })
	background.Go(func() { w.recheckWrites(ctx) })
	background.Go(func() { w.purgeOld(ctx) })
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
	// The worker has free slots: wake the schedulers of other processes.
	if err := w.store.RingInbox(ctx); err != nil {
		w.log.Warn("could not notify the schedulers of this worker; they find it when they poll", zap.Error(err))
	}
	ready(w.ready())
	w.at(ctx, pointReady)
	<-soft.Done()
	w.at(ctx, pointStopping)
	w.api.drain()
	stopScheduling()
	return w.shutDown(ctx, hard)
}

// beatPause is the pause before the first heartbeat is retried.
const beatPause = time.Second

// firstBeat writes the first heartbeat. It retries until ctx ends while the database is unavailable.
func firstBeat(ctx context.Context, beat func(context.Context) error, log *zap.Logger) error {
	for {
		err := beat(ctx)
		switch {
		case err == nil:
			return nil
		case !storage.Passes(err) || ctx.Err() != nil:
			return fmt.Errorf("could not write the heartbeat: %w", err)
		}
		log.Warn("could not write the first heartbeat, retrying", zap.Error(err))
		_ = pause.For(ctx, beatPause)
	}
}

// warnOfEncoding warns if the database is not UTF-8 and cannot store every text.
func warnOfEncoding(ctx context.Context, store interface {
	Encoding(ctx context.Context) (string, error)
}, log *zap.Logger) {
	if name, err := store.Encoding(ctx); err == nil && name != "UTF8" {
		log.Warn(
			"the database is not UTF-8: text with other characters fails; create one with: create database NAME encoding 'UTF8' template template0",
			zap.String("encoding", name))
	}
}

// learnWindows determines the context windows of the agents' models, and warns of unknown ones.
func (w *worker) learnWindows(ctx context.Context) {
	if !w.cfg.HasRole(config.RoleWorker) {
		return
	}
	names := setup.WindowsNeeded(w.cfg, slices.Collect(w.agents.Current.Load().All()))
	w.models.Windows.Tell(w.models.Windows.Learn(ctx, names), w.windowsWarned, w.log)
}

// watchCalls stops detached calls that this worker has lost, and hands back those it did not notice.
func (w *worker) watchCalls(ctx context.Context) {
	rings, cancel := w.bell.Subscribe(storage.TopicCalls)
	defer cancel()
	w.calls.Watch(ctx, rings)
}

// watchCancels ends this worker's turns that an operator cancels.
func (w *worker) watchCancels(ctx context.Context) {
	rings, cancel := w.bell.Subscribe(storage.TopicCancels)
	defer cancel()
	w.turns.WatchCancels(ctx, rings)
}

// stop ends every running turn and detached call with the cause.
func (w *worker) stop(cause error) {
	w.turns.Stop(cause)
	w.calls.Stop(cause)
}

// detached returns the names of the detached tools.
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
	var local scheduler.Local
	if w.cfg.HasRole(config.RoleWorker) {
		local = w.turns
	}
	scheduler.New(scheduler.Config{
		Local: local, Store: &jobs.Dispatcher{Grants: w.store.leases, TTL: w.cfg.Bounds.LeaseTTL},
		Wake: rings, Freed: freed, PollInterval: w.cfg.PollInterval, MaxDispatches: w.cfg.MaxDispatchesPerTick,
		MaxLosses: w.cfg.Bounds.MaxDispatches, LeaseTTL: w.cfg.Bounds.LeaseTTL, Log: w.log, Observer: w.telling,
		Fault: w.fault,
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
	host, _ := os.Hostname() // for operators only
	w.at(ctx, pointBeat)
	defer w.at(ctx, pointBeaten)
	return w.store.Beat(ctx, presence.Heartbeat{
		WorkerID: w.id, Host: host, PID: os.Getpid(), Version: version.Version(), Roles: w.cfg.Roles, Slots: w.slots(),
		TakeoverAfter: w.cfg.TakeoverAfter,
		Refused:       w.store.Refused(),
	})
}

// handBack is the time that turns have to reach a journal boundary after the grace period.
const handBack = 10 * time.Second

// shutDown announces that the worker takes no more turns, and ends the running ones.
func (w *worker) shutDown(ctx, hard context.Context) error {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.turns.Drain()
	w.log.Info("stopping: taking no new turns", zap.Int("running", w.turns.Running()),
		zap.Int("detached", w.calls.Running()),
		zap.Duration("grace", w.cfg.ShutdownGrace))
	if err := w.heart.Beat(ctx); err != nil {
		w.log.Warn("could not write the heartbeat", zap.Error(err))
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
	<-w.pushed // others take over the attempts of a worker recorded as stopped
	if err := w.store.StopBeating(ctx, w.id); err != nil {
		w.log.Warn("could not record the stop of this worker", zap.Error(err))
	}
	w.at(ctx, pointNoted)
	if n := w.runner.LeftBehind(); n > 0 {
		w.log.Warn("tools that did not return within their timeout end with this process", zap.Int64("left_behind", n))
	}
	w.log.Info("stopped")
	return nil
}

// errStoppedHard is the error of a worker that got a second signal to stop.
var errStoppedHard = errors.New(
	"stopped at once: turns that were not handed back continue on other workers once this one counts as lost")

func (w *worker) stopTurns(ctx, hard context.Context) error {
	stopped := make(chan error, 1)
	go func() {
		err := w.client.Stop(ctx)
		w.turns.Wait()
		stopped <- err
	}()
	w.calls.Release()
	grace := time.NewTimer(w.cfg.ShutdownGrace)
	defer grace.Stop()
	over := time.NewTimer(w.cfg.ShutdownGrace + handBack)
	defer over.Stop()
	for {
		select {
		case err := <-stopped:
			return err
		case <-grace.C:
			w.log.Info("the grace period is over: handing back turns", zap.Int("running", w.turns.Running()))
			w.stop(agentturn.ErrShutdown)
		case <-over.C:
			return fmt.Errorf("%d turns did not stop in time; they continue on other workers when their leases end",
				w.turns.Running())
		case <-hard.Done():
			w.stop(agentturn.ErrShutdown)
			if w.awaitMoment(stopped) {
				w.noteEndAtOnce(ctx)
			}
			return errStoppedHard
		}
	}
}

// notStopped is logged after a second signal, with the reason.
const notStopped = "this worker is not recorded as stopped: others take over once it counts as lost"

// awaitMoment waits at most atOnce for turns to be handed back and River to stop, and reports whether
// River has stopped.
func (w *worker) awaitMoment(stopped <-chan error) bool {
	timer := time.NewTimer(atOnce)
	defer timer.Stop()
	select {
	case err := <-stopped:
		if err != nil {
			w.log.Warn("could not stop River", zap.Error(err))
		}
		return true
	case <-timer.C:
		w.log.Warn(notStopped, zap.String("reason", "River did not stop in time"))
		return false
	}
}

// noteEndAtOnce records the stop after a second signal, unless something still runs: then others must
// wait until the worker counts as lost.
func (w *worker) noteEndAtOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	select {
	case <-w.pushed:
	case <-ctx.Done():
		w.log.Warn(notStopped, zap.String("reason", "deliveries to webhooks did not end in time"))
		return
	}
	if n := w.turns.Running() + w.calls.Running(); n > 0 {
		w.log.Warn(notStopped, zap.String("reason", "turns or detached calls still run"), zap.Int("running", n))
		return
	}
	if err := w.store.StopBeating(ctx, w.id); err != nil {
		w.log.Warn("could not record the stop of this worker", zap.Error(err))
	}
}

// purgeEvery is the interval at which a worker deletes old records.
const purgeEvery = time.Hour

// recheckPause is the time between two trial writes: half of that after which the process is not ready.
const recheckPause = 2500 * time.Millisecond

// recheckWrites finds out when the database accepts writes again, if nothing else writes.
func (w *worker) recheckWrites(ctx context.Context) {
	for pause.For(ctx, recheckPause) == nil {
		w.store.RecheckWrites(ctx)
	}
}

// purgeOld deletes old heartbeats, pins, extractions, drafts, deliveries and unused conversations, and what retention
// says, every purgeEvery.
func (w *worker) purgeOld(ctx context.Context) {
	sweeps := []struct {
		what string
		run  func(context.Context) error
	}{
		{"old heartbeats", w.store.ForgetWorkers}, {"old pins of survival levels", w.store.ForgetPins},
		{"old extractions", w.store.ForgetExtractions},
		{"unfinished results", w.store.SweepDrafts}, {"deliveries to removed webhooks", w.store.SweepDeliveries},
		{"unused conversations", w.store.ForgetConversations},
	}
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		for _, sweep := range sweeps {
			if err := sweep.run(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("could not delete "+sweep.what, zap.Error(err))
			}
		}
		w.retain(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// retain deletes what the settings of retention say, or the database where they say nothing.
func (w *worker) retain(ctx context.Context) {
	byDefault, err := w.store.KeptFor(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("could not read how long outputs and events are kept", zap.Error(err))
		}
		return
	}
	keep := w.cfg.Retention.With(byDefault)
	if keep.Messages > 0 {
		w.retainMessages(ctx, keep.Messages)
	}
	for _, class := range retention.Parts {
		if kept := keep.Of(class); kept > 0 {
			w.retainPart(ctx, class, kept)
		}
	}
}

// retainMessages deletes messages that were closed for at least a time, with all that belongs to them.
func (w *worker) retainMessages(ctx context.Context, kept time.Duration) {
	done, err := w.store.Purge(ctx, operate.PurgeScope{OlderThan: kept, Gently: true})
	if err != nil && ctx.Err() == nil {
		w.log.Warn("could not delete all old messages", zap.Error(err))
	}
	if done.Kept > 0 {
		w.log.Warn("old messages could not be deleted: see turnctl set-aside", zap.Int("messages", done.Kept))
	}
	if done.Messages > 0 {
		w.log.Info("deleted old messages", zap.Int("messages", done.Messages), zap.Int("turns", done.Turns),
			zap.Duration("retention", kept))
	}
}

// retainPart deletes the outputs, events or leases of messages that were closed for at least a time.
func (w *worker) retainPart(ctx context.Context, class retention.Class, kept time.Duration) {
	done, err := w.store.Expire(ctx, class, kept)
	if err != nil && ctx.Err() == nil {
		w.log.Warn("could not delete all old "+string(class), zap.Error(err))
	}
	if done.Kept > 0 {
		w.log.Warn("old "+string(class)+" could not be deleted: see turnctl set-aside", zap.Int("turns", done.Kept))
	}
	if done.Turns > 0 {
		w.log.Info("deleted old "+string(class), zap.Int("turns", done.Turns), zap.Duration("retention", kept))
	}
}

// rereadAgents reads the agent files again for each value of reload. A file with a fault keeps its old version.
func (w *worker) rereadAgents(ctx context.Context) {
	for {
		var again <-chan time.Time // nil: all are registered
		if len(w.unregistered) > 0 {
			again = time.After(registerPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			w.registerAgain(ctx)
			continue
		case <-w.reload:
		}
		err := w.agents.Load(w.cfg, w.tools, w.log)
		if errors.Is(err, setup.ErrAgents) {
			w.log.Error("agent files have faults; the agents of these files keep their old version", zap.Error(err))
			err = nil
		}
		if err == nil {
			w.unregistered, err = w.agents.Register(ctx, w.store.Store, w.cfg)
		}
		if err != nil {
			w.log.Error("could not reload the agents; the old ones stay", zap.Error(err))
			continue
		}
		if w.cfg.HasRole(config.RoleWorker) {
			w.mcp.Use(w.agents.Current.Load())
		}
		w.learnWindows(ctx)
		w.log.Info("reloaded the agents", zap.Strings("agents", w.agents.Names()))
		w.agents.TellFileless(ctx, w.store.Store, w.log)
	}
}

// registerPause is how often the worker looks whether an agent that could not be registered is due for its next try.
const registerPause = 5 * time.Second

// registerAgain registers the agents that could not be registered and are due for their next try.
func (w *worker) registerAgain(ctx context.Context) {
	due, err := w.store.AgentsToTry(ctx, w.unregistered)
	if err == nil && len(due) > 0 {
		var failed []string
		if failed, err = w.agents.Register(ctx, w.store.Store, w.cfg, due...); err == nil {
			w.unregistered = slices.DeleteFunc(w.unregistered, func(name string) bool {
				return slices.Contains(due, name) && !slices.Contains(failed, name)
			})
		}
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("could not register agents again; it is retried", zap.Strings("agents", w.unregistered),
			zap.Error(err))
	}
}

// newWorkerID returns a unique id of this process: host, process id and a random part.
func newWorkerID() turnkeeper.WorkerID {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	host, _, _ = strings.Cut(host, ".")
	return turnkeeper.WorkerID(fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8])))
}
