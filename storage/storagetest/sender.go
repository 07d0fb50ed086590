package storagetest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/testrun"
)

// SenderURL creates a role that may log in, with exactly the rights that the README lists for a program that sends
// messages, and returns the address of the database at databaseURL for it. The role is dropped when the test ends.
func SenderURL(t testing.TB, databaseURL, suffix string) string {
	t.Helper()
	root, err := testrun.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("(?s)```sql\n(grant usage .*?)```").FindSubmatch(readme)
	if rights == nil {
		t.Fatal("the README lists no rights")
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	role := strings.TrimPrefix(u.Path, "/") + suffix // roles belong to the whole server
	admin := func(ctx context.Context, sql string) {
		conn, err := pgx.Connect(ctx, databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			t.Error(err)
		}
	}
	quoted := pgx.Identifier{role}.Sanitize()
	admin(t.Context(), "create role "+quoted+" login password 'sender'; "+strings.ReplaceAll(string(rights[1]),
		" to app;", " to "+quoted+";"))
	t.Cleanup(func() { admin(context.WithoutCancel(t.Context()), "drop owned by "+quoted+"; drop role "+quoted) })
	u.User = url.UserPassword(role, "sender")
	return u.String()
}
