package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/migrations"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

func TestMigrateByTwoProcessesAtOnce(t *testing.T) {
	url := storagetest.EmptyURL(t)
	applied := make([][]storage.Migration, 3)
	var group sync.WaitGroup
	for i := range applied {
		store := storagetest.Open(t, url)
		group.Go(func() {
			done, err := storagetest.Migrate(t.Context(), store.DB)
			if err != nil {
				t.Error(err)
			}
			applied[i] = done
		})
	}
	group.Wait()
	store := storagetest.Open(t, url)
	all, err := store.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || len(applied[0])+len(applied[1])+len(applied[2]) != len(all) {
		t.Errorf("applied %v of %v", applied, all)
	}
	for _, m := range all {
		if !m.Applied {
			t.Errorf("migration %d is not applied", m.Version)
		}
	}
	again, err := storagetest.Migrate(t.Context(), store.DB)
	if err != nil || len(again) != 0 {
		t.Errorf("migrated again: %v, error %v", again, err)
	}
}

// TestMigrateTakesTheLockOnlyIfSomethingIsMissing migrates while another session holds the lock.
func TestMigrateTakesTheLockOnlyIfSomethingIsMissing(t *testing.T) {
	one, _ := newer("-- Oldest program: 1\ncreate table turnkeeper.next ();")
	const river = "turnkeeper.river_migration"
	for name, c := range map[string]struct {
		sql   string // what another has done
		files fs.FS  // nil: those of this program
		waits bool
	}{
		"a current schema":          {},
		"River's tables are newer":  {sql: "insert into " + river + " (line, version) values ('main', 999)"},
		"a migration is missing":    {files: one, waits: true},
		"one of River's is missing": {"delete from " + river + " where version > 5", nil, true},
		"River's have no lines":     {"alter table " + river + " rename line to gone", nil, true},
		"River's table is missing":  {"alter table " + river + " rename to gone", nil, true},
		"PUBLIC may execute a function": {"create function turnkeeper.f() returns int language sql as 'select 1'",
			nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFresh(t)
			if c.sql != "" {
				h.Exec(c.sql)
			}
			if c.files != nil {
				h.SetMigrations(c.files)
			}
			other, err := h.Pool().Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Hijack().Close(context.Background()) }()
			if _, err := other.Exec(t.Context(), "select pg_advisory_lock($1)", storage.MigrationLock); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := storagetest.Migrate(ctx, h.Store.DB)
				ended <- err
			}()
			const waits = `select exists (select from pg_stat_activity where datname = current_database()
				and pid <> pg_backend_pid() and query ~ 'pg_try_advisory_lock')`
			for !storagetest.One[bool](h, waits) {
				select {
				case err := <-ended:
					if err != nil || c.waits {
						t.Errorf("it did not wait for the lock, error %v", err)
					}
					return
				default:
				}
			}
			cancel()
			if err := <-ended; !c.waits || !errors.Is(err, context.Canceled) {
				t.Errorf("it waited for the lock, error %v", err)
			}
		})
	}
}

func TestMigrationsOfAnEmptyDatabase(t *testing.T) {
	all, err := storagetest.Open(t, storagetest.EmptyURL(t)).Migrations(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, error %v", all, err)
	}
	for i, m := range all {
		if m.Applied || i > 0 && m.Version <= all[i-1].Version {
			t.Errorf("migration %d: %+v", i, m)
		}
	}
}

// TestMigrationsDownAndUp reverts all migrations, newest first, and applies them again.
func TestMigrationsDownAndUp(t *testing.T) {
	h := newEnv(t)
	all, err := h.Migrations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(m storage.Migration, direction string) {
		t.Helper()
		name := migrationFile(m, direction)
		sql, err := migrations.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		err = pgx.BeginFunc(t.Context(), h.Pool(), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), string(sql))
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		run(all[i], "down")
	}
	const left = `select count(*) from pg_class c where relnamespace = 'turnkeeper'::regnamespace and relkind = 'r'
		and relname !~ '^river_' and relname <> 'schema_migrations'`
	if n := storagetest.One[int](h, left); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if n := storagetest.One[int](h,
		"select count(*) from pg_proc where pronamespace = 'turnkeeper'::regnamespace and proname !~ '^river_'"); n != 0 {
		t.Errorf("%d functions are left", n)
	}
	for _, m := range all {
		run(m, "up")
	}
}

func migrationFile(m storage.Migration, direction string) string {
	return fmt.Sprintf("%03d_%s.%s.sql", m.Version, m.Name, direction)
}
