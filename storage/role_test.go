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

// The rights that the README gives a role of an application's own do for what it says
// of them: to send, again with the same key, and to read replies on.
func TestARoleWithTheRightsOfTheREADME(t *testing.T) {
	h := newEnv(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("(?s)```sql\n(grant usage .*?)```").FindSubmatch(readme)
	if rights == nil {
		t.Fatal("the README has no rights")
	}
	role := storagetest.One[string](h, "select quote_ident(current_database() || '_app')") // roles are the whole server's
	h.Exec("create role " + role)
	t.Cleanup(func() {
		if _, err := h.Pool().Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	h.Exec(strings.ReplaceAll(string(rights[1]), " to app;", " to "+role+";"))
	d := h.Turn("x")
	d.Finish(t, "done")
	err = pgx.BeginFunc(t.Context(), h.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role "+role); err != nil {
			return err
		}
		const send = "select turnkeeper.enqueue('clerk', 'Order 17.', idempotency_key => 'order-17')"
		var first, again, replies int
		for sql, into := range map[string]*int{send: &first, send + " as again": &again, "select count(*)::int from turnkeeper.replies_after(0)": &replies} {
			if err := tx.QueryRow(t.Context(), sql).Scan(into); err != nil {
				return err
			}
		}
		if first == 0 || again != first || replies != 1 {
			t.Errorf("message %d, again %d; %d replies", first, again, replies)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
