package storage_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/storagetest"
)

// appRole creates a role with exactly the rights that the README lists for an application, and
// returns its quoted name.
func (h *env) appRole() string {
	t := h.T
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("(?s)```sql\n(grant usage .*?)```").FindSubmatch(readme)
	if rights == nil {
		t.Fatal("the README lists no rights")
	}
	role := storagetest.One[string](h, "select quote_ident(current_database() || '_app')") // roles belong to the whole server
	h.Exec("create role " + role)
	t.Cleanup(func() {
		if _, err := h.Pool().Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	h.Exec(strings.ReplaceAll(string(rights[1]), " to app;", " to "+role+";"))
	return role
}

// oneAs queries one value as the role.
func oneAs[T any](h *env, role, sql string) (value T) {
	h.T.Helper()
	err := pgx.BeginFunc(h.T.Context(), h.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(h.T.Context(), "set local role "+role); err != nil {
			return err
		}
		return tx.QueryRow(h.T.Context(), sql).Scan(&value)
	})
	if err != nil {
		h.T.Fatalf("%s: %v", sql, err)
	}
	return value
}

const send = "select turnkeeper.enqueue('clerk', 'Order 17.', idempotency_key => 'order-17')"

// TestARoleWithTheRightsOfTheREADME sends a message, repeats it with the same key, and reads replies.
func TestARoleWithTheRightsOfTheREADME(t *testing.T) {
	h := newEnv(t)
	role := h.appRole()
	h.Turn("x").Finish(t, "done")
	first, again := oneAs[int](h, role, send), oneAs[int](h, role, send)
	replies := oneAs[int](h, role, "select count(*)::int from turnkeeper.replies_after(0)")
	if first == 0 || again != first || replies != 1 {
		t.Errorf("message %d, again %d; %d replies", first, again, replies)
	}
}

// TestAMigrationOfEnqueueKeepsRights replaces the function enqueue in a migration. The runner grants
// no rights: applications need only those on tables, because every role may execute a new function.
// Only "create or replace" keeps the rights that an operator has set on the function itself.
func TestAMigrationOfEnqueueKeepsRights(t *testing.T) {
	const signature = "turnkeeper.enqueue(text, text, text, text, integer, text, timestamptz)"
	for name, c := range map[string]struct {
		migration func(definition string) string
		restrict  bool // an operator has restricted the right to execute the function
	}{
		"create or replace": {func(definition string) string { return definition }, false},
		"create or replace, restricted": {
			func(definition string) string { return definition }, true,
		},
		"drop and create with another argument": {func(definition string) string {
			return "drop function " + signature + ";\n" +
				strings.Replace(definition, ")\n RETURNS bigint", ", note text default null)\n RETURNS bigint", 1)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			role := h.appRole()
			if c.restrict {
				h.Exec("revoke execute on function " + signature + " from public")
				h.Exec("grant execute on function " + signature + " to " + role)
			}
			sql := c.migration(storagetest.One[string](h, "select pg_get_functiondef('"+signature+"'::regprocedure)"))
			files, _ := newer("-- Oldest program: 1\n" + sql + ";")
			program := storagetest.Open(t, h.URL)
			program.SetMigrations(files)
			if applied, err := storagetest.Migrate(t.Context(), program.DB); err != nil || len(applied) != 1 {
				t.Fatalf("applied %v, error %v", applied, err)
			}
			if id := oneAs[int](h, role, send); id == 0 {
				t.Error("nothing was sent")
			}
			const public = "select has_function_privilege('public', oid, 'execute') from pg_proc where oid = to_regproc('turnkeeper.enqueue')"
			if may := storagetest.One[bool](h, public); may == c.restrict {
				t.Errorf("every role may execute the function: %t", may)
			}
		})
	}
}
