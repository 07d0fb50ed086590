package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/storage/internal/pg"
)

// ErrSharedSessions means that a connection pooler shares server sessions between connections.
var ErrSharedSessions = errors.New("DATABASE_URL leads to a connection pooler that shares sessions between connections, as PgBouncer does with pool_mode = transaction; " +
	"a worker needs its own sessions for notifications, timeouts and locks: set pool_mode = session for this database, or connect to Postgres directly " +
	`("When a pooler is between" in docs/operating.md)`)

// CheckSessions fails with ErrSharedSessions if connections share server sessions. A pooler gives the
// session of an idle connection to another one.
func (s *DB) CheckSessions(ctx context.Context) error {
	one, err := s.core.Pool.Acquire(ctx)
	if err != nil {
		return pg.Translate(err)
	}
	defer one.Release()
	other, err := s.core.Queue.Acquire(ctx) // the other pool may have one connection only
	if err != nil {
		return pg.Translate(err)
	}
	defer other.Release()
	// A pooler assigns the session that was used last, or each in turn. So either both connections get
	// the same session, or the first one gets different sessions for two queries in a row.
	var pids [3]string
	for i, conn := range []*pgxpool.Conn{one, one, other} {
		if pids[i], err = sessionOf(ctx, conn); err != nil {
			return err
		}
	}
	if pids[0] != pids[1] || pids[1] == pids[2] {
		return ErrSharedSessions
	}
	return nil
}

// sessionOf returns the PID of the server process of a connection. It uses no prepared statement, which
// such a pooler may refuse.
func sessionOf(ctx context.Context, conn *pgxpool.Conn) (string, error) {
	results, err := conn.Conn().PgConn().Exec(ctx, "select pg_backend_pid()").ReadAll()
	if err != nil {
		return "", pg.Translate(err)
	}
	return string(results[0].Rows[0][0]), nil
}

// Encoding returns the encoding of the database, such as UTF8.
func (s *DB) Encoding(ctx context.Context) (name string, err error) {
	err = s.core.Pool.QueryRow(ctx, "select current_setting('server_encoding')").Scan(&name)
	return name, pg.Translate(err)
}

// These match a line: on a whole file they take milliseconds, at each start of a program.
var (
	madeTable    = regexp.MustCompile(`(?i)^create table (?:if not exists )?turnkeeper\.(\w+)`)
	droppedTable = regexp.MustCompile(`(?i)^drop table (?:if exists )?turnkeeper\.(\w+)`)
)

// tablesOf returns the tables in the lines of a migration that match.
func tablesOf(sql string, match *regexp.Regexp) (names []string) {
	for line := range strings.Lines(sql) {
		if found := match.FindStringSubmatch(line); found != nil {
			names = append(names, found[1])
		}
	}
	return names
}

// riverTables are the tables that River cannot work without.
var riverTables = []string{"river_job", "river_leader", "river_queue"}

// CheckTables fails, naming the tables, if tables that the applied migrations created are missing.
func (s *DB) CheckTables(ctx context.Context) error {
	all, err := s.Migrations(ctx)
	if err != nil {
		return err
	}
	expected := slices.Clone(riverTables)
	for _, m := range all {
		if m.Newer || !m.Applied {
			continue
		}
		sql, err := fs.ReadFile(s.files, m.file())
		if err != nil {
			return err
		}
		expected = append(expected, tablesOf(string(sql), madeTable)...)
		dropped := tablesOf(string(sql), droppedTable)
		expected = slices.DeleteFunc(expected, func(name string) bool { return slices.Contains(dropped, name) })
	}
	rows, err := s.core.Pool.Query(ctx, "select name from unnest($1::text[]) name where to_regclass('turnkeeper.' || name) is null order by name", expected)
	if err != nil {
		return pg.Translate(err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return pg.Translate(err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("tables that the migrations created are missing: turnkeeper.%s; a migration is applied only once, so restore the database from a backup",
			strings.Join(missing, ", turnkeeper."))
	}
	return nil
}

// ServerFacts are the settings of the server that Turnkeeper depends on.
type ServerFacts struct {
	Version, FSync, SynchronousCommit, FullPageWrites, Encoding string
	MaxConnections                                              int
	InRecovery                                                  bool
	Now                                                         time.Time
}

// ServerFacts reads the server's settings.
func (s *DB) ServerFacts(ctx context.Context) (ServerFacts, error) {
	r, err := s.core.Q.ServerFacts(ctx)
	return ServerFacts{
		Version: r.Version, FSync: r.Fsync, SynchronousCommit: r.SynchronousCommit, FullPageWrites: r.FullPageWrites,
		Encoding: r.Encoding, MaxConnections: int(r.MaxConnections), InRecovery: r.InRecovery, Now: r.Now,
	}, pg.Translate(err)
}
