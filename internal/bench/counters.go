package bench

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pause"
	"turnkeeper/internal/pgdev"
)

// The extension that counts statements and the blocks that they read. It counts in about a
// microsecond per statement, for all systems alike.
const statements = "pg_stat_statements"

// openServer starts the server with the extension, or without it if it is not installed.
func openServer(ctx context.Context, dir string, settings map[string]string) (*pgdev.Server, error) {
	settings["shared_preload_libraries"] = statements
	server, err := pgdev.Open(ctx, pgdev.Options{Dir: dir, Settings: settings})
	if err != nil {
		delete(settings, "shared_preload_libraries")
		server, err = pgdev.Open(ctx, pgdev.Options{Dir: dir, Settings: settings})
	}
	return server, err
}

// counters reads what Postgres and the operating system count.
type counters struct {
	conn       *pgx.Conn // to the database of the counters, which no system uses
	postmaster int       // process id
	proc       bool
	statements bool // the extension is there
}

const countersDatabase = "counters"

func openCounters(ctx context.Context, server string) (*counters, error) {
	if err := createDatabase(ctx, server, countersDatabase, ""); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, databaseURL(server, countersDatabase))
	if err != nil {
		return nil, errUnreadableAddress
	}
	c := &counters{conn: conn, proc: haveProc()}
	_, err = conn.Exec(ctx, "create extension if not exists "+statements)
	c.statements = err == nil && conn.QueryRow(ctx, "select from "+statements+" limit 1").Scan() == nil
	err = conn.QueryRow(ctx, "select split_part(pg_read_file('postmaster.pid'), chr(10), 1)::integer").Scan(
		&c.postmaster)
	return c, err
}

// createDatabase makes a database like template, which has no sessions; empty: an empty database.
func createDatabase(ctx context.Context, server, name, template string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return errUnreadableAddress
	}
	defer conn.Close(ctx)
	statement := "create database " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		statement += " template " + pgx.Identifier{template}.Sanitize()
	}
	_, err = conn.Exec(ctx, statement)
	return err
}

// databaseURL returns the URL of another database of the server.
func databaseURL(server, database string) string {
	address, err := url.Parse(server)
	if err != nil {
		return ""
	}
	address.Path = "/" + database
	return address.String()
}

// A count is what has been counted so far for a system.
type count struct {
	cpu          map[string]time.Duration // by process
	transactions int64                    // that wrote, of all databases
	wal          int64                    // bytes of all databases
	statements   int64                    // of the system's database
	blocks       int64                    // that these looked at
	read         int64                    // of these blocks, not found in the server's memory
}

// count reads the counters. Its own work on the server falls before the CPU time of the first count of an
// interval and after that of the last.
func (c *counters) count(ctx context.Context, s *system, last bool) (n count, err error) {
	if last {
		n.cpu = c.cpu(s)
	}
	err = c.conn.QueryRow(ctx,
		"select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").
		Scan(&n.transactions, &n.wal)
	if err == nil && c.statements {
		err = c.conn.QueryRow(ctx,
			`select coalesce(sum(calls), 0)::bigint, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint,
				coalesce(sum(shared_blks_read), 0)::bigint
			from pg_stat_statements(false) where dbid = (select oid from pg_database where datname = $1)`, s.database).Scan(&n.statements, &n.blocks, &n.read)
	}
	if !last {
		n.cpu = c.cpu(s)
	}
	return n, err
}

func (c *counters) cpu(s *system) map[string]time.Duration {
	if !c.proc {
		return nil
	}
	cpu := map[string]time.Duration{"postgres": treeTime(c.postmaster)}
	for name, process := range s.processes {
		cpu[strings.TrimRight(name, " 0123456789")] += cpuTime(process.cmd.Process.Pid) // of all that have a number
	}
	return cpu
}

// backends returns the process ids of a database's sessions.
func (c *counters) backends(ctx context.Context, database string) ([]int, error) {
	rows, err := c.conn.Query(ctx,
		"select pid from pg_stat_activity where datname = $1 and backend_type = 'client backend'", database)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// deadTuples returns the number of row versions that updates and deletes have left in a database so far, no
// matter whether they have been removed. A session reports what it did when it ends, so no session may be
// left.
func (c *counters) deadTuples(ctx context.Context, server, database string) (n int64, err error) {
	for {
		left, err := c.backends(ctx, database)
		if err != nil {
			return 0, err
		}
		if len(left) == 0 {
			break
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d sessions of the database %s have not ended: %w", len(left), database, err)
		}
	}
	conn, err := pgx.Connect(ctx, databaseURL(server, database))
	if err != nil {
		return 0, errUnreadableAddress
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables").Scan(&n)
	return n, err
}

// facts describe the server.
func (c *counters) facts(ctx context.Context, r *Report) error {
	var version string
	err := c.conn.QueryRow(ctx, "select current_setting('server_version'), current_setting('fsync')").Scan(
		&version, &r.FSync)
	r.Postgres, _, _ = strings.Cut(version, " ")
	if c.statements {
		r.StatementsFrom = statements
	}
	if c.proc {
		r.CPUFrom = "/proc"
	}
	return err
}
