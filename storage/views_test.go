package storage_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/storage/storagetest"
)

// The generated code reads the views of the journal as the tables in journal_views.sql. Both must have the same
// columns.
func TestViewsHaveTheColumnsOfTheGeneratedCode(t *testing.T) {
	h := newEnv(t)
	tables, err := os.ReadFile("internal/riverschema/journal_views.sql")
	if err != nil {
		t.Fatal(err)
	}
	h.Exec("create schema generated; " + strings.ReplaceAll(string(tables), "create table turnkeeper.",
		"create table generated."))
	columns := func(schema string) string {
		return storagetest.One[string](h,
			`select string_agg(concat_ws(' ', table_name, column_name, data_type), E'\n' order by table_name, ordinal_position)
			from information_schema.columns where table_schema = $1 and table_name in (select table_name from information_schema.tables where table_schema = 'generated')`, schema)
	}
	if n := storagetest.One[int](h,
		"select count(*) from information_schema.tables where table_schema = 'generated'"); n != 4 {
		t.Errorf("%d tables", n)
	}
	if diff := cmp.Diff(strings.Split(columns("turnkeeper"), "\n"), strings.Split(columns("generated"),
		"\n")); diff != "" {
		t.Errorf("columns (-views +generated code):\n%s", diff)
	}
}
