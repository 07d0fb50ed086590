package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/cli/shell"
	"turnkeeper/storage/storagetest"
)

// A rich is a database with a row of every kind and state, whose numbers, texts and times all differ.
type rich struct {
	*stage
	env  map[string]string
	base time.Time // the time of the commands
}

func newRich(t *testing.T) *rich {
	t.Helper()
	db := storagetest.New(t) // the order of rows, by which some get their numbers, depends on those deleted before
	env := somewhereIn(t, db)
	r := &rich{stage: &stage{DB: db, t: t}, env: env}
	dir := env["TURNKEEPER_AGENTS_DIR"]
	r.registerFile(dir, "spare",
		"---\nmodel: demo/script\ntools: [clock, read_file]\nmcp_servers: {files: [read]}\n---\nYou answer.\n",
		"demo/script", "test/two")
	if err := os.WriteFile(env["TURNKEEPER_CONFIG"], []byte("mcp_servers: {files: {command: [files]}}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, ending := range endings {
		ending.play(r.stage)
	}
	populate(t, db)
	db.Exec("set local session_replication_role = replica; " + strings.Join(richRows,
		";\n")) // without triggers: they refuse changes of what is closed
	r.shift()
	return r
}

// richRows give each row its own numbers, and add what the endings and populate lack.
var richRows = []string{
	`update turnkeeper.turns set input_tokens = 10000 + 10 * id, output_tokens = 20000 + 10 * id, cached_tokens = 1000 + id,
		cache_write_tokens = 3000 + id, reasoning_tokens = 2000 + id,
		inference_rounds = 100 + id, charged_rounds = 200 + id, executed_calls = 300 + id, dispatches = 1 + id % 4, losses = id % 3,
			attempt = 1 + id % 5,
		error_class = case state when 'failed' then 'transport' end, error = case state when 'failed' then 'error ' || id end,
		worker_id = case state when 'running' then 'host-1' end, inner_dialogue = case state when 'cancelled' then 'thought ' || id end
		where conversation <> 'main'`,
	`update turnkeeper.turns set inference_rounds = 3, charged_rounds = 2 where id = 1`,
	`update turnkeeper.messages set body = 'body ' || id, priority = id % 7, attempts = 1 + id % 4,
		last_error = case state when 'failed' then 'last error ' || id end,
		trace_parent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
			turn_id = (select max(t.id) from turnkeeper.turns t where t.message_id = messages.id)
		where conversation <> 'main'`,
	`update turnkeeper.replies set body = 'reply ' || id,
		labels = case id % 3 when 0 then '{private}' when 1 then '{private,untrusted}' else '{}' end::text[],
		error_class = case outcome when 'failed' then 'transport' end where conversation <> 'main'`,
	`update turnkeeper.asks set tool = 'tool' || id, arguments = '{"n":' || id || '}', args_hash = 'hash' || id, rule = 'rule ' || id,
		reason = 'reason ' || id,
		audience = case id % 2 when 0 then '{ann,bob}' else '{}' end::text[], hold = id % 2 = 0,
			kind = case when n = 6 then 'reply' else kind end,
		channel = case when closed_at is not null then 'page' end, comment = case state when 'denied' then 'comment ' || id end`,
	`update turnkeeper.webhook_deliveries set attempts = 1 + id % 9,
		status = case state when 'dead' then 500 + id % 10 when 'delivered' then 200 end,
		error = case state when 'dead' then 'delivery error ' || id end, duration_ms = 100 + id, redelivered = id % 3, worker_id = 'host-1'`,
	`insert into turnkeeper.webhooks (name, origin, agents, sub_agents, asks, not_before, paused_at, paused_reason, succeeded_at, failed_at,
		last_error) values
		('paused', 'https://paused.example', '{echo,watcher}', true, false, now(), now(), 'repairs', now(), now(), 'HTTP 503'),
		('idle', 'https://idle.example', null, false, true, null, null, null, null, null, null)`,
	`insert into turnkeeper.api_tokens (name, sha256, scopes, agents, user_name, expires_at, last_used_at) values
		('first', repeat('1', 64), '{read,operate}', '{echo,watcher}', '', now(), now()), ('annas', repeat('2', 64), '{send}', null, 'anna',
			null, null)`,
	`update turnkeeper.schedules set next_due = now(), last_slot = now(), last_error = 'too early', skipped_slot = now(),
		skipped_why = 'paused', skipped = 4`,
	`insert into turnkeeper.schedules (agent, name, cron, cron_override, time_zone, conversation, message, active, paused_at, paused_reason,
		next_due) values
		('echo', 'nightly', '0 3 * * *', '0 4 * * *', 'Europe/Berlin', 'night', 'Sleep.', true, now(), 'holidays', now()),
		('echo', 'gone', '0 5 * * *', null, 'UTC', 'old', 'Old.', false, null, null, null)`,
	`insert into turnkeeper.agents (name, definition_hash, description, models, retired_at) values ('old', repeat('a', 64), 'Rests.',
		'{test/three}', now())`,
	`insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error) values
		('test/two', now(), now(), 3, 'auth', 'said no'), ('test/four', null, null, 0, 'overloaded', 'busy')`,
	`insert into turnkeeper.pinned_levels (agent, level, pinned_by, until, reason) values ('watcher', 'low', 'ada', now(), 'a test'), ('',
		'normal', 'bob', null, '')`,
	`insert into turnkeeper.spend (scope, period, tokens, calls, level) values ('agent:echo', to_char(now() at time zone 'UTC',
		'YYYY-MM-DD'), 901, 902, 'low')`,
	`update turnkeeper.agents set day_tokens = 1000, day_calls = 2000, max_running = 7, give_up_after = '3 h' where name = 'echo'`,
	`insert into turnkeeper.set_aside (kind, id, failures, next_try, code, error) values
		('message', '31', 5, now(), '22P02', 'no number'), ('call', '3/1/2', 6, now(), '', 'gone'), ('tick', '', 7, now(), '42P01', 'no table'),
		('schedule', 'echo/nightly', 8, now(), '23514', 'a check'), ('delivery', '4', 9, now(), '23503', 'no reply')`,
	`insert into turnkeeper.mcp_tools (server, tool, pinned_description, pinned_schema, pinned_read_only, pinned_idempotent, pinned_hash,
		description, schema,
		read_only, idempotent, hash, gone) values
		('files', 'read', 'Reads.', '{}', true, false, repeat('a', 64), 'Reads.', '{}', true, false, repeat('a', 64), false),
		('files', 'write', 'Writes.', '{}', false, true, repeat('b', 64), 'Writes all.', '{"type":"object"}', false, false, repeat('c', 64),
			false),
		('mail', 'send', 'Sends.', '{}', false, false, repeat('d', 64), 'Sends.', '{}', false, false, repeat('d', 64), true)`,
	`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256,
		incomplete, description, retrieved)
		values ('k3v9x2m4q7ab', 60, 1, 1, 'text/plain', 'the whole text', 14, 15, 13, 4, repeat('e', 64), true, 'a file', 2)`,
	`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, bytes, size_bytes, raw_bytes, chars, tokens, sha256,
		incomplete, description, retrieved)
		values ('p3v9x2m4q7ab', 59, 2, 1, 'image/png', '\x0102', 2, 2, 0, 0, repeat('f', 64), false, 'a picture', 1)`,
	`insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, roles, slots, takeover_after, beat_at, stopped_at, refused) values
		('alive', 'one', 11, 'v1', '{api,scheduler,webhooks,worker}', 12, '1 h', now() + interval '3 days', null, '[]'),
		('stopped', 'two', 22, 'v2', '{worker}', 23, '20 s', now(), now(), '[]'), ('silent', 'three', 33, 'v3', '{api}', 0, '30 s',
			now() - interval '9 days', null, '[]')`,
	`insert into turnkeeper.notes (agent, name, content) values ('echo', 'n', 'x')`,
	`insert into turnkeeper.journal (turn_id, n, seq, last_seq, at, types, rounds, blocks, data) values (60, 1, 1, 3, now(),
		'{turn_start,round_start,turn_error}', '{0,1,0}', '{0,0,0}', array['{"agent":"watcher","message_id":59,"attempt":2}', '{"of":3}',
			'{"state":"cancelled","stop_reason":"cancelled","rounds":1}'])`,
	`update turnkeeper.turns set last_seq = 3 where id = 60`,
	`insert into turnkeeper.retries (message_id, retried_as) select min(id),
		max(id) from turnkeeper.messages where state = 'failed' and agent = 'watcher'`,
	`update turnkeeper.settings set poll_interval = '7 s', max_dispatches_per_tick = 1234, last_tick_at = now()`,
}

// shift gives each row of each column its own time: days that number the column, and minutes that number the row. What
// is due, expires or is held until then lies in the future.
func (r *rich) shift() {
	r.base = storagetest.One[time.Time](r.DB, "select date_trunc('minute', clock_timestamp())").UTC()
	r.Exec(fmt.Sprintf(`do $$ declare c record; ahead text; begin
		set session_replication_role = replica;
		for c in select k.table_name as of, k.column_name as name, 120 - row_number() over
				(order by k.column_name ~ '^(accepted|created|opened|asked|granted|started|spawned|added|pinned|first|logged|down)' desc,
					k.table_name, k.column_name) as i,
				(select string_agg(quote_ident(a.attname),
					',') from pg_index x join pg_attribute a on a.attrelid = x.indrelid and a.attnum = any(x.indkey)
					where x.indrelid = ('turnkeeper.' || k.table_name)::regclass and x.indisprimary) as key
			from information_schema.columns k join information_schema.tables t using (table_schema, table_name)
			where k.table_schema = 'turnkeeper' and t.table_type = 'BASE TABLE' and k.data_type = 'timestamp with time zone' and k.is_generated = 'NEVER'
				and k.table_name not like 'river%%' and k.column_name not in ('beat_at', 'slot', 'last_slot', 'skipped_slot', 'last_tick_at') loop
			ahead := case when c.name ~ 'until|not_before|deadline|expires|next_due|next_try|look_at' then '+' else '-' end;
			execute format('update turnkeeper.%%1$I t set %%2$I = timestamptz %%3$L %%4$s make_interval(days => %%5$s, hours => 6, mins => o.nth::int)
				from (select %%6$s, row_number() over (order by %%6$s) as nth from turnkeeper.%%1$I) o where %%7$s and t.%%2$I is not null',
				c.of, c.name, '%s', ahead, c.i + 3, c.key, (select string_agg(format('t.%%1$s = o.%%1$s', x),
					' and ') from unnest(string_to_array(c.key, ',')) x));
		end loop;
		set session_replication_role = origin;
	end $$`, r.base.Format(time.RFC3339)))
}

// run runs a command at the base time.
func (r *rich) run(p shell.Program, args ...string) ran {
	r.t.Helper()
	return runWith(r.t.Context(), p, r.env, "", func(e *shell.Environment) {
		e.Now, e.Zone = func() time.Time { return r.base }, time.UTC
	}, args...)
}

var (
	jsonTimes = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	textTimes = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?`)
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	// by the database's clock
	running = regexp.MustCompile(
		`("(?:silent|lease_remaining|oldest_due|oldest_pending)_ms": )-?\d+|(held, )\d+\S+( left)`)
	today      = regexp.MustCompile(`\d\d:\d\d:\d\d|\b(in )?\d+ (s|min)( ago)?\b`)
	traceIDs   = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	nextTimes  = regexp.MustCompile(`(next times \([^)]*\): ).*`)
	wideSpaces = regexp.MustCompile(`  +`)
)

// same replaces what differs between two runs of the test: times become their distance from the base, in days and
// minutes.
func (r *rich) same(text string) string {
	distance := func(layout string) func(string) string {
		return func(found string) string {
			at, err := time.Parse(layout, found[:min(len(found), len(layout))])
			if layout == time.RFC3339Nano {
				at, err = time.Parse(layout, found)
			}
			if err != nil {
				return found
			}
			d := at.Sub(r.base)
			minutes := int(d.Abs().Round(time.Minute)/time.Minute) - 6*60
			switch {
			case d.Abs() < 48*time.Hour:
				return "<now>"
			case minutes%(24*60) > 12*60: // by the database's clock, or of a schedule
				return "<a time>"
			case d < 0:
				return fmt.Sprintf("<-%dd/%d>", minutes/(24*60), minutes%(24*60))
			}
			return fmt.Sprintf("<+%dd/%d>", minutes/(24*60), minutes%(24*60))
		}
	}
	text = nextTimes.ReplaceAllString(text, "$1<times>") // with their days of the week
	text = jsonTimes.ReplaceAllStringFunc(text, distance(time.RFC3339Nano))
	text = textTimes.ReplaceAllStringFunc(text, distance("2006-01-02 15:04"))
	text = uuids.ReplaceAllString(text, "<uuid>")
	text = running.ReplaceAllString(text, "$1$2<running>$3")
	text = traceIDs.ReplaceAllString(text, "<trace>")
	text = strings.ReplaceAll(text, "(now)", "(<now>)") // less than a second ago
	text = today.ReplaceAllString(text, "<now>")
	for name, value := range map[string]string{"<agents>": r.env["TURNKEEPER_AGENTS_DIR"],
		"<config>": r.env["TURNKEEPER_CONFIG"],
		"<data>":   filepath.Dir(r.env["TURNKEEPER_DATA_DIR"])} {
		text = strings.ReplaceAll(text, value, name)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " ")
		lines[i] = line[:len(line)-len(trimmed)] + wideSpaces.ReplaceAllString(trimmed, "  ")
	}
	return strings.Join(lines, "\n")
}
