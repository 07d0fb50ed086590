package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/internal/cli/turnctl"
)

// tables lists the tables with data of turns or messages.
var tables = strings.Fields(
	`messages turns replies call_starts late_results outputs output_chunks output_drafts journal failed_attempts
	lease_log awaited_calls detached_calls extractions spend spend_reservations summaries requested_ends retries webhook_deliveries river_job`)

// TestPurge checks that a purge deletes everything closed from every table, and nothing open.
func TestPurge(t *testing.T) {
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	ctl := func(args ...string) ran { return run(t, turnctl.Program(), env, "", args...) }
	s.exec("insert into turnkeeper.webhooks (name, origin) values ('shop', 'https://shop.example')")
	for _, ending := range endings {
		ending.play(s)
	}
	settle := func() {
		s.exec(
			"update turnkeeper.webhook_deliveries set state = case when reply_id % 2 = 0 then 'delivered' else 'dead' end, due_at = null")
	}
	settle()
	// Rows that the endings do not create.
	s.exec(
		"insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description, chunked) values ('o', 2, 1, 1, 'text/plain', '', 4, 4, 4, 1, 'x', false, '', true)")
	s.exec("insert into turnkeeper.output_chunks (output_id, first_char, content) values ('o', 0, 'text')")
	s.exec("insert into turnkeeper.extractions values ('a', 'b', 'm', 1, 2, '{}')")
	s.exec("insert into turnkeeper.spend values ('turn:2', '', 10, 1), ('agent:echo', '2026-01-01', 10, 1)")
	s.exec(
		"insert into turnkeeper.spend_reservations (turn_id, agent, period, tokens) values (2, 'echo', '2026-01-01', 10)")
	s.exec("insert into turnkeeper.summaries values ('echo', '', 'main', 1, 2, 'Once upon a time.')")
	s.exec("insert into turnkeeper.late_results (turn_id, round, ordinal, result) values (2, 1, 1, 'late')")
	s.exec("insert into turnkeeper.notes (agent, name, content) values ('echo', 'n', 'x'), ('watcher', 'n', 'x')")
	s.exec("select turnkeeper.add_events(2, '{turn_start}', '{0}', '{0}', array[''])")
	s.exec("update turnkeeper.turns set last_seq = 1 where id = 2")
	waiting := s.send("I wait.")
	count := func(table string) (n int) {
		t.Helper()
		if err := store.Pool().QueryRow(t.Context(), "select count(*) from turnkeeper."+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := map[string]int{}
	for _, table := range tables {
		if before[table] = count(table); before[table] == 0 && table != "output_drafts" {
			t.Errorf("%s is empty: the test would not see what is left there", table)
		}
	}
	type purged struct{ Messages, Turns, Outputs, Notes int }
	closed := before["messages"] - 2 // one waits, one runs
	if got := decode[purged](t, ctl("purge", "--agent", "echo", "--dry-run", "-o", "json")); got.Messages != closed ||
		got.Turns != before["turns"]-1 || got.Outputs != 1 {
		t.Errorf("dry: %+v of %v", got, before)
	}
	for _, table := range tables {
		if n := count(table); n != before[table] {
			t.Errorf("a dry run left %d of %d %s", n, before[table], table)
		}
	}
	for _, args := range [][]string{{"--agent", "watcher"}, {"--agent", "echo", "--conversation", "other"},
		{"--older-than", "1h"}} {
		if got := decode[purged](t, ctl(append([]string{"purge", "-o", "json"}, args...)...)); got != (purged{}) {
			t.Errorf("purge %v: %+v", args, got)
		}
	}
	// The summary of a conversation stays while one of its turns runs.
	if got := decode[purged](t, ctl("purge", "--agent", "echo", "--conversation", "main", "-o",
		"json")); got.Messages != closed {
		t.Errorf("purge: %+v", got)
	}
	s.keepsPromises()
	if n := count("summaries"); n != 1 {
		t.Errorf("%d summaries are left under a turn that runs", n)
	}
	left := map[string]int{"messages": 2, "turns": 1, "journal": 1, "failed_attempts": 2, "lease_log": 1,
		"river_job": 1, "spend": 1, "summaries": 1}
	for _, table := range tables {
		if n := count(table); n != left[table] {
			t.Errorf("%d rows are left in %s, want %d", n, table, left[table])
		}
	}
	if m, err := store.Message(t.Context(), waiting); err != nil || m.Body != "I wait." {
		t.Errorf("%+v, %v", m, err)
	}
	// The next purge after the last turn ended deletes the summary; a repeat does nothing.
	var running int64
	if err := store.Pool().QueryRow(t.Context(), "select id from turnkeeper.turns").Scan(&running); err != nil {
		t.Fatal(err)
	}
	if got := ctl("cancel", fmt.Sprint(running)); got.code != 0 {
		t.Errorf("%+v", got)
	}
	s.exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id is not null")
	s.loseAll()
	settle()
	if got := decode[purged](t, ctl("purge", "--agent", "echo", "--notes", "-o", "json")); got.Messages != 1 ||
		got.Notes != 1 {
		t.Errorf("the last: %+v", got)
	}
	if got := ctl("purge", "--agent", "echo",
		"--notes"); got.stdout != "removed: 0 messages, 0 turns, 0 tool results\n" {
		t.Errorf("again: %+v", got)
	}
	for _, table := range []string{"summaries", "turns", "requested_ends"} {
		if n := count(table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := count("notes"); n != 1 {
		t.Errorf("%d notes are left, want that of the other agent", n)
	}
	s.keepsPromises()
	// Messages with undelivered replies stay, unless --undelivered is set.
	if got := ctl("cancel", "--message", fmt.Sprint(waiting)); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := decode[purged](t, ctl("purge", "--agent", "echo", "-o", "json")); got.Messages != 0 ||
		count("webhook_deliveries") != 1 {
		t.Errorf("undelivered: %+v", got)
	}
	if got := decode[purged](t, ctl("purge", "--agent", "echo", "--undelivered", "-o", "json")); got.Messages != 1 ||
		count("webhook_deliveries")+count("replies") != 0 {
		t.Errorf("undelivered, and said to go: %+v", got)
	}
	for _, args := range [][]string{{}, {"--conversation", "main"}, {"--notes"}, {"--older-than", "0"},
		{"--agent", "echo", "--conversation", "main", "--notes"}} {
		if got := ctl(append([]string{"purge"}, args...)...); got.code != 2 {
			t.Errorf("purge %v: %+v", args, got)
		}
	}
}
