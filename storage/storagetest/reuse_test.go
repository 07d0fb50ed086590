package storagetest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// TestReused checks that a database that is used again is as it was when it was new, with the settings of its sessions,
// and that one whose schema was changed or that was analyzed is not used again.
func TestReused(t *testing.T) {
	const everything = `select current_setting('session_replication_role') || current_setting('search_path') || string_agg(
			format('%s %s', c.oid::regclass, query_to_xml('select * from ' || c.oid::regclass, true, true, '')), '' order by c.oid)
		from pg_class c where relnamespace = 'turnkeeper'::regnamespace and relkind in ('r', 'S')`
	var urls, contents []string
	for _, change := range []string{
		"update turnkeeper.settings set paused_at = now(), paused_reason = 'x', max_message_bytes = 10",
		"delete from turnkeeper.settings; delete from turnkeeper.schema_migrations",
		"set session_replication_role = replica; set search_path = pg_catalog",
		"create table turnkeeper.more (id int)",
		"set session_replication_role = replica; alter table turnkeeper.settings alter paused_reason set default 'x'",
		"analyze",
		"",
	} {
		t.Run(change, func(t *testing.T) {
			db := storagetest.Reused(t, "")
			urls, contents = append(urls, db.URL), append(contents, storagetest.One[string](db, everything))
			clerk := turnkeeper.AgentRegistration{Name: "clerk", Definition: []byte("x"),
				DefinitionHash: strings.Repeat("a", 64)}
			if err := db.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{clerk}); err != nil {
				t.Fatal(err)
			}
			if id := db.Submit("clerk", "", "x"); id != 1 {
				t.Errorf("the first message has the number %d", id)
			}
			db.Exec(change)
		})
	}
	for i, content := range contents[1:] {
		if diff := cmp.Diff(contents[0], content); diff != "" {
			t.Errorf("database %d is not like a new one: %s", i+1, diff)
		}
	}
	if urls[0] != urls[1] || urls[1] != urls[2] || urls[2] != urls[3] || urls[3] == urls[4] || urls[4] == urls[5] ||
		urls[5] == urls[6] {
		t.Errorf("the databases are %q", urls)
	}
}
