package operate

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/pg"
)

// A Promise is something that holds whatever happens, and where it does not.
type Promise struct {
	Text   string   // what is promised
	Broken []string // where it is broken; at most MaxBroken
	More   bool     // and elsewhere
}

// MaxBroken bounds the places that a Promise lists.
const MaxBroken = 20

// checkTimeout bounds one query of Check: they read whole tables.
const checkTimeout = 10 * time.Minute

// Check looks whether the promises hold, all at one moment. It reads every row
// there is, writes nothing, and blocks nobody. atRest adds what holds only
// while nothing runs.
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

// A check is a promise as a query.
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
