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
var ErrSharedSessions = errors.New(
	"DATABASE_URL leads to a connection pooler that shares sessions between connections, as PgBouncer does with pool_mode = transaction; " +
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
	rows, err := s.core.Pool.Query(ctx,
		"select name from unnest($1::text[]) name where to_regclass('turnkeeper.' || name) is null order by name",
		expected)
	if err != nil {
		return pg.Translate(err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return pg.Translate(err)
	}
	if len(missing) > 0 {
		return fmt.Errorf(
			"tables that the migrations created are missing: turnkeeper.%s; a migration is applied only once, so restore the database from a backup",
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

// rightsToRevoke finds rights on the schema that let roles write its rows, keep them from being deleted (references),
// or change what its functions do. It omits superusers, the schema's owner and its members, who are the workers' role.
// A grantee 0 is PUBLIC.
const rightsToRevoke = `
with schema as (
    select n.oid, n.nspowner as owner, n.nspacl from pg_namespace n where n.nspname = 'turnkeeper'
), rights as (
    select lower(a.privilege_type) as "right", 'table turnkeeper.' || quote_ident(c.relname) as object, a.grantee
    from schema s join pg_class c on c.relnamespace = s.oid and c.relkind in ('r', 'p', 'v', 'm'), aclexplode(c.relacl) a
    where a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES')
    union all
    select lower(a.privilege_type) || ' (' || quote_ident(k.attname) || ')', 'table turnkeeper.' || quote_ident(c.relname), a.grantee
    from schema s join pg_class c on c.relnamespace = s.oid join pg_attribute k on k.attrelid = c.oid, aclexplode(k.attacl) a
    where a.privilege_type in ('INSERT', 'UPDATE', 'REFERENCES')
    union all
    select 'create', 'schema turnkeeper', a.grantee from schema s, aclexplode(s.nspacl) a where a.privilege_type = 'CREATE'
    union all
    select 'execute', 'routine turnkeeper.' || quote_ident(p.proname) || '(' || pg_get_function_identity_arguments(p.oid) || ')', 0
    from schema s join pg_proc p on p.pronamespace = s.oid where has_function_privilege('public', p.oid, 'execute')
), outside as (
    select r.oid, quote_ident(r.rolname) as name from pg_roles r, schema s where not r.rolsuper and not pg_has_role(r.oid, s.owner, 'member')
    union all select 0, 'public'
), grouped as (
    select string_agg(distinct r."right", ', ' order by r."right") as rights, r.object, o.name
    from rights r join outside o on o.oid = r.grantee group by r.object, o.name
)
select 'revoke ' || g.rights || ' on ' || split_part(min(g.object), ' ', 1) || ' '
    || string_agg(substr(g.object, strpos(g.object, ' ') + 1), ', ' order by g.object) || ' from ' || g.name || ';' as statement
from grouped g group by g.name, g.rights, split_part(g.object, ' ', 1)
union all
select 'revoke pg_write_all_data from ' || o.name || ';' from pg_auth_members m join outside o on o.oid = m.member
where m.roleid = 'pg_write_all_data'::regrole
order by 1`

// RightsToRevoke returns a REVOKE statement for the rights of each role that may write rows of the schema without the
// functions for senders. Superusers and the workers' role are meant to.
func (s *DB) RightsToRevoke(ctx context.Context) ([]string, error) {
	rows, err := s.core.Pool.Query(ctx, rightsToRevoke)
	if err != nil {
		return nil, pg.Translate(err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return statements, pg.Translate(err)
}
