package storage_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// storageAdmin runs SQL over a connection that is not the store's.
func storageAdmin(t *testing.T, h *house) func(sql string) {
	conn, err := pgx.Connect(t.Context(), h.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return func(sql string) {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
