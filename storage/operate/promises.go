package operate

import (
	"context"
	_ "embed"
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
}

// MaxBroken is the maximum number of violations that a Promise lists.
const MaxBroken = 20

// checkTimeout is the timeout of one query of Check. The queries read whole tables.
const checkTimeout = 10 * time.Minute

// Check checks all promises in one snapshot. It reads every row, writes nothing, and
// blocks nobody. atRest adds the promises that hold only while nothing runs.
func (s *Reports) Check(ctx context.Context, atRest bool) (promises []Promise, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db.Pool, snapshot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local statement_timeout = "+pg.Millis(checkTimeout)+pg.WholeTables("set local")); err != nil {
			return err
		}
		for _, c := range checks() {
			if c.atRest && !atRest {
				continue
			}
			promise, err := c.run(ctx, tx)
			if err != nil {
				return err
			}
			promises = append(promises, promise)
		}
		return nil
	})
	return promises, pg.Translate(err)
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

func (c check) run(ctx context.Context, tx pgx.Tx) (Promise, error) {
	rows, err := tx.Query(ctx, "select * from ("+c.sql+") as broken (place) limit $1", MaxBroken+1)
	if err != nil {
		return Promise{}, err
	}
	broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	more := len(broken) > MaxBroken
	return Promise{Text: c.text, Broken: broken[:min(len(broken), MaxBroken)], More: more}, err
}
