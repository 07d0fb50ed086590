package operate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
)

// TestExtremesOfMessages writes, as the owner of the table, the lowest and the highest value that its rules allow in
// each column of a message. A tick grants what is due, and lists, explanations and checks read all. Each turn fails and
// waits again.
func TestExtremesOfMessages(t *testing.T) {
	h := newEnv(t)
	h.Register("wide", true)
	const low, high = "timestamptz '1970-01-01 00:00:00+00'", "timestamptz '2199-12-31 23:59:59.999999+00'"
	values := map[string][2]string{ // the first and the last allowed value; null: none is allowed beyond it
		"id": {"1", "4611686018427387903"}, "priority": {"-1000", "1000"}, "attempts": {"0", "999999"},
		"faults": {"0", "1000000"},
		"due_at": {low, high}, "accepted_at": {low, high}, "body": {"'x'", "repeat('x', 16777216)"},
		"idempotency_key": {"'k'", "repeat('k', 200)"},
		"conversation":    {"'c'", "repeat('c', 200)"}, "trace_parent": {"''", "repeat('0', 256)"},
		"turn_id":    {"-9223372036854775808", "9223372036854775807"},
		"last_error": {"''", "repeat('e', 1000000)"}, "sent_by": {"'role:a'", "'role:' || repeat('r', 295)"},
		"dropped_at": {low, high},
		"slot":       {low, high}, "schedule": {"'s'", "repeat('s', 200)"},
	}
	n := 0
	insert := func(column, value string) error {
		n++
		row := map[string]string{"agent": "'wide'", "conversation": fmt.Sprintf("'c%d'", n), "body": "'x'"}
		row[column] = value
		if column == "slot" || column == "schedule" {
			row["trigger"] = "'schedule'"
			for _, other := range []string{"slot", "schedule"} {
				if row[other] == "" {
					row[other] = map[string]string{"slot": "now()", "schedule": "'daily'"}[other]
				}
			}
		}
		var names, exprs []string
		for name, expr := range row {
			names, exprs = append(names, name), append(exprs, expr)
		}
		_, err := h.Pool().Exec(t.Context(), fmt.Sprintf(
			"insert into turnkeeper.messages (lane, %s) overriding system value values ('wide/' || %s, %s)",
			strings.Join(names, ", "), row["conversation"], strings.Join(exprs, ", ")))
		return err
	}
	h.Exec("alter table turnkeeper.messages alter column id restart with 1000")
	for column, limits := range values {
		for _, value := range limits {
			if err := insert(column, value); err != nil {
				t.Errorf("%s = %.60s: %v", column, value, err)
			}
		}
	}
	for _, row := range [][2]string{
		{"id", "0"}, {"id", "4611686018427387904"}, {"priority", "-1001"}, {"priority", "1001"}, {"attempts", "-1"},
		{"attempts", "1000000"},
		{"faults", "-1"}, {"faults", "1000001"}, {"due_at", low + " - interval '1 us'"},
		{"due_at", high + " + interval '1 us'"}, {"due_at", "'infinity'"},
		{"due_at", "'-infinity'"}, {"accepted_at", "'infinity'"}, {"accepted_at", "'-infinity'"},
		{"slot", "'infinity'"}, {"dropped_at", "'-infinity'"},
		{"body", "''"}, {"body", "repeat('x', 16777217)"}, {"idempotency_key", "''"},
		{"idempotency_key", "repeat('k', 201)"}, {"conversation", "''"},
		{"conversation", "repeat('c', 201)"}, {"trace_parent", "repeat('0', 257)"}, {"sent_by", "'ann'"},
		{"sent_by", "'role:' || repeat('r', 296)"},
		{"schedule", "''"}, {"slot", "null"}, {"schedule", "null"}, {"trigger", "'tick'"}, {"trigger", "'schedule'"},
		{"state", "'done'"}, {"state", "'succeeded'"},
		{"closed_at", "now()"}, {"agent", "'desk'"}, {"agent", "'wi/de'"}, {"agent", "repeat('a', 64)"},
		{"user_name", `E'a\u0001'`}, {"user_name", "repeat('u', 201)"}, {"failed_for", "interval '-1 s'"},
		{"failed_for", "interval '100001 days'"},
	} {
		if err := insert(row[0], row[1]); err == nil || !strings.Contains(err.Error(), "violates check constraint") {
			t.Errorf("%s = %.60s: %v", row[0], row[1], err)
		}
	}
	failed := 0
	for range 3 {
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			if _, _, err := tick.Snapshot(ctx, true); err != nil {
				return err
			}
			_, err := tick.SettleSpawned(ctx, true, 100)
			return err
		})
		for _, d := range h.Dispatch("w") {
			failed++
			retry := d.Record.Message.Attempts < 1_000_000
			o := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Retry: retry,
				Counted: true, Error: "no"}
			message := turnkeeper.MessageWaiting
			if !retry {
				o.Reply, message = "It failed.", turnkeeper.MessageFailed
			}
			if err := d.Append(t.Context(), turnlog.Entry{Outcome: &o}, turnlog.Consequence{Message: message,
				Log: "finished"}); err != nil {
				t.Errorf("message %d: %v", d.Record.Message.ID, err)
			}
		}
		h.Exec("update turnkeeper.leases set not_before = null where grant_id is null")
		if _, err := h.NextDue(t.Context(), h.Time()); err != nil {
			t.Error(err)
		}
	}
	if failed < 20 {
		t.Errorf("only %d turns ran", failed)
	}
	page, err := h.Messages(t.Context(), operate.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range page {
		if _, err := h.Message(t.Context(), m.ID); err != nil {
			t.Errorf("message %d: %v", m.ID, err)
		}
	}
	if _, err := h.Queue(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTimesOfTheScheduler writes infinite times into the columns of the tables that a tick reads.
func TestTimesOfTheScheduler(t *testing.T) {
	h := newEnv(t)
	h.Register("daily", false, turnkeeper.Schedule{Name: "morning", Cron: "0 8 * * *", TimeZone: "UTC", Message: "x"})
	d := h.Turn("x")
	if err := h.Beat(t.Context(), presence.Heartbeat{WorkerID: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	h.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		values ($1, 1, 1, 'question', 1, 'pay', '{}', 'h', '', 'why', '{}', true, now() + interval '1 day')`, int64(d.Grant.TurnID))
	rows, err := h.Pool().Query(t.Context(),
		`select format('update turnkeeper.%I set %I = ''%sinfinity''', c.relname, a.attname, sign),
			exists (select from pg_constraint k where k.conrelid = c.oid and k.conname = 'times_in_range' and a.attnum = any(k.conkey))
		from pg_class c join pg_attribute a on a.attrelid = c.oid, unnest('{"",-}'::text[]) sign
		where c.relnamespace = 'turnkeeper'::regnamespace and c.relname in ('messages', 'turns', 'leases', 'schedules', 'asks', 'settings', 'worker_heartbeat')
			and a.atttypid = 'timestamptz'::regtype and a.attgenerated = '' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	type write struct {
		SQL   string
		Ruled bool
	}
	writes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[write])
	if err != nil || len(writes) < 40 {
		t.Fatalf("%d writes, error %v", len(writes), err)
	}
	for _, w := range writes {
		if _, err := h.Pool().Exec(t.Context(), w.SQL); err == nil || !w.Ruled || !strings.Contains(err.Error(),
			"violates check constraint") {
			t.Errorf("%s: %v", w.SQL, err)
		}
	}
}
