package storage_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestSQLFunctionsAreInlined plans a call of each function of language sql. One that Postgres does not inline is
// parsed and planned again by each statement that calls it, which takes longer than most of them run: such a function
// must be of language plpgsql, whose plans the session keeps.
func TestSQLFunctionsAreInlined(t *testing.T) {
	h := newEnv(t)
	rows, err := h.Pool().Query(t.Context(), `
		select p.proname, p.proretset,
			array(select format_type(a, null) from unnest(p.proargtypes) with ordinality u(a, i) order by i)
		from pg_proc p join pg_language l on l.oid = p.prolang
		where p.pronamespace = 'turnkeeper'::regnamespace and l.lanname = 'sql' order by p.proname`)
	if err != nil {
		t.Fatal(err)
	}
	type function struct {
		Name  string
		Set   bool
		Types []string
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil || len(functions) < 20 {
		t.Fatalf("%d functions, error %v", len(functions), err)
	}
	for i, f := range functions {
		var columns, names []string
		for n, typ := range f.Types {
			names = append(names, fmt.Sprintf("a.c%d", n))
			columns = append(columns, fmt.Sprintf("c%d %s", n, typ))
		}
		table := fmt.Sprintf("arguments_%d", i)
		h.Exec(fmt.Sprintf("create table %s (%s)", table, strings.Join(columns, ", ")))
		call := fmt.Sprintf("turnkeeper.%s(%s)", f.Name, strings.Join(names, ", "))
		query := fmt.Sprintf("select %s from %s a", call, table)
		if f.Set {
			query = fmt.Sprintf("select x.* from %s a, lateral %s x", table, call)
		}
		plan, err := h.Pool().Query(t.Context(), "explain (verbose, costs off) "+query)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(plan, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(lines, "\n"); strings.Contains(text, f.Name+"(") {
			t.Errorf("%s is not inlined:\n%s", f.Name, text)
		}
	}
}

// TestWaitingMessagesAreFoundByTheView finds SQL that looks for waiting messages by their state, which no index has.
func TestWaitingMessagesAreFoundByTheView(t *testing.T) {
	byState := regexp.MustCompile(`turnkeeper\.messages( \w+)?\s+where (\w+\.)?state = 'waiting'`)
	if !byState.MatchString("from turnkeeper.messages m\n    where m.state = 'waiting'") {
		t.Fatal("the pattern finds nothing")
	}
	migrations, _ := filepath.Glob("../migrations/*.up.sql")
	queries, _ := filepath.Glob("queries/*.sql")
	if len(migrations) < 5 || len(queries) < 20 {
		t.Fatalf("%d migrations and %d files of queries", len(migrations), len(queries))
	}
	for _, path := range append(migrations, queries...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range byState.FindAllIndex(text, -1) {
			t.Errorf("%s:%d looks for waiting messages by their state, which no index has: use turnkeeper.waiting", path,
				1+bytes.Count(text[:at[0]], []byte("\n")))
		}
	}
}
