package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"turnkeeper/internal/pause"
	"turnkeeper/storage/internal/pg"
)

// migrationLock is the advisory lock that serialises migrations of this database:
// River's own migrations fail when two run at once.
const migrationLock = 7_283_641_190_022

// A Migration is one numbered change of the schema.
type Migration struct {
	Version int
	Name    string
	Applied bool
	Newer   bool // the database has it, but this program does not know it
	// OldestProgram names the oldest program that works with the schema after this
	// migration, by the number of the newest migration that the program knows. A file
	// states it in a line "-- Oldest program: N"; without that line, no older program
	// works.
	OldestProgram int
}

// RiverMigrations are the migrations of River's tables that this program knows.
type RiverMigrations struct {
	Line     string
	Versions []int
	Apply    func(context.Context) error // applies those that are missing
}

// Migrate applies the missing migrations and returns them. River's run first, under the
// same lock. So any number of processes may call Migrate at once. Each file is one
// transaction. It waits for locks with a short timeout and retries, so that running work
// is not blocked. If nothing is missing, which is the usual case, it does not take the
// lock. If the schema is too new for this program, Migrate fails and changes nothing.
func (s *DB) Migrate(ctx context.Context, river RiverMigrations) ([]Migration, error) {
	all, err := compatible(s.Migrations(ctx))
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(m Migration) bool { return !m.Applied }) {
		if current, err := restIsCurrent(ctx, s.core.Pool, river); err != nil || current {
			return nil, err
		}
	}
	var applied []Migration
	err = s.underMigrationLock(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := prepareSchema(ctx, conn); err != nil {
			return err
		}
		all, err := compatible(s.listMigrations(ctx, conn))
		if err != nil {
			return err
		}
		if err := river.Apply(ctx); err != nil {
			return fmt.Errorf("migrating River's tables: %w", err)
		}
		for _, m := range all {
			if m.Applied {
				continue
			}
			if err := s.apply(ctx, conn, m); err != nil {
				return fmt.Errorf("migration %03d_%s: %w", m.Version, m.Name, err)
			}
			applied = append(applied, m)
		}
		return revokePublic(ctx, conn)
	})
	return applied, err
}

// restIsCurrent reports whether River's migrations are applied, and revokePublic has nothing to do.
func restIsCurrent(ctx context.Context, pool *pgxpool.Pool, river RiverMigrations) (current bool, err error) {
	err = pool.QueryRow(ctx, "select not "+publicExecutes+` and $1::int[] <@ array(
		select version::int from turnkeeper.river_migration where line = $2)`, river.Versions, river.Line).Scan(&current)
	if missing, ok := errors.AsType[*pgconn.PgError](err); ok && slices.Contains(undefined, missing.Code) {
		return false, nil
	}
	return current, pg.Translate(err)
}

// undefined are the SQLSTATEs of a table and a column that do not exist. River's first migrations had no lines.
var undefined = []string{"42P01", "42703"}

// publicExecutes is a condition: the role PUBLIC may execute a function of the schema.
const publicExecutes = `exists (select from pg_proc p where p.pronamespace = 'turnkeeper'::regnamespace
	and has_function_privilege('public', p.oid, 'execute'))`

// revokePublic takes the right to execute functions of the schema from the role PUBLIC, which has it on each new
// function, River's too. Rights of other roles stay.
func revokePublic(ctx context.Context, conn *pgxpool.Conn) error {
	var open bool
	err := conn.QueryRow(ctx, "select "+publicExecutes).Scan(&open)
	if err == nil && open {
		_, err = conn.Exec(ctx, "revoke execute on all routines in schema turnkeeper from public")
	}
	return pg.Translate(err)
}

// Migrations lists the migrations of this program, then those that only the database
// has. Applied is set on those that the database has. It changes nothing.
func (s *DB) Migrations(ctx context.Context) ([]Migration, error) {
	conn, err := s.core.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("the database cannot be reached: %w", pg.PlainConnect(err))
	}
	defer conn.Release()
	return s.listMigrations(ctx, conn)
}

func (s *DB) underMigrationLock(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	ctx = pg.Unbound(ctx)
	conn, err := s.core.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("the database cannot be reached: %w", pg.PlainConnect(err))
	}
	defer conn.Release()
	// A migration may take its time.
	if _, err := conn.Exec(ctx, "set statement_timeout = 0"+pg.WholeTables("set")); err != nil {
		return pg.Translate(err)
	}
	// The session's lock and settings go with the connection.
	defer func() { closeWhole(conn.Hijack()) }()
	if err := lockMigrations(ctx, conn); err != nil {
		return err
	}
	return f(ctx, conn)
}

// lockMigrations waits for other processes that migrate. It polls, because a process
// that stops while it waits in the server would leave its session there.
func lockMigrations(ctx context.Context, conn *pgxpool.Conn) error {
	for {
		var locked bool
		err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&locked)
		if err != nil || locked {
			return pg.Translate(err)
		}
		if pause.For(ctx, lockPoll) != nil {
			return context.Cause(ctx)
		}
	}
}

const (
	lockPoll   = 200 * time.Millisecond
	cancelTime = 3 * time.Second
)

// closeWhole closes a connection and waits until pgx has cancelled its query on the
// server, for at most cancelTime.
func closeWhole(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
	defer cancel()
	_ = conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

func prepareSchema(ctx context.Context, conn *pgxpool.Conn) error {
	_, err := conn.Exec(ctx, `
		create schema if not exists turnkeeper;
		create table if not exists turnkeeper.schema_migrations (
			version        integer primary key,
			name           text not null,
			applied_at     timestamptz not null default clock_timestamp(),
			oldest_program integer not null
		)`)
	return pg.Translate(err)
}

// A migration that waits for a lock blocks all later users of the table. So it waits
// only for migrationLockTime, and retries after migrationPause until its ctx ends.
const (
	migrationLockTime = 2 * time.Second
	migrationPause    = time.Second
)

func (s *DB) apply(ctx context.Context, conn *pgxpool.Conn, m Migration) error {
	sql, err := fs.ReadFile(s.files, m.file())
	if err != nil {
		return err
	}
	for {
		err := pg.Translate(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)",
				pg.Millis(s.migrationLockTime)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(sql)); err != nil {
				return err
			}
			_,
				err := tx.Exec(ctx,
				"insert into turnkeeper.schema_migrations (version, name, oldest_program) values ($1, $2, $3)",
				m.Version, m.Name, m.OldestProgram)
			return err
		}))
		if !pg.LockRefused(err) || pause.For(ctx, s.migrationPause) != nil {
			return err
		}
		s.core.Log.Info("a migration waits for a lock of another session", zap.String("migration", m.String()))
	}
}

func (s *DB) listMigrations(ctx context.Context, conn *pgxpool.Conn) ([]Migration, error) {
	there, err := appliedMigrations(ctx, conn)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(s.files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, file := range names { // Glob sorts
		m, err := s.readMigration(file)
		if err != nil {
			return nil, err
		}
		_, m.Applied = there[m.Version]
		delete(there, m.Version)
		all = append(all, m)
	}
	for _, version := range slices.Sorted(maps.Keys(there)) {
		all = append(all, there[version])
	}
	return all, nil
}

var oldestProgram = regexp.MustCompile(`^-- Oldest program: (\d{1,6})\n?$`)

func (s *DB) readMigration(file string) (Migration, error) {
	number, name, _ := strings.Cut(strings.TrimSuffix(file, ".up.sql"), "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		return Migration{}, fmt.Errorf("migration file %s has no number", file)
	}
	sql, err := fs.ReadFile(s.files, file)
	if err != nil {
		return Migration{}, err
	}
	m := Migration{Version: version, Name: name, OldestProgram: version}
	for line := range strings.Lines(string(sql)) {
		if found := oldestProgram.FindStringSubmatch(line); found != nil {
			m.OldestProgram, err = strconv.Atoi(found[1])
			return m, err
		}
	}
	return m, nil
}

// NewerMigrations lists the database's migrations that this program does not know, by version. It returns none for a
// database without a schema.
func (s *DB) NewerMigrations(ctx context.Context) ([]Migration, error) {
	conn, err := s.core.Pool.Acquire(ctx)
	if err != nil {
		return nil, pg.Translate(err)
	}
	defer conn.Release()
	there, err := appliedMigrations(ctx, conn)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(s.files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		number, _, _ := strings.Cut(file, "_")
		if version, err := strconv.Atoi(number); err == nil {
			delete(there, version)
		}
	}
	return slices.SortedFunc(maps.Values(there), func(a, b Migration) int { return a.Version - b.Version }), nil
}

func (m Migration) file() string { return m.String() + ".up.sql" }

// String returns the migration's number and name.
func (m Migration) String() string { return fmt.Sprintf("%03d_%s", m.Version, m.Name) }

// appliedMigrations returns the migrations of the database by version, with Newer set.
func appliedMigrations(ctx context.Context, conn *pgxpool.Conn) (map[int]Migration, error) {
	var there bool
	err := conn.QueryRow(ctx, "select to_regclass('turnkeeper.schema_migrations') is not null").Scan(&there)
	if err != nil || !there {
		return nil, pg.Translate(err)
	}
	rows, _ := conn.Query(ctx, "select version, name, oldest_program from turnkeeper.schema_migrations")
	found := map[int]Migration{}
	var m Migration
	_, err = pgx.ForEachRow(rows, []any{&m.Version, &m.Name, &m.OldestProgram}, func() error {
		m.Applied, m.Newer = true, true
		found[m.Version] = m
		return nil
	})
	return found, pg.Translate(err)
}

// ErrNewerSchema means that a newer program has changed the schema so that this
// program cannot work with it.
var ErrNewerSchema = errors.New("the database's schema is too new for this program")

// compatible returns its arguments, and the error of CheckCompatible if err is nil.
func compatible(all []Migration, err error) ([]Migration, error) {
	if err == nil {
		err = CheckCompatible(all)
	}
	return all, err
}

// CheckCompatible fails with ErrNewerSchema unless this program can work with a database
// that has the migrations all, as returned by Migrations. It can if the newer ones name
// this program or an older one as their OldestProgram.
func CheckCompatible(all []Migration) error {
	known := 0
	for _, m := range all {
		if !m.Newer {
			known = max(known, m.Version)
		}
	}
	for _, m := range all {
		if m.Newer && m.OldestProgram > known {
			return fmt.Errorf(
				"%w: migration %s needs a program that knows migration %03d, but this one ends at %03d; use the newer program",
				ErrNewerSchema, m, m.OldestProgram, known)
		}
	}
	return nil
}
