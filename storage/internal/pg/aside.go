package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"turnkeeper/storage/internal/dbsqlc"
)

// BelongsToRow reports whether an error may belong to one row, such as a value that cannot be decoded, or a constraint:
// the row is then set aside, so that it stops no others. It has the rule of the function turnkeeper.belongs_to_row;
// errors of this program count too, unless they are of the connection or of a context.
func BelongsToRow(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || ofConnection(err) {
		return false
	}
	code := SQLState(err)
	if code == "" || code == statementTimeout {
		return true
	}
	switch code[:2] {
	case "08", "25", "53", "57", "58":
		return false
	}
	return true
}

// SQLState returns the code of an error of Postgres, or an empty text.
func SQLState(err error) string {
	if server, ok := errors.AsType[*serverError](err); ok {
		return server.code
	}
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}

// PutAside records a failure of a row, or of a step, which is left out until its next try: see the function
// turnkeeper.put_aside, which also reports it to logAside.
func (s *DB) PutAside(ctx context.Context, q *dbsqlc.Queries, kind, id string, failed error) error {
	return Translate(q.PutAside(ctx, kind, id, SQLState(failed), s.Clean(failed.Error())))
}

// asideCode is the code of the warning that the function turnkeeper.put_aside raises.
const asideCode = "TK020"

// logAside returns a handler that logs failures of rows that are set aside, and of steps. The scheduler itself logs
// those of its ticks.
func logAside(log *zap.Logger) pgconn.NoticeHandler {
	said := map[string]string{"step": "a step of the scheduler's tick failed; the others go on", "tick": ""}
	return func(_ *pgconn.PgConn, n *pgconn.Notice) {
		say, special := said[n.TableName]
		if !special {
			say = "a row failed and is set aside; the others go on"
		}
		if n.Code == asideCode && say != "" {
			log.Error(say, zap.String("kind", n.TableName), zap.String("id", n.ColumnName),
				zap.String("error", n.Message), zap.String("sqlstate", n.ConstraintName), zap.String("failures",
					n.DataTypeName))
		}
	}
}
