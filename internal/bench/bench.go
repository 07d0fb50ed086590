// Package bench measures what a turn costs, beside three other systems that run the same turn in the
// same run: a lean River job, and two floors, which store the steps in two plain tables, with one commit
// for each step, or one commit at the end.
//
// The standard turn is one message and three rounds against a model server that answers at once over
// HTTP, with two no-op tools of 200 bytes in each of the first two rounds. It runs with both
// durabilities of an agent's file. The River job and the first floor commit every answer and every pair of
// results. The senders of Turnkeeper and of the River job are processes of their own.
//
// The files: bench.go says what is measured, systems.go how; processes.go runs the parts as processes of
// their own; turnkeeper.go, river.go, floor.go and model.go are these parts, lanes.go,
// outbox.go and answers.go what they share; counters.go and processtime.go count; report.go and targets.go are the
// results, compare.go compares two of them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"turnkeeper/internal/pause"
	"turnkeeper/jobs"
	"turnkeeper/storage"
)

// Options say what to measure. Nothing is measured of a section whose number is 0.
type Options struct {
	Turns   int   // turns for each figure of throughput; 0: no such figures
	Lanes   []int // numbers of lanes for throughput
	Idle    int   // turns of each system, one at a time, on an idle machine
	Watched int   // streamed turns, half of them watched
	History int   // past turns of a long conversation
	// turns of each system before each figure, which are not counted; streamed turns: none if fewer than lanes
	WarmUp int

	Flat map[string][]int // the sizes of each series to measure, with Turns turns at each size; see FlatSizes

	// numbers of worker processes beside one scheduler, for Turns trivial turns each; empty: not measured
	Workers   []int
	Retention int // old turns that are deleted while Turns turns run; 0: not measured

	IdleCPU time.Duration // time for which a worker without work is measured
	Rest    time.Duration // time without work before resting memory is read

	// FlushDelay makes each flush of the log slower, to simulate a slower disk; at most 100 ms.
	FlushDelay time.Duration
	Progress   func(string) // called with what is measured next; nil: not called
}

// Default returns the options of a full run, which takes some minutes.
func Default() Options {
	return Options{
		Turns: 2000, Lanes: []int{1, 10, 100}, Idle: 300, Watched: 160, History: 50, WarmUp: 200,
		IdleCPU: 10 * time.Second, Rest: time.Second,
	}
}

// Quick returns the options of a run of a few seconds, whose figures are rough.
func Quick() Options {
	return Options{
		Turns: 40, Lanes: []int{10}, Idle: 4, Watched: 2, History: 2, WarmUp: 10,
		IdleCPU: 300 * time.Millisecond, Rest: time.Millisecond,
	}
}

// Run measures on its own private Postgres, with fsync on, in a temporary folder that it removes. The
// program that calls it must run Part for the arguments "bench process NAME": it is started again for
// each process.
func Run(ctx context.Context, o Options) (r Report, err error) {
	began := time.Now()
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	settings, err := diskSettings(o.FlushDelay)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "turnkeeper-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // the server's user must reach its data
		return r, err
	}
	r = Report{
		Format: Format, CPUs: runtime.NumCPU(), FlushDelay: o.FlushDelay,
	}
	if r.Flush, err = flushTime(dir); err != nil {
		return r, err
	}
	server, err := openServer(ctx, filepath.Join(dir, "database"), settings)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.Close(context.WithoutCancel(ctx))) }()
	b := &bench{Options: o, server: server.URL(), agents: filepath.Join(dir, "agents"), made: map[string]bool{}}
	defer b.close()
	if err := b.prepare(ctx); err != nil {
		return r, err
	}
	if err := b.run(ctx, &r); err != nil {
		return r, err
	}
	r.judge()
	r.Took = time.Since(began)
	return r, nil
}

// A bench is a run.
type bench struct {
	Options
	server   string // URL of the server's first database
	agents   string // folder
	model    *process
	counters *counters
	made     map[string]bool // databases of systems
	own      []*system       // Turnkeeper, for the sections that measure nothing else; empty: not started yet
}

var errUnreadableAddress = errors.New("cannot connect to the benchmark's database")

func (b *bench) prepare(ctx context.Context) (err error) {
	if err := writeAgents(b.agents); err != nil {
		return err
	}
	if b.counters, err = openCounters(ctx, b.server); err != nil {
		return err
	}
	if err := b.migrate(ctx); err != nil {
		return err
	}
	b.model, err = startProcess(ctx, "model", setup{})
	return err
}

// migrated is a database with Turnkeeper's tables, from which newDatabase makes others.
const migrated = "migrated"

// newDatabase makes a database for Turnkeeper.
func (b *bench) newDatabase(ctx context.Context, name string) error {
	return createDatabase(ctx, b.server, name, migrated)
}

func (b *bench) migrate(ctx context.Context) error {
	if err := createDatabase(ctx, b.server, migrated, ""); err != nil {
		return err
	}
	db, err := storage.Open(ctx, storage.Options{URL: databaseURL(b.server, migrated)})
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = jobs.Migrate(ctx, db, zap.NewNop())
	return err
}

func (b *bench) close() {
	_ = stopAll(b.own) // after an error; else it has stopped
	if b.model != nil {
		_ = b.model.close()
	}
	if b.counters != nil {
		_ = b.counters.conn.Close(context.Background())
	}
}

func (b *bench) run(ctx context.Context, r *Report) error {
	if err := b.counters.facts(ctx, r); err != nil {
		return err
	}
	for _, section := range b.sections() {
		if err := section(ctx, r); err != nil {
			return err
		}
	}
	return stopAll(b.own)
}

// startOwn returns Turnkeeper, which it starts once for all sections that measure nothing else.
func (b *bench) startOwn(ctx context.Context) (_ *system, err error) {
	if len(b.own) == 0 {
		if b.own, err = b.start(ctx, minSlots, Turnkeeper); err != nil {
			return nil, err
		}
	}
	return b.own[0], nil
}

func (b *bench) sections() []func(context.Context, *Report) error {
	return []func(context.Context, *Report) error{b.idle, b.throughput, b.watched, b.history, b.flat,
		b.scale, b.retention}
}

var allSystems = []string{Turnkeeper, Stepwise, River, Floor, EndFloor}

// standard is a load of standard turns. Half of the turns are the first of their lane, half the second.
func standard(name string, lanes, turns int) load {
	return load{Agent: benchAgent, Name: name, Lanes: lanes, Turns: turns, Reuse: 2}
}

// blocks returns how many blocks n turns are measured in, and the turns of each, at least one for a lane.
func blocks(n, limit, lanes int) (blocks, turns int) {
	blocks = min(max(n/lanes, 1), limit)
	return blocks, max((n+blocks-1)/blocks, lanes)
}

// idle measures one turn at a time, with a pause after each.
func (b *bench) idle(ctx context.Context, r *Report) error {
	if b.Idle == 0 {
		return nil
	}
	b.Progress("idle turns")
	n, turns := blocks(b.Idle, 10, 1)
	l := standard("idle", 1, turns)
	l.Pause = 20 * time.Millisecond
	return b.race(ctx, r, SectionIdle, n, l, nil)
}

func (b *bench) throughput(ctx context.Context, r *Report) error {
	if b.Turns == 0 {
		return nil
	}
	for i, lanes := range b.Lanes {
		b.Progress(fmt.Sprintf("throughput, lanes: %d", lanes))
		n, turns := blocks(b.Turns, 4, lanes)
		var then func([]*system) error
		if i == len(b.Lanes)-1 {
			then = func(all []*system) error { return b.idleCPU(ctx, r, all) }
		}
		if err := b.race(ctx, r, SectionLanes, n, standard(fmt.Sprintf("lanes%d", lanes), lanes, turns),
			then); err != nil {
			return err
		}
	}
	return nil
}

// race compares all systems. then is called before they are stopped; nil: not called.
func (b *bench) race(ctx context.Context, r *Report, section string, blocks int, l load,
	then func([]*system) error) error {
	systems, err := b.start(ctx, slotsFor(l.Lanes), allSystems...)
	if err != nil {
		return err
	}
	defer stopAll(systems) //nolint:errcheck // in case of an error only
	var contests []*contest
	var warming errgroup.Group
	for _, s := range systems {
		warming.Go(func() error { return s.warm(l, b.WarmUp) })
		contests = append(contests, &contest{system: s, load: l, figure: Figure{Section: section, System: s.name,
			Lanes: l.Lanes}})
	}
	if err := warming.Wait(); err != nil {
		return err
	}
	if err := b.compare(ctx, blocks, contests); err != nil {
		return err
	}
	if err := b.rest(ctx, contests); err != nil {
		return err
	}
	if then != nil {
		if err := then(systems); err != nil {
			return err
		}
	}
	if err := b.end(ctx, systems, contests); err != nil {
		return err
	}
	for _, c := range contests {
		r.Figures = append(r.Figures, c.figure)
	}
	return nil
}

// idleCPU measures the worker and its sessions while nothing else runs. It stops the other processes.
func (b *bench) idleCPU(ctx context.Context, r *Report, all []*system) error {
	own := all[slices.IndexFunc(all, func(s *system) bool { return s.name == Turnkeeper })]
	if b.IdleCPU == 0 || !b.counters.proc {
		return nil
	}
	b.Progress("a worker without work")
	for _, s := range all {
		if err := s.driver.close(); err != nil {
			return err
		}
	}
	if err := pause.For(ctx, b.IdleCPU/10); err != nil {
		return err
	}
	backends, err := b.counters.backends(ctx, own.database)
	if err != nil {
		return err
	}
	used := func() (worker, sessions time.Duration) {
		for _, pid := range backends {
			sessions += cpuTime(pid)
		}
		return cpuTime(own.runs.cmd.Process.Pid), sessions
	}
	began := time.Now()
	worker, sessions := used()
	if err := pause.For(ctx, b.IdleCPU); err != nil {
		return err
	}
	workerThen, sessionsThen := used()
	over := time.Since(began)
	perSecond := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / over.Seconds() }
	r.Idle = &IdleWorker{Over: over, Worker: perSecond(workerThen - worker),
		Backends: perSecond(max(sessionsThen-sessions, 0))}
	return nil
}

// watchedLanes and historyLanes are the lanes of these sections.
const watchedLanes, historyLanes = 4, 10

// watched compares streamed turns with and without watchers.
func (b *bench) watched(ctx context.Context, r *Report) error {
	if b.Watched == 0 {
		return nil
	}
	b.Progress("watched turns")
	alone := load{Agent: streamedAgent, Name: "alone", Lanes: watchedLanes, Reuse: 2}
	followed := alone
	followed.Name, followed.Watchers = "watched", watchers
	n, turns := blocks((b.Watched+1)/2, 5, watchedLanes)
	alone.Turns, followed.Turns = turns, turns
	return b.pair(ctx, r, SectionWatched, n, [2]string{"alone", fmt.Sprintf("%d watchers", watchers)},
		[2]load{alone, followed}, nil)
}

// history compares the first turns of conversations with turns that have many before them.
func (b *bench) history(ctx context.Context, r *Report) error {
	if b.History == 0 {
		return nil
	}
	b.Progress(fmt.Sprintf("conversations of %d past turns", b.History))
	n, turns := blocks(max(b.Turns/5, historyLanes), 4, historyLanes)
	short := standard("short", historyLanes, turns)
	long := standard("long", historyLanes, turns)
	long.Reuse = 0
	return b.pair(ctx, r, SectionHistory, n, [2]string{"new conversations", fmt.Sprintf("%d or more past turns",
		b.History)}, [2]load{short, long},
		func(own *system) error {
			past := long
			for range b.History { // each lane runs one turn, so that all have as many
				past.Turns = historyLanes
				own.turns += past.Turns
				if _, err := own.driver.run(past); err != nil {
					return err
				}
			}
			return nil
		})
}

// pair compares two loads of Turnkeeper, after before.
func (b *bench) pair(ctx context.Context, r *Report, section string, blocks int, cases [2]string, loads [2]load,
	before func(*system) error) error {
	own, err := b.startOwn(ctx)
	if err != nil {
		return err
	}
	if before != nil {
		if err := before(own); err != nil {
			return err
		}
	}
	var contests []*contest
	for i, l := range loads {
		if before == nil && b.WarmUp >= l.Lanes {
			if err := own.warm(l, min(b.WarmUp, l.Turns)); err != nil {
				return err
			}
		}
		contests = append(contests, &contest{system: own, load: l, figure: Figure{Section: section, System: Turnkeeper,
			Case: cases[i], Lanes: l.Lanes}})
	}
	if err := b.compare(ctx, blocks, contests); err != nil {
		return err
	}
	for _, c := range contests {
		r.Figures = append(r.Figures, c.figure)
	}
	return nil
}
