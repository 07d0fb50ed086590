package operate_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/storage/storagetest"
)

// A sqlBlock is a block of SQL in docs/sql.md.
type sqlBlock struct{ section, sql string }

func sqlBlocks(t *testing.T) (text string, all []sqlBlock) {
	t.Helper()
	raw, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, part := range regexp.MustCompile("(?ms)^## ([^\n]+)\n|^```sql\n(.*?)^```\n").FindAllStringSubmatch(
		string(raw), -1) {
		if part[1] != "" {
			section = part[1]
		} else {
			all = append(all, sqlBlock{section, part[2]})
		}
	}
	return string(raw), all
}

// isRead reports whether the block is a query for readers.
func (b sqlBlock) isRead() bool { return b.section == "One turn" || b.section == "Lists" }

// documented returns a database with the ids that docs/sql.md uses: message 120 with turn 17, which is degraded and
// had two workers; 121, failed; 122, running; 123, which waits behind it; 124, whose turn 20 waits for a detached call.
func documented(t *testing.T) *env {
	t.Helper()
	h := newFresh(t)
	h.Register("helper", true, turnkeeper.Schedule{Agent: "helper", Name: "morning", Cron: "0 7 * * *", TimeZone: "UTC",
		Conversation: "main", Message: "Good morning."})
	h.Exec(
		`alter table turnkeeper.messages alter column id restart with 120; alter table turnkeeper.turns alter column id restart with 17`)
	begin := func(conversation string) *storagetest.Dispatch {
		h.Submit("helper", conversation, "How much is in stock?")
		return h.Dispatch("worker-1")[0]
	}
	first, second := storagetest.Key(1, 1), storagetest.Key(1, 2)

	d := begin("main")
	answer := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectOnce)
	answer.Usage = turnkeeper.Usage{InputTokens: 900, OutputTokens: 40}
	read := storagetest.Result(first, "", turnkeeper.CallSucceeded, "12 pieces")
	read.Duration = 30 * time.Millisecond
	read.Output = &turnkeeper.Output{ID: "result-17", MediaType: "text/plain", Text: strings.Repeat("x",
		outputs.ChunkBytes+1), SizeBytes: outputs.ChunkBytes + 1}
	d.Write(t, turnlog.Entry{
		Failed: []turnlog.FailedAttempt{{Round: 1, Attempt: 1, Provider: "script", Model: "m", Class: "overloaded",
			Error: "HTTP 503", Usage: turnkeeper.Usage{InputTokens: 900}}},
		Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
	})
	d.Write(t, turnlog.Entry{Round: answer, Events: storagetest.Events(turnkeeper.EventRoundStop)})
	edited := storagetest.Start(second, "n", 1, turnkeeper.EffectOnce)
	edited.RunArgs = `{"n":90}`
	d.Write(t, turnlog.Entry{
		Results: []turnlog.CallResult{read}, Starts: []turnlog.CallStart{edited},
		Events: storagetest.Events(turnkeeper.EventToolResult, turnkeeper.EventToolStarted),
	})
	d = h.Again(d, "worker-2")
	d.Write(t, turnlog.Entry{Verdicts: []turnlog.CallResult{storagetest.Result(second, "n", turnkeeper.CallUnknown,
		"outcome unknown")}})
	h.Exec("select turnkeeper.late_result(17, null, 1, 2, 'n', 'succeeded', 'booked', 'booked')")
	end := func(d *storagetest.Dispatch, e turnlog.Entry, as turnlog.Consequence) {
		if err := d.Append(t.Context(), e, as); err != nil {
			t.Fatal(err)
		}
	}
	end(d, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnComplete), Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError, ErrorClass: "overloaded",
		Error: "HTTP 503", Reply: "12 pieces.",
	}}, storagetest.Answered)

	end(begin("b"), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth", Error: "HTTP 401",
		Reply: "This failed.",
	}}, turnlog.Consequence{Message: turnkeeper.MessageFailed, Log: "finished"})
	h.Exec(
		"update turnkeeper.messages set accepted_at = accepted_at - interval '1 year', closed_at = closed_at - interval '1 year' where id = 121")

	begin("c")
	h.Submit("helper", "c", "And tomorrow?")

	d = begin("d")
	d.Write(t, turnlog.Entry{
		Round: storagetest.Round(1, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{{Key: first, Nonce: "far", Attempt: 1, Effect: turnkeeper.EffectOnce,
			Detached: time.Hour}},
		Results: []turnlog.CallResult{{Key: first, Nonce: "far", State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: "later"}},
	})
	d.Wait(t)
	return h
}

// run runs a block, and fails if a query in it returns no row, or a column without a value.
func run(t *testing.T, conn *pgconn.PgConn, sql string) {
	t.Helper()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s\n%v", sql, err)
	}
	for _, r := range results {
		if r.CommandTag.Select() && len(r.Rows) == 0 {
			t.Errorf("no row:\n%s", sql)
		}
		for i, f := range r.FieldDescriptions {
			empty := true
			for _, row := range r.Rows {
				empty = empty && row[i] == nil
			}
			if empty && len(r.Rows) > 0 && f.DataTypeOID != 2278 { // void
				t.Errorf("no value of %s:\n%s", f.Name, sql)
			}
		}
	}
}

// TestSQLOfTheDocument runs all blocks of docs/sql.md, and the queries for readers as the role that it creates.
func TestSQLOfTheDocument(t *testing.T) {
	_, blocks := sqlBlocks(t)
	h := documented(t)
	conn, err := pgx.Connect(t.Context(), h.URL) // with the settings of any client
	if err != nil {
		t.Fatal(err)
	}
	// roles belong to the whole server
	role := storagetest.One[string](h, "select quote_ident(current_database() || '_reader')")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := conn.Exec(ctx, "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	for i, b := range blocks {
		if b.section == "Roles" {
			run(t, conn.PgConn(), strings.ReplaceAll(b.sql, "turnkeeper_reader", role))
			blocks[i].sql = ""
		}
	}
	read := 0
	for _, b := range blocks {
		if !b.isRead() {
			run(t, conn.PgConn(), b.sql)
			continue
		}
		read++
		run(t, conn.PgConn(), "begin read only; set local role "+role)
		run(t, conn.PgConn(), b.sql)
		run(t, conn.PgConn(), "rollback")
	}
	if read < 12 {
		t.Errorf("only %d queries for readers", read)
	}
	for what, sql := range map[string]string{
		"the reader has the message, and wrote its reply down": "select count(*) = 2 from order_replies where message_id in (120, 121)",
		"the position is that of the newest reply":             "select last_reply = (select max(reply_id) from order_replies) from reply_position",
		"the order names its message":                          "select count(*) = 1 from orders o join turnkeeper.messages m on m.id = o.message_id",
		"the message is cancelled":                             "select state = 'cancelled' from turnkeeper.messages where id = 123",
		"the turn is cancelled":                                "select state = 'cancelled' from turnkeeper.turns where id = 20",
		"the schedule has run":                                 "select count(*) = 1 from turnkeeper.messages where schedule = 'morning'",
		"the old message is purged":                            "select count(*) = 0 from turnkeeper.messages where id = 121",
	} {
		if !storagetest.One[bool](h, sql) {
			t.Errorf("not so: %s", what)
		}
	}
}

// TestColumnsOfTheDocument compares the table of columns in docs/sql.md with the database.
func TestColumnsOfTheDocument(t *testing.T) {
	text, _ := sqlBlocks(t)
	h := newEnv(t)
	_, table, _ := strings.Cut(text, "| --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	name, aside := regexp.MustCompile("`([^`]+)`"), regexp.MustCompile(`\([^)]*\)`)
	seen := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		relation := name.FindStringSubmatch(cells[1])[1]
		for _, column := range name.FindAllStringSubmatch(aside.ReplaceAllString(cells[3], ""), -1) {
			if column[1] == "output_chunks" || column[1] == "turns" {
				relation = column[1]
				continue
			}
			seen++
			if !storagetest.One[bool](h, `select exists (select from information_schema.columns
				where table_schema = 'turnkeeper' and table_name = $1 and column_name = $2)`, relation, column[1]) {
				t.Errorf("no column %s.%s", relation, column[1])
			}
		}
	}
	if seen < 100 {
		t.Errorf("found only %d columns", seen)
	}
}

// many copies turn 17 with all its rows 20,000 times, over half a year.
func (h *env) many() {
	h.T.Helper()
	h.Exec(`do $$ declare t text; columns text; "values" text; begin
		set local session_replication_role = replica; -- no triggers
		update turnkeeper.turns set created_at = created_at - interval '1 year'; -- their ids are the lowest
		for t in select c.table_name from information_schema.columns c join information_schema.tables b using (table_schema, table_name)
			where c.table_schema = 'turnkeeper' and b.table_type = 'BASE TABLE' and (c.column_name = 'turn_id' or (c.table_name, c.column_name) in (('turns', 'id'), ('output_chunks', 'output_id'))) loop
			select string_agg(quote_ident(column_name), ', '), string_agg(case
				when column_name in ('id', 'turn_id', 'message_id', 'token') and data_type = 'bigint' then format('%I + 1000 * i', column_name)
				when column_name in ('id', 'output_id', 'nonce') then format('%I || ''-'' || i', column_name)
				when data_type = 'uuid' then 'gen_random_uuid()'
				when column_name in ('dropped_at', 'slot') or column_name like '%expired_at' then 'null' when data_type like 'timestamp%' then format('now() - (20001 - i) * interval ''13 min''')
				else quote_ident(column_name) end, ', ') into columns, "values"
			from information_schema.columns where table_schema = 'turnkeeper' and table_name = t and is_generated = 'NEVER';
			execute format('insert into turnkeeper.%1$I (%2$s) overriding system value select %3$s from turnkeeper.%1$I, generate_series(1, 20000) i where %4$s',
				t, columns, "values", case t when 'turns' then 'id = 17' when 'output_chunks' then 'output_id = ''result-17''' else 'turn_id = 17' end);
		end loop;
	end $$`)
	h.Exec("vacuum analyze")
}

// TestPlansOfTheDocument explains the queries of docs/sql.md for readers beside 20,000 finished turns.
func TestPlansOfTheDocument(t *testing.T) {
	testrun.Slow(t)
	_, blocks := sqlBlocks(t)
	h := documented(t)
	h.many()
	conn, err := pgx.Connect(t.Context(), h.URL) // with the settings of any client
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, b := range blocks {
		if !b.isRead() && !strings.HasPrefix(b.sql, "select r.outcome") {
			continue
		}
		run(t, conn.PgConn(), b.sql)
		most := 30
		if b.section == "Lists" {
			most = 1000 // a day has 110 turns
		}
		plan := storagetest.Within(most, func() storagetest.Plan {
			var text string
			if err := conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+b.sql).Scan(&text); err != nil {
				t.Fatal(err)
			}
			return storagetest.ParsePlan(t, text)
		})
		plan.Walk(func(n storagetest.Plan) {
			if n.Type == "Seq Scan" {
				t.Errorf("scans %s:\n%s", n.Relation, b.sql)
			}
		})
		if got := plan.Pages(); got > most {
			t.Errorf("reads %d pages, %d are enough:\n%s", got, most, b.sql)
		} else {
			t.Logf("%d pages: %s", got, strings.SplitN(b.sql, "\n", 2)[0])
		}
	}
}
