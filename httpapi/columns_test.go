package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

// scatter sets each time, number and free text in the tables to a unique value, also where it was null, if the checks
// of the table allow that. A field that shows the wrong column then differs in every row.
const scatter = `do $$
declare
    c record;
    v_value text;
    v_row constant text := '(select ctid as at, row_number() over (order by ctid) as n from turnkeeper.%1$I) r where r.at = t.ctid';
begin
    set local session_replication_role = replica;
    for c in
        select a.attrelid::regclass::text as place, r.relname as tab, a.attname as col, a.attnum as num, a.atttypid::regtype::text as typ
        from pg_attribute a join pg_class r on r.oid = a.attrelid
        where r.relnamespace = 'turnkeeper'::regnamespace and r.relkind = 'r' and a.attnum > 0 and not a.attisdropped
            and a.attgenerated = '' and a.attidentity = '' and r.relname not in ('request_parts', 'journal')
            and r.relname !~ '^(river_|schema_migrations|settings|api_tokens|page_sessions|definitions)'
            and a.attname !~ '(^|_)(id|agent|name|conversation|lane|state|kind|trigger|webhook|round|ordinal|n)$'
            and a.attname !~ '(^|_)(by|level|resume|cron|zone|model|outcome|hash|effect|origin)$'
            and a.attname not in ('grant_id', 'active', 'seq', 'at', 'code')
            and not exists (select from pg_index i where i.indrelid = r.oid and i.indisunique and a.attnum = any(i.indkey) and i.indpred is null)
    loop
        v_value := case
            when c.typ = 'timestamp with time zone' then 'timestamptz ''2030-01-01'' + (r.n * 1000 + %2$s) * interval ''1 second'''
            when c.typ in ('integer', 'bigint') then 'r.n * 1000 + %2$s'
            when c.typ = 'text' and c.col in ('arguments', 'schema', 'answer', 'edited') then '''{"%3$s":'' || r.n || ''}'''
            when c.typ = 'text' then '''%3$s-'' || r.n'
        end;
        continue when v_value is null;
        for v_only in 0..1 loop -- all rows, or those that have a value
            begin
                execute format('update turnkeeper.%1$I t set %3$I = ' || v_value || ' from ' || v_row
                    || case v_only when 1 then ' and t.%3$I is not null' else '' end, c.tab, c.num, c.col);
                exit;
            exception when check_violation or unique_violation or not_null_violation then
                null;
            end;
        end loop;
    end loop;
end $$`

// A source is where the entries of a list come from.
type source struct {
	path  string
	items string // the field of the entries; empty: items
	table string // of the entries
	key   string // an expression of the table that equals the field id of an entry
	id    string // that field
	// of a field that is not its column: an expression of the table t; empty: it is not compared here
	from map[string]string
}

// Expressions of the tables, in a row t, for a column %s.
const (
	turnOf = "(select x.%s from turnkeeper.turns x where x.id = t.turn_id)"
	pushed = `coalesce((select to_jsonb(r) from turnkeeper.replies r where r.id = t.reply_id),
		(select to_jsonb(x) || to_jsonb(a) || jsonb_build_object('created_at', a.opened_at, 'outcome', null)
		from turnkeeper.asks a join turnkeeper.turns x on x.id = a.turn_id where a.id = t.ask_id)) ->> '%s'`
	agentOf = "(select x.%s from turnkeeper.agents x where x.name = t.agent)"

	changes = "" // with the time
	other   = "" // not of the row of the entry: other tests check it
)

func of(format, column string) string { return "(" + fmt.Sprintf(format, column) + ")" }

var sources = map[string]source{
	"messages": {path: "/v1/messages", table: "messages", key: "id", id: "id", from: map[string]string{
		"user": "user_name", "counted_attempts": "faults", "waits": other, "waits_for_models": other,
		"outcome": "case when t.closed_at is not null then " + of(turnOf, "state") + " end",
	}},
	"turns": {path: "/v1/turns", table: "turns_now", key: "id", id: "id", from: map[string]string{
		"user": "user_name", "inference_round_count": "inference_rounds", "charged_round_count": "charged_rounds",
		"dispatch_count":           "dispatches",
		"executed_tool_call_count": "executed_calls", "lost_worker_count": "losses", "last_event_seq": "last_seq",
		"continuation_stop_reason": "stop_reason",
		"tokens": `jsonb_build_object('input_tokens', input_tokens, 'output_tokens', output_tokens, 'cached_tokens', cached_tokens,
			'cache_write_tokens', cache_write_tokens, 'reasoning_tokens', reasoning_tokens, 'total_tokens', input_tokens + output_tokens, 'estimated', usage_estimated)`,
		"turn_duration_ms": `trunc(extract(epoch from
			case when ended_at > created_at then ended_at - created_at when ended_at is not null then interval '0' end) * 1000)::bigint`,
		"under_way": other, "waits": other, "worker_silence": changes,
	}},
	"asks": {path: "/v1/asks", table: "asks", key: "id", id: "id", from: map[string]string{
		"agent": of(turnOf, "agent"), "user": of(turnOf, "user_name"), "conversation": of(turnOf, "conversation"),
		"message_id": of(turnOf, "message_id"),
		"hash":       "args_hash", "call": "'round-' || round || '-tool-' || ordinal",
		"edited_arguments": "edited::jsonb", "arguments": "arguments::jsonb",
		"schema": "schema::jsonb", "answer": "answer::jsonb", "call_state": other, "not_run": other, "path": other,
	}},
	"outbox": {path: "/v1/outbox", table: "replies", key: "id", id: "id", from: map[string]string{"user": "user_name"}},
	"lanes": {path: "/v1/lanes", table: "leases", key: "lane", id: "lane", from: map[string]string{
		"held": "grant_id is not null", "lease_remaining_ms": changes, "worker_silence": changes, "waits": other,
		"waits_outside":    other,
		"waiting_messages": other, "turn_id": other, "turn_state": other, "worker_id": other,
	}},
	"deliveries": {path: "/v1/webhooks/hook/deliveries", table: "webhook_deliveries", key: "id", id: "id",
		from: map[string]string{
			"agent": of(pushed, "agent"), "user": of(pushed, "user_name"), "conversation": of(pushed, "conversation"),
			"outcome":    of(pushed, "outcome"),
			"message_id": of(pushed, "message_id"), "turn_id": of(pushed, "turn_id"), "written_at": of(pushed,
				"created_at"),
			"first_attempt_at": "first_at", "last_attempt_at": "last_at", "sending": "claim is not null",
			"webhook_id": "coalesce('reply_' || t.reply_id, 'ask_' || t.ask_id)",
		}},
	"schedules": {path: "/v1/schedules", table: "schedules", key: "agent", id: "agent", from: map[string]string{
		"agent_retired": of(agentOf, "retired_at") + " is not null", "cron": "coalesce(cron_override, cron)",
		"cron_of_file": "cron",
		"next_due":     other,
	}},
	"webhooks": {path: "/v1/webhooks", table: "webhooks", key: "name", id: "name", from: map[string]string{
		"last_failure_at": "failed_at", "last_success_at": "succeeded_at", "dead": other, "pending": other,
		"sending":           other,
		"oldest_pending_ms": changes, "served": changes, "state": changes,
	}},
	"models": {path: "/v1/model-health", table: "model_health", key: "model", id: "model", from: map[string]string{
		"next_try_at": "until", "agents": other, "needed_by": other, "probe_turn_id": other, "state": other,
	}},
	"levels": {path: "/v1/levels", items: "agents", table: "pinned_levels", key: "agent", id: "agent",
		from: map[string]string{
			"token_limit": of(agentOf, "day_tokens"), "call_limit": of(agentOf, "day_calls"),
			"pin":    "jsonb_build_object('agent', agent, 'level', level, 'by', pinned_by, 'at', pinned_at, 'until', until, 'reason', reason)",
			"tokens": other, "calls": other, "effects": other, "held_messages": other, "left_percent": other,
			"skipped_schedules": other, "next_day_at": changes,
		}},
	"workers": {path: "/v1/workers", table: "worker_heartbeat", key: "worker_id", id: "worker_id",
		from: map[string]string{
			"last_heartbeat_at": "beat_at", "takeover_after_ms": "(extract(epoch from takeover_after) * 1000)::bigint",
			"silent_ms": changes, "state": changes,
		}},
	"grants of a turn": {path: "/v1/turns/1", items: "dispatches", table: "ended_grants", key: "grant_id",
		id: "grant_id", from: map[string]string{}},
	"outputs of a turn": {path: "/v1/turns/1", items: "outputs", table: "outputs", key: "id", id: "id",
		from: map[string]string{
			"tool_call": "'round-' || round || '-tool-' || ordinal",
		}},
	"agents": {path: "/v1/agents", table: "agents", key: "name", id: "name", from: map[string]string{
		"lane": "case when lane_per_conversation then 'conversation' else 'agent' end", "left_waiting": other,
		"paused_schedules": other,
	}},
}

// TestFieldsShowTheirColumns compares each field of each entry of the lists with the column of its name, or with the
// expression that says where it comes from. A field with neither fails.
func TestFieldsShowTheirColumns(t *testing.T) {
	w := newWorld(t)
	w.HeartBeat("worker-1", 3, time.Minute)
	w.Exec(scatter)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		s := sources[name]
		page := decode[map[string]json.RawMessage](t, w.call(w.bearer("all"), "GET", s.path, ""))
		items := s.items
		if items == "" {
			items = "items"
		}
		var entries []map[string]any
		decoder := json.NewDecoder(bytes.NewReader(page[items]))
		decoder.UseNumber()
		if err := decoder.Decode(&entries); err != nil || len(entries) == 0 {
			t.Errorf("%s: %d entries, error %v", name, len(entries), err)
			continue
		}
		wrong := map[string]string{}
		for _, e := range entries {
			w.compareColumns(s, e, wrong)
		}
		for _, field := range slices.Sorted(maps.Keys(wrong)) {
			t.Errorf("%s: %s: %s", name, field, wrong[field])
		}
	}
}

// compareColumns notes the wrong fields of an entry.
func (w *world) compareColumns(s source, entry map[string]any, wrong map[string]string) {
	columns := "t.*"
	for field, expression := range s.from {
		if expression != "" {
			columns += fmt.Sprintf(", (%s) as %q", expression, "="+field)
		}
	}
	const rows = "select coalesce((select row_to_json(x)::text from (select %s from turnkeeper.%s t where t.%s::text = $1) x), '')"
	text := storagetest.One[string](w, fmt.Sprintf(rows, columns, s.table, s.key), fmt.Sprint(entry[s.id]))
	if text == "" {
		return // such as a model that has never failed
	}
	var row map[string]any
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&row); err != nil {
		w.t.Fatal(err)
	}
	for field, got := range entry {
		expression, derived := s.from[field]
		if derived && expression == "" {
			continue
		}
		column := field
		if derived {
			column = "=" + field
		}
		want, ok := row[column]
		if !ok {
			wrong[field] = fmt.Sprintf("no column has this name: say where %v comes from", got)
		} else if shown(got) != shown(want) {
			wrong[field] = fmt.Sprintf("%v, want %v", shown(got), shown(want))
		}
	}
}

// shown returns a value of JSON in the form in which it is compared: null is an empty text, and times are in
// microseconds.
func shown(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return strconv.FormatInt(at.UnixMicro(), 10)
		}
		return v
	case map[string]any:
		text := ""
		for _, field := range slices.Sorted(maps.Keys(v)) {
			text += field + "=" + shown(v[field]) + " "
		}
		return text
	}
	text, _ := json.Marshal(value)
	return string(text)
}
