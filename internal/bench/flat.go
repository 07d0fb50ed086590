package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pause"
)

// A Series measures the same turns at growing sizes of something. If the cost of a turn does not depend on the size,
// the ratios stay near 1.
type Series struct {
	Name  string `json:"name"`
	Sizes string `json:"sizes"` // what the sizes count
	Steps []Step `json:"steps"`
}

// A Step is one size of a series. Ratios are those to the first step per turn; 0: not measured.
type Step struct {
	Size   int     `json:"size"`
	Figure Figure  `json:"figure"`
	Blocks float64 `json:"blocks_ratio"`
	CPU    float64 `json:"cpu_ratio"` // of all processes
	Turns  float64 `json:"turns_per_second_ratio"`
	// the statements whose blocks grew most since the first step, which has those with the most
	Grew []Growth `json:"grew,omitempty"`
}

// A Growth is a statement that reads more blocks in a turn than at the first step.
type Growth struct {
	Statement string  `json:"statement"` // its name in storage/queries, or its beginning
	First     float64 `json:"first_blocks_per_turn"`
	Blocks    float64 `json:"blocks_per_turn"`
	MS        float64 `json:"ms_per_turn"` // its time on the server
}

// A flatSeries is how a series is measured.
type flatSeries struct {
	name, sizes string
	quick, full []int
	// grow brings the field from one size to the next; the first time from 0.
	grow func(ctx context.Context, f *field, from, to int) error
	load func(f *field, size int) load // nil: ten lanes
	// waits says that as many messages as the size, and no others, must wait when a step has ended.
	waits bool
}

// A field is what a series is measured on: a database of its own, with a worker of ten slots.
type field struct {
	own   *system
	conn  *pgx.Conn
	turns int       // of a step
	warm  int       // turns before it, which are not measured
	held  *pgx.Conn // with an open transaction; nil: none
	url   string
}

var flatAll = []flatSeries{
	{
		name: "lanes", sizes: "lanes that always have a message", quick: []int{10, 100, 1000},
		full: []int{10, 100, 1000, 10_000},
		grow: func(context.Context, *field, int, int) error { return nil },
		load: func(f *field, size int) load {
			l := standard("lanes", size, max(f.turns, size))
			l.Reuse = 1 // so that every turn is the first of its conversation at each size
			return l
		},
	},
	{
		name: "waiting", sizes: "messages that wait behind those measured", quick: []int{0, 1000, 10_000},
		full: []int{0, 1000, 100_000, 1_000_000},
		grow: growWaiting,
		load: func(f *field, _ int) load { return load{Drain: true, Turns: f.turns} },
	},
	{
		name: "scheduled", waits: true, sizes: "messages that are due tomorrow", quick: []int{0, 1000, 10_000},
		full: []int{0, 1000, 100_000, 1_000_000},
		grow: func(ctx context.Context, f *field, from, to int) error {
			return fillBacklog(ctx, f.conn, backlog{name: fmt.Sprintf("scheduled-%d", to), messages: to - from,
				lanes: max((to-from)/10, 1), due: "now() + interval '1 day'"})
		},
	},
	{
		name: "backing-off", waits: true, sizes: "messages that wait in lanes that back off, ten in each",
		quick: []int{0, 1000, 10_000}, full: []int{0, 1000, 10_000, 100_000},
		grow: func(ctx context.Context, f *field, from, to int) error {
			w := backlog{name: fmt.Sprintf("backing-off-%d", to), messages: to - from, lanes: (to - from) / 10,
				due: "now() - interval '1 hour' + i * interval '1 ms'"}
			if w.lanes == 0 {
				return nil
			}
			if _, err := f.conn.Exec(ctx, pauseScheduler); err != nil {
				return err
			}
			if err := errors.Join(fillBacklog(ctx, f.conn, w), backOff(ctx, f.conn, w)); err != nil {
				return err
			}
			_, err := f.conn.Exec(ctx, resumeScheduler)
			return err
		},
	},
	{
		name: "finished", sizes: "turns that have ended, ten in a conversation", quick: []int{0, 1000, 10_000},
		full: []int{0, 10_000, 100_000, 1_000_000},
		grow: func(ctx context.Context, f *field, from, to int) error {
			return copyTurns(ctx, f.conn, to-from, fmt.Sprintf("'finished-%d-' || i / 10", to), 0)
		},
	},
	{
		name: "conversation", sizes: "past turns of each conversation", quick: []int{1, 10, 100, 1000},
		full: []int{1, 10, 100, 1000, 10_000},
		grow: func(ctx context.Context, f *field, from, to int) error {
			return copyTurns(ctx, f.conn, historyLanes*(to-from), fmt.Sprintf("'conversation-' || i %% %d",
				historyLanes), 0)
		},
		load: func(f *field, _ int) load { // few turns, because each makes its conversation longer
			return load{Agent: benchAgent, Name: "conversation", Lanes: historyLanes,
				Turns: min(f.turns, 3*historyLanes)}
		},
	},
	{
		name: "open-transaction", sizes: "turns since someone else opened a transaction", quick: []int{0, 500, 1000},
		full: []int{0, 1000, 5000, 20_000},
		grow: growOpen,
	},
}

// FlatSizes returns the sizes of each series that Options.Flat can name, for a run of about a minute or for a full one,
// which takes about fifteen minutes and 25 GB of disk.
func FlatSizes(full bool) map[string][]int {
	sizes := map[string][]int{}
	for _, s := range flatAll {
		if sizes[s.name] = s.quick; full {
			sizes[s.name] = s.full
		}
	}
	return sizes
}

func (b *bench) flat(ctx context.Context, r *Report) error {
	for _, s := range flatAll {
		if len(b.Flat[s.name]) == 0 {
			continue
		}
		series, err := b.series(ctx, s, b.Flat[s.name])
		if err != nil {
			return fmt.Errorf("series %s: %w", s.name, err)
		}
		r.Series = append(r.Series, series)
	}
	return nil
}

// series measures the steps of a series, one after the other, on a new database.
func (b *bench) series(ctx context.Context, s flatSeries, sizes []int) (_ Series, err error) {
	f, err := b.openField(ctx, s.name)
	if err != nil {
		return Series{}, err
	}
	defer func() { err = errors.Join(err, f.close(ctx)) }()
	all := Series{Name: s.name, Sizes: s.sizes}
	var first map[string]query
	for i, size := range sizes {
		b.Progress(fmt.Sprintf("%s: %d", s.name, size))
		from := 0
		if i > 0 {
			from = sizes[i-1]
		}
		if err := s.grow(ctx, f, from, size); err != nil {
			return all, err
		}
		l := standard(fmt.Sprintf("%s-%d", s.name, size), minSlots, f.turns)
		if s.load != nil {
			l = s.load(f, size)
		}
		step, per, err := b.step(ctx, f, l)
		if err != nil {
			return all, err
		}
		if s.waits {
			var waiting int
			if err := f.conn.QueryRow(ctx, "select count(*) from turnkeeper.waiting").Scan(
				&waiting); err != nil {
				return all, err
			}
			if waiting != size {
				return all, fmt.Errorf("%d messages wait after the turns, not %d: the turns took too long",
					waiting, size)
			}
		}
		step.Size, step.Grew = size, grew(first, per)
		if i == 0 {
			first = per
		}
		all.Steps = append(all.Steps, step)
		all.Steps[i].relate(all.Steps[0].Figure)
	}
	return all, nil
}

// step measures one load, and returns what each statement read per turn.
func (b *bench) step(ctx context.Context, f *field, l load) (Step, map[string]query, error) {
	if f.warm > 0 {
		warm := standard(l.Name, minSlots, 0)
		if l.Drain {
			warm = l
		}
		if err := f.own.warm(warm, f.warm); err != nil {
			return Step{}, nil, err
		}
	}
	if err := settle(ctx, f.conn); err != nil {
		return Step{}, nil, err
	}
	before, err := b.counters.queries(ctx, f.own.database)
	if err != nil {
		return Step{}, nil, err
	}
	c := &contest{system: f.own, load: l, figure: Figure{System: Turnkeeper, Lanes: l.Lanes}}
	if err := b.compare(ctx, 1, []*contest{c}); err != nil {
		return Step{}, nil, err
	}
	after, err := b.counters.queries(ctx, f.own.database)
	if err != nil {
		return Step{}, nil, err
	}
	turns := float64(c.figure.Turns)
	for name, q := range after {
		after[name] = query{(q.blocks - before[name].blocks) / turns, (q.ms - before[name].ms) / turns}
	}
	return Step{Figure: c.figure}, after, nil
}

// openField starts a worker and a sender on a new database, and runs one turn, which copyTurns copies.
func (b *bench) openField(ctx context.Context, name string) (f *field, err error) {
	if err := b.newDatabase(ctx, name); err != nil {
		return nil, err
	}
	f = &field{turns: max(b.Turns, minSlots), warm: b.WarmUp, url: databaseURL(b.server, name)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close(ctx))
		}
	}()
	if f.conn, err = openFiller(ctx, f.url); err != nil {
		return f, err
	}
	f.own = &system{name: Turnkeeper, database: name, processes: map[string]*process{"model": b.model}}
	if err := b.startProcesses(ctx, f.own, minSlots); err != nil {
		return f, err
	}
	return f, f.own.warm(standard("first", 1, 0), 1)
}

func (f *field) close(ctx context.Context) (err error) {
	for _, conn := range []*pgx.Conn{f.held, f.conn} {
		if conn != nil {
			err = errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	if f.own != nil {
		err = errors.Join(err, f.own.stop())
	}
	return err
}

// growWaiting pauses the scheduler and lets as many messages wait as the size says, besides those that the step drains.
// These are older, and each is the first of its lane.
func growWaiting(ctx context.Context, f *field, _, to int) error {
	if _, err := f.conn.Exec(ctx, pauseScheduler); err != nil {
		return err
	}
	var waiting int
	if err := f.conn.QueryRow(ctx, "select count(*) from turnkeeper.waiting").Scan(
		&waiting); err != nil {
		return err
	}
	drained := f.turns + f.warm + 2*minSlots // those in progress when a drain ends are in addition
	more := max(to+drained-waiting, 0)
	return fillBacklog(ctx, f.conn, backlog{
		name: fmt.Sprintf("waiting-%d", to), messages: more, lanes: max(more/10, drained),
		due: fmt.Sprintf("now() - interval '%d seconds' + i * interval '1 us'", to+1),
	})
}

// growOpen opens the transaction at first, and then runs turns.
func growOpen(ctx context.Context, f *field, from, to int) (err error) {
	if f.held == nil {
		if f.held, err = holdTransaction(ctx, f.url); err != nil {
			return err
		}
	}
	if to == from {
		return nil
	}
	_, err = f.own.driver.run(standard(fmt.Sprintf("between-%d", to), minSlots, to-from))
	return err
}

// holdTransaction opens a transaction that keeps every row version that dies from being removed.
func holdTransaction(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, errUnreadableAddress
	}
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select pg_current_xact_id()",
		pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// relate sets the ratios to the first step.
func (s *Step) relate(first Figure) {
	s.Turns = s.Figure.TurnsPerS / first.TurnsPerS
	if first.Blocks > 0 {
		s.Blocks = s.Figure.Blocks / first.Blocks
	}
	if first.CPU != nil {
		s.CPU = s.Figure.CPU[total] / first.CPU[total]
	}
}

// A query is what a statement has read and taken on the server: so far, or per turn.
type query struct{ blocks, ms float64 }

// queries returns the statements that clients have sent to a database.
func (c *counters) queries(ctx context.Context, database string) (map[string]query, error) {
	all := map[string]query{}
	if !c.statements {
		return all, nil
	}
	rows, err := c.conn.Query(ctx, `select query, (shared_blks_hit + shared_blks_read)::float8, total_exec_time
		from pg_stat_statements where dbid = (select oid from pg_database where datname = $1)`, database)
	if err != nil {
		return nil, err
	}
	var text string
	var q query
	_, err = pgx.ForEachRow(rows, []any{&text, &q.blocks, &q.ms}, func() error {
		name := statementName(text)
		sum := all[name]
		all[name] = query{sum.blocks + q.blocks, sum.ms + q.ms}
		return nil
	})
	return all, err
}

// statementName returns the name that sqlc gave a statement, or its beginning.
func statementName(text string) string {
	if after, found := strings.CutPrefix(text, "-- name: "); found {
		name, _, _ := strings.Cut(after, " ")
		return name
	}
	words := strings.Join(strings.Fields(text), " ")
	return words[:min(len(words), 60)]
}

// mostGrown is how many statements a step names. Each reads this number of blocks more in a turn than at the first
// step.
const (
	mostGrown  = 3
	leastGrown = 5
)

func grew(first, now map[string]query) (all []Growth) {
	for name, q := range now {
		if q.blocks-first[name].blocks >= leastGrown {
			all = append(all, Growth{name, first[name].blocks, q.blocks, q.ms})
		}
	}
	slices.SortFunc(all, func(a, b Growth) int { return cmp.Compare(b.Blocks-b.First, a.Blocks-a.First) })
	return all[:min(len(all), mostGrown)]
}

const (
	pauseScheduler  = "update turnkeeper.settings set paused_at = clock_timestamp(), paused_reason = 'benchmark'"
	resumeScheduler = "with resumed as (update turnkeeper.settings set paused_at = null, paused_reason = null returning 1) select pg_notify('turnkeeper_inbox', '') from resumed"
)

// drainEvery is how often drain counts replies.
const drainEvery = 10 * time.Millisecond

// drain lets the scheduler grant messages that wait until there are so many new replies, and waits until no turn runs.
func (s *sender) drain(ctx context.Context, turns int) (o outcome, err error) {
	replies := func() (n int, err error) {
		err = s.pool.QueryRow(ctx, "select coalesce(max(id), 0) from turnkeeper.replies").Scan(&n)
		return n, err
	}
	before, err := replies()
	if err != nil {
		return o, err
	}
	began := time.Now()
	if _, err := s.pool.Exec(ctx, resumeScheduler); err != nil {
		return o, err
	}
	until := func(done func() (bool, error)) error {
		for {
			if is, err := done(); err != nil || is {
				return err
			}
			if err := pause.For(ctx, drainEvery); err != nil {
				return err
			}
		}
	}
	if err := until(func() (bool, error) { n, err := replies(); return n >= before+turns, err }); err != nil {
		return o, err
	}
	if _, err := s.pool.Exec(ctx, pauseScheduler); err != nil {
		return o, err
	}
	err = until(func() (idle bool, err error) {
		err = s.pool.QueryRow(ctx, "select not exists (select from turnkeeper.leases where grant_id is not null)").Scan(
			&idle)
		return idle, err
	})
	o.Elapsed = time.Since(began)
	if err != nil {
		return o, err
	}
	err = s.pool.QueryRow(ctx, "select count(*) from turnkeeper.replies where id > $1", before).Scan(&o.Drained)
	return o, err
}
