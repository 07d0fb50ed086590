package storage

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnkeeper/migrations"
)

// migrationLock serialises everybody who migrates this database: River's own
// migrations fail when two run at once.
const migrationLock = 7_283_641_190_022

// A Migration is one numbered change of the schema.
type Migration struct {
	Version int
	Name    string
	Applied bool
}

// Migrate brings the schema up to date and returns what it applied. river
// migrates River's tables; it runs first, under the same lock, so that any
// number of processes may migrate at once. Each of our files is a transaction.
func (s *Store) Migrate(ctx context.Context, river func(context.Context) error) ([]Migration, error) {
	var applied []Migration
	err := s.underMigrationLock(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := prepareSchema(ctx, conn); err != nil {
			return err
		}
		if err := river(ctx); err != nil {
			return fmt.Errorf("migrating River's tables: %w", err)
		}
		all, err := listMigrations(ctx, conn)
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Applied {
				continue
			}
			if err := apply(ctx, conn, m); err != nil {
				return fmt.Errorf("migration %03d_%s: %w", m.Version, m.Name, translate(err))
			}
			applied = append(applied, m)
		}
		return nil
	})
	return applied, err
}

// Migrations lists the migrations of this binary and which of them the
// database has. It changes nothing.
func (s *Store) Migrations(ctx context.Context) ([]Migration, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("the database cannot be reached: %w", plainConnect(err))
	}
	defer conn.Release()
	return listMigrations(ctx, conn)
}

func (s *Store) underMigrationLock(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	ctx = unbound(ctx)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("the database cannot be reached: %w", plainConnect(err))
	}
	defer conn.Release()
	// Waiting for another process that migrates is not a hung statement.
	if _, err := conn.Exec(ctx, "set statement_timeout = 0; set lock_timeout = 0"); err != nil {
		return translate(err)
	}
	defer func() {
		// The session's lock and settings go with the connection.
		_ = conn.Hijack().Close(context.WithoutCancel(ctx))
	}()
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return translate(err)
	}
	return f(ctx, conn)
}

func prepareSchema(ctx context.Context, conn *pgxpool.Conn) error {
	_, err := conn.Exec(ctx, `
		create schema if not exists turnkeeper;
		create table if not exists turnkeeper.schema_migrations (
			version    integer primary key,
			name       text not null,
			applied_at timestamptz not null default clock_timestamp()
		)`)
	return translate(err)
}

func apply(ctx context.Context, conn *pgxpool.Conn, m Migration) error {
	sql, err := fs.ReadFile(migrations.Files, fmt.Sprintf("%03d_%s.up.sql", m.Version, m.Name))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, string(sql)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into turnkeeper.schema_migrations (version, name) values ($1, $2)", m.Version, m.Name)
		return err
	})
}

func listMigrations(ctx context.Context, conn *pgxpool.Conn) ([]Migration, error) {
	done, err := appliedVersions(ctx, conn)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(migrations.Files, "*.up.sql")
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, file := range names { // Glob sorts
		number, name, _ := strings.Cut(strings.TrimSuffix(file, ".up.sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration file %s has no number", file)
		}
		all = append(all, Migration{Version: version, Name: name, Applied: done[version]})
	}
	return all, nil
}

func appliedVersions(ctx context.Context, conn *pgxpool.Conn) (map[int]bool, error) {
	var there bool
	err := conn.QueryRow(ctx, "select to_regclass('turnkeeper.schema_migrations') is not null").Scan(&there)
	if err != nil || !there {
		return nil, translate(err)
	}
	rows, _ := conn.Query(ctx, "select version from turnkeeper.schema_migrations")
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, translate(err)
	}
	done := make(map[int]bool, len(versions))
	for _, v := range versions {
		done[v] = true
	}
	return done, nil
}
