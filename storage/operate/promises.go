package operate

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/pg"
)

// A Promise is an invariant of the database, with its violations.
type Promise struct {
	Text   string   // the invariant
	Broken []string // violations; at most MaxBroken
	More   bool     // there are more violations
	Failed bool     // it could not be checked; Broken has the error
}

// MaxBroken is the maximum number of violations that a Promise lists.
const MaxBroken = 20

// checkTimeout is the timeout of one query of Check. The queries read whole tables.
const checkTimeout = 10 * time.Minute

// Check checks all promises in one snapshot. It reads every row, writes nothing, and
// blocks nobody. atRest adds the promises that hold only while nothing runs.
func (s *Reports) Check(ctx context.Context, atRest bool) (promises []Promise, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool, snapshot, func(tx pgx.Tx) (err error) {
		promises, err = checkIn(ctx, tx, atRest)
		return err
	})
	return promises, pg.Translate(err)
}

func checkIn(ctx context.Context, tx pgx.Tx, atRest bool) (promises []Promise, err error) {
	if _, err := tx.Exec(ctx, "set local statement_timeout = "+pg.Millis(checkTimeout)+pg.WholeTables(
		"set local")); err != nil {
		return nil, err
	}
	for _, c := range checks() {
		if c.atRest && !atRest {
			continue
		}
		promise, err := c.try(ctx, tx)
		if err != nil {
			return nil, err
		}
		promises = append(promises, promise)
	}
	if !slices.ContainsFunc(promises, func(p Promise) bool { return p.Failed }) {
		return promises, nil
	}
	unreadable, err := unreadableJournals(ctx, tx)
	return append(promises, unreadable), err
}

//go:embed promises.sql
var promisesSQL string

// A check is a promise and the query that finds its violations.
type check struct {
	text, sql string
	atRest    bool
}

func checks() (all []check) {
	for block := range strings.SplitSeq(promisesSQL, "\n\n") {
		heading, sql, _ := strings.Cut(block, "\n")
		if text, found := strings.CutPrefix(heading, "-- promise: "); found {
			all = append(all, check{text, sql, false})
		}
		if text, found := strings.CutPrefix(heading, "-- at rest: "); found {
			all = append(all, check{text, sql, true})
		}
	}
	return all
}

// try runs the check. If a row cannot be read, it reports that, and the other checks go on.
func (c check) try(ctx context.Context, tx pgx.Tx) (promise Promise, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		promise, err = c.run(ctx, tx)
		return err
	})
	if err = pg.Translate(err); pg.BelongsToRow(err) {
		return Promise{Text: c.text, Broken: []string{"it could not be checked: " + err.Error()}, Failed: true}, nil
	}
	return promise, err
}

// readJournals reads all of the journals of some turns.
const readJournals = `select count(row) from unnest($1::bigint[]) t(id), lateral (
	select r::text from turnkeeper.rounds r where r.turn_id = t.id
	union all select c::text from turnkeeper.calls c where c.turn_id = t.id
	union all select e::text from turnkeeper.turn_events e where e.turn_id = t.id) r(row)`

// journalsAtOnce is the number of turns whose journals are read by one statement.
const journalsAtOnce = 200

// unreadableJournals returns the promise that each journal can be read.
func unreadableJournals(ctx context.Context, tx pgx.Tx) (Promise, error) {
	p := Promise{Text: "the journal of each turn can be read"}
	rows, _ := tx.Query(ctx, "select distinct turn_id from turnkeeper.journal order by 1")
	turns, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return p, err
	}
	for some := range slices.Chunk(turns, journalsAtOnce) {
		_, failed, err := pg.Apart(some, func(ids []int64) ([]int64, error) {
			return nil, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, readJournals, ids)
				return err
			})
		})
		if err != nil {
			return p, err
		}
		for _, turn := range slices.Sorted(maps.Keys(failed)) {
			p.Broken = append(p.Broken, fmt.Sprintf("turn %d: %v", turn, failed[turn]))
		}
	}
	p.More = len(p.Broken) > MaxBroken
	p.Broken = p.Broken[:min(len(p.Broken), MaxBroken)]
	return p, nil
}

func (c check) run(ctx context.Context, tx pgx.Tx) (Promise, error) {
	rows, err := tx.Query(ctx, "select * from ("+c.sql+") as broken (place) limit $1", MaxBroken+1)
	if err != nil {
		return Promise{}, err
	}
	broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	more := len(broken) > MaxBroken
	return Promise{Text: c.text, Broken: broken[:min(len(broken), MaxBroken)], More: more}, err
}
