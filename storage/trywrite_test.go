package storage_test

import (
	"fmt"
	"testing"

	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// TestTryWrite tries a write in a database that accepts it, and in one that refuses it to one of the tables, in the
// statement or at the commit.
func TestTryWrite(t *testing.T) {
	h := newEnv(t)
	store := h.Store
	if err := store.TryWrite(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Exec(
		`create function public.refuse() returns trigger language plpgsql as $$ begin raise exception using errcode = tg_argv[0]; end $$`)
	for _, table := range []string{"journal", "call_starts", "ended_grants"} {
		for _, when := range []string{"trigger refuse before insert on turnkeeper.%s",
			"constraint trigger refuse after insert on turnkeeper.%s deferrable initially deferred"} {
			h.Exec(fmt.Sprintf("create "+when+" for each row execute function public.refuse('53100')", table))
			if got := storage.Cause(store.TryWrite(t.Context())); got != "53100" {
				t.Errorf("%s refuses with %q", table, got)
			}
			h.Exec("drop trigger refuse on turnkeeper." + table)
		}
	}
	if n := storagetest.One[int](h.DB, "select count(*) from turnkeeper.journal"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if err := store.TryWrite(t.Context()); err != nil {
		t.Error(err)
	}
}
