package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"turnkeeper/internal/pause"
)

// A system is one of those that are compared, with its processes and its database.
type system struct {
	name      string
	database  string
	processes map[string]*process // those whose CPU time counts, by name
	driver    *process            // runs loads
	runs      *process            // runs the turns; its memory is measured
	dead      int64               // tuples before it started
	turns     int                 // since it started
}

// databases are created when they are first used.
var databases = map[string]string{Turnkeeper: "standard", Stepwise: "stepwise", River: "river", Floor: "floor",
	EndFloor: "atend"}

// start starts systems, all at the same time, for a number of turns at a time.
func (b *bench) start(ctx context.Context, slots int, names ...string) (all []*system, err error) {
	var starting errgroup.Group
	for _, name := range names {
		s := &system{name: name, database: databases[name], processes: map[string]*process{"model": b.model}}
		if err = b.makeDatabase(ctx, s); err != nil {
			break
		}
		if s.dead, err = b.counters.deadTuples(ctx, b.server, s.database); err != nil {
			break
		}
		all = append(all, s)
		starting.Go(func() error { return b.startProcesses(ctx, s, slots) })
	}
	if err := errors.Join(err, starting.Wait()); err != nil {
		return nil, errors.Join(err, stopAll(all))
	}
	return all, nil
}

// makeDatabase makes the database of a system if there is none yet.
func (b *bench) makeDatabase(ctx context.Context, s *system) error {
	if b.made[s.database] {
		return nil
	}
	b.made[s.database] = true
	if s.own() {
		return b.newDatabase(ctx, s.database)
	}
	return createDatabase(ctx, b.server, s.database, "")
}

func (b *bench) startProcesses(ctx context.Context, s *system, slots int) (err error) {
	set := setup{Database: databaseURL(b.server, s.database), Model: b.model.url, Agents: b.agents, Slots: slots}
	start := func(part, as string) (*process, error) {
		p, err := startProcess(ctx, part, set)
		if err == nil {
			s.processes[as] = p
		}
		return p, err
	}
	var sender string
	switch s.name {
	case Turnkeeper, Stepwise:
		set.Agents = filepath.Join(b.agents, databases[s.name])
		sender = "sender"
		s.runs, err = start("worker", "worker")
	case River:
		sender = "river-sender"
		s.runs, err = start("river", "river")
	case EndFloor:
		s.runs, err = start("end-floor", "floor")
	default:
		s.runs, err = start("floor", "floor")
	}
	if s.driver = s.runs; err != nil || sender == "" {
		return err
	}
	set.API = s.runs.url
	s.driver, err = start(sender, "sender")
	return err
}

// own reports whether the system is Turnkeeper.
func (s *system) own() bool { return s.name == Turnkeeper || s.name == Stepwise }

// stop stops the processes of the system, but not the model server.
func (s *system) stop() (err error) {
	for _, p := range []*process{s.driver, s.runs} { // the sender before the worker
		if p != nil {
			err = errors.Join(err, p.close())
		}
	}
	return err
}

func stopAll(all []*system) error {
	var stopping errgroup.Group
	for _, s := range all {
		stopping.Go(s.stop)
	}
	return stopping.Wait()
}

// end stops systems and adds what can only be read when they have stopped.
func (b *bench) end(ctx context.Context, all []*system, contests []*contest) error {
	if err := stopAll(all); err != nil {
		return err
	}
	for _, c := range contests {
		dead, err := b.counters.deadTuples(ctx, b.server, c.system.database)
		if err != nil {
			return err
		}
		c.figure.DeadTuples = float64(dead-c.system.dead) / float64(c.system.turns)
	}
	return nil
}

// A contest is a load that a system runs, compared with those of other contests.
type contest struct {
	system *system
	load   load // its turns are those of a block
	figure Figure
	// beside starts something that runs beside each block, until stop is called; nil: nothing.
	beside func(context.Context) (stop func() error, err error)
	sum    outcome
	cpu    map[string]time.Duration
}

// warm runs turns that are not measured. They open connections, prepare statements and fill caches.
func (s *system) warm(l load, turns int) error {
	l.Turns, l.Name = turns, l.Name+"-warm"
	s.turns += turns
	_, err := s.driver.run(l)
	return err
}

// compare measures contests in alternating blocks, so that other load on the machine affects all alike.
// Each block begins with another contest.
func (b *bench) compare(ctx context.Context, blocks int, contests []*contest) error {
	for block := range blocks {
		for i := range contests {
			if err := b.measure(ctx, contests[(block+i)%len(contests)], block); err != nil {
				return err
			}
		}
	}
	for _, c := range contests {
		c.finish()
	}
	return nil
}

// measure runs one block and adds it to the contest.
func (b *bench) measure(ctx context.Context, c *contest, block int) error {
	l := c.load
	if l.Reuse > 0 {
		l.Name = fmt.Sprintf("%s-%d", l.Name, block)
	}
	if _, err := b.model.run(load{}); err != nil { // forgets requests of others
		return err
	}
	stop := func() error { return nil }
	if c.beside != nil {
		var err error
		if stop, err = c.beside(ctx); err != nil {
			return err
		}
	}
	before, err := b.counters.count(ctx, c.system, false)
	if err != nil {
		return errors.Join(err, stop())
	}
	peak := watchMemory(c.system.runs.cmd.Process.Pid)
	o, err := c.system.driver.run(l)
	highest := peak().orMore(c.figure.peak())
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	after, err := b.counters.count(ctx, c.system, true)
	if err != nil {
		return err
	}
	seen, err := b.model.run(load{})
	if err != nil {
		return err
	}
	if l.Drain {
		l.Turns = o.Drained
	}
	c.system.turns += l.Turns
	c.add(before, after)
	c.sum.Took, c.sum.FirstRequest = append(c.sum.Took, o.Took...), append(c.sum.FirstRequest, seen.FirstRequest...)
	c.sum.Requested, c.sum.Repeated = c.sum.Requested+seen.Requested, c.sum.Repeated+seen.Repeated
	c.sum.Elapsed += o.Elapsed
	c.figure.Turns, c.figure.Events = c.figure.Turns+l.Turns, o.Events
	if b.counters.proc {
		c.figure.Peak = &highest
	}
	return nil
}

func (f *Figure) peak() Memory {
	if f.Peak == nil {
		return Memory{}
	}
	return *f.Peak
}

// add adds the difference of two counts.
func (c *contest) add(before, after count) {
	if c.cpu == nil && before.cpu != nil {
		c.cpu = map[string]time.Duration{}
	}
	for process := range before.cpu {
		c.cpu[process] += after.cpu[process] - before.cpu[process]
	}
	f := &c.figure
	f.Transactions += float64(after.transactions - before.transactions)
	f.WAL += float64(after.wal - before.wal)
	f.Statements += float64(after.statements - before.statements)
	f.Blocks += float64(after.blocks - before.blocks)
	f.BlocksRead += float64(after.read - before.read)
}

// total is the sum of all processes in Figure.CPU.
const total = "total"

// finish turns sums into values per turn.
func (c *contest) finish() {
	f := &c.figure
	turns := float64(f.Turns)
	for _, sum := range []*float64{&f.Transactions, &f.WAL, &f.Statements, &f.Blocks, &f.BlocksRead} {
		*sum /= turns
	}
	if c.cpu != nil {
		f.CPU = map[string]float64{}
	}
	for process, time := range c.cpu {
		per := float64(time.Microseconds()) / 1000 / turns
		f.CPU[process] = per
		f.CPU[total] += per
	}
	if c.system.own() && c.sum.Requested > 0 {
		f.RequestBytes = float64(c.sum.Requested) / turns
		f.Repeated = float64(c.sum.Repeated) / float64(c.sum.Requested)
	}
	f.TurnsPerS = turns / c.sum.Elapsed.Seconds()
	f.Reply, f.FirstRequest = latencyOf(c.sum.Took), latencyOf(c.sum.FirstRequest)
}

// rest reads the memory of the contests' processes when they have had no work for a while.
func (b *bench) rest(ctx context.Context, contests []*contest) error {
	if !b.counters.proc {
		return nil
	}
	if err := pause.For(ctx, b.Rest); err != nil {
		return err
	}
	for _, c := range contests {
		m := memoryOf(c.system.runs.cmd.Process.Pid)
		c.figure.Resting = &m
	}
	return nil
}
