package storage_test

import (
	"fmt"
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
