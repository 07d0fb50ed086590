package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// TestRowRules calls the check functions of the tables with valid rows, and with rows that break one
// rule each.
func TestRowRules(t *testing.T) {
	h := newEnv(t)
	const at, none = "timestamptz '2026-01-01'", "null"
	for function, c := range map[string]struct {
		names []string
		good  []string
		rows  map[bool][]string // changes to the valid row, by expected result
	}{
		"lease_holds": {
			[]string{"token", "grant_id", "turn_id", "granted_at", "lease_until", "failures"},
			[]string{"7", "gen_random_uuid()", "1", at, at + "+interval'1s'", "0"},
			map[bool][]string{
				true: {"token=0", "failures=1", "grant_id=null turn_id=null granted_at=null lease_until=null"},
				false: {
					"token=-1", "failures=-1", "grant_id=null", "turn_id=null", "granted_at=null", "lease_until=null",
					"lease_until=" + at,
					"grant_id=null turn_id=null granted_at=null", "grant_id=null turn_id=null lease_until=null",
					"grant_id=null granted_at=null lease_until=null",
				},
			},
		},
		"turn_holds": {
			[]string{"attempt", "state", "stop_reason", "ended_at", "grant_id", "lease_until"},
			[]string{"1", "'running'", none, none, "gen_random_uuid()", at},
			map[bool][]string{
				true: {
					"state='queued' grant_id=null lease_until=null", "state='waiting' grant_id=null lease_until=null",
					"state='succeeded' stop_reason='none' ended_at=" + at,
					"state='degraded' stop_reason='max_rounds' ended_at=" + at,
					"state='failed' stop_reason='inference_error' ended_at=" + at,
					"state='cancelled' stop_reason='cancelled' ended_at=" + at,
					"state='degraded' stop_reason='max_duration' ended_at=" + at,
					"state='degraded' stop_reason='max_tool_calls' ended_at=" + at,
					"state='degraded' stop_reason='budget' ended_at=" + at,
					"state='degraded' stop_reason='worker_lost' ended_at=" + at,
				},
				false: {
					"attempt=0", "state='done'", "state='done' stop_reason='none' ended_at=" + at, "grant_id=null",
					"lease_until=null",
					"stop_reason='none'", "stop_reason='none' ended_at=" + at, "state='queued' stop_reason='none'",
					"ended_at=" + at,
					"state='queued' ended_at=" + at, "state='waiting' stop_reason='none' ended_at=" + at,
					"state='queued' stop_reason='none' ended_at=" + at,
					"state='succeeded'", "state='succeeded' stop_reason='none'", "state='succeeded' ended_at=" + at,
					"state='degraded'", "state='failed'",
					"state='cancelled'", "state='succeeded' stop_reason='why' ended_at=" + at,
				},
			},
		},
		"call_holds": {
			[]string{"ordinal", "wire_id", "effect", "state", "nonce", "ended_at", "duration_ms"},
			[]string{"1", "'w'", "'once'", "'planned'", "''", none, none},
			map[bool][]string{
				true: {
					"effect='none'", "effect='keyed'", "state='running'", "state='started' nonce='n'", "duration_ms=0",
					"duration_ms=5",
					"state='succeeded' ended_at=" + at, "state='failed' ended_at=" + at,
					"state='skipped' ended_at=" + at,
					"state='denied' ended_at=" + at, "state='unknown' ended_at=" + at,
					"state='cancelled' ended_at=" + at,
				},
				false: {
					"ordinal=0", "wire_id=''", "effect='twice'", "state='done'", "state='done' ended_at=" + at,
					"state='started'", "ended_at=" + at,
					"state='running' ended_at=" + at, "state='started' nonce='n' ended_at=" + at, "state='succeeded'",
					"state='failed'", "state='skipped'",
					"state='denied'", "state='unknown'", "state='cancelled'", "duration_ms=-1",
				},
			},
		},
	} {
		for holds, rows := range c.rows {
			for _, row := range append(rows, "")[:len(rows)+map[bool]int{true: 1}[holds]] {
				values := append([]string(nil), c.good...)
				for _, change := range splitChanges(row) {
					name, value, _ := strings.Cut(change, "=")
					for i := range c.names {
						if c.names[i] == name {
							values[i] = value
						}
					}
				}
				call := fmt.Sprintf("select turnkeeper.%s(%s)", function, strings.Join(values, ", "))
				if got := storagetest.One[bool](h, call); got != holds {
					t.Errorf("%s: %q holds: %t", function, row, got)
				}
			}
		}
	}
}

// splitChanges splits changes such as "a=1 b='x y'" before each name.
func splitChanges(row string) (changes []string) {
	for _, word := range strings.Split(row, " ") {
		name, _, is := strings.Cut(word, "=")
		if is && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == "" || len(changes) == 0 {
			changes = append(changes, word)
			continue
		}
		changes[len(changes)-1] += " " + word
	}
	return changes
}

// TestTablesKeepTheirRules writes a row to each table that breaks a rule.
func TestTablesKeepTheirRules(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
	for _, sql := range []string{
		"update turnkeeper.turns set attempt = 0",
		"update turnkeeper.messages set state = 'waiting', in_queue = false",
		"insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash) select turn_id, round, ordinal, 2, effect, 1, 1, 'n', 'w', '', '', '' from turnkeeper.calls",
	} {
		if _, err := h.Pool().Exec(t.Context(), sql); err == nil {
			t.Errorf("done: %s", sql)
		}
	}
}

// TestAGrantChangesNoIndex checks that no index of messages depends on a column that a grant writes: Postgres then
// writes only the new version of the row.
func TestAGrantChangesNoIndex(t *testing.T) {
	h := newEnv(t)
	h.Submit("desk", "c", "x")
	const row = "select to_jsonb(m) from turnkeeper.messages m"
	before := storagetest.One[map[string]any](h, row)
	h.Dispatch("worker-1")
	written := map[string]bool{}
	for column, value := range storagetest.One[map[string]any](h, row) {
		written[column] = value != before[column]
	}
	indexed := storagetest.One[[]string](h, `select array_agg(distinct a.attname::text)
		from pg_depend d join pg_index i on i.indexrelid = d.objid join pg_attribute a on (a.attrelid, a.attnum) = (d.refobjid, d.refobjsubid)
		where d.classid = 'pg_class'::regclass and d.refobjid = 'turnkeeper.messages'::regclass`)
	if !written["state"] || !slices.Contains(indexed, "closed_at") {
		t.Fatalf("the grant writes %v, and indexes depend on %q", written, indexed)
	}
	for _, column := range indexed {
		if written[column] {
			t.Errorf("an index depends on %s, which a grant writes", column)
		}
	}
}
