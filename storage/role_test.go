package storage_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// A sender is a connection of a role with the rights that the README lists for a program that sends messages.
type sender struct {
	*testing.T
	conn *pgx.Conn
	name string
}

func (h *env) sender(suffix string) *sender {
	h.T.Helper()
	conn, err := pgx.Connect(h.T.Context(), storagetest.SenderURL(h.T, h.URL, suffix))
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _ = conn.Close(h.T.Context()) })
	return &sender{h.T.(*testing.T), conn, conn.Config().User}
}

// one queries one number.
func (s *sender) one(sql string, args ...any) (n int64) {
	s.Helper()
	if err := s.conn.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return n
}

// refused runs a statement, and returns its SQLSTATE and message, or "done".
func (s *sender) refused(sql string, args ...any) string {
	_, err := s.conn.Exec(s.Context(), sql, args...)
	if pg, is := errors.AsType[*pgconn.PgError](err); is {
		return pg.Code + " " + pg.Message
	}
	if err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return "done"
}

const (
	send   = "select turnkeeper.enqueue('clerk', 'Order 17.', idempotency_key => 'order-17')"
	denied = "42501 "
)

// TestARoleWithTheRightsOfTheREADME sends, repeats, changes and drops messages, and reads them and their replies. It
// gets nothing of another sender.
func TestARoleWithTheRightsOfTheREADME(t *testing.T) {
	h := newEnv(t)
	app, other := h.sender("_app"), h.sender("_other")
	h.Turn("x").Finish(t, "of the workers' role")
	first := app.one(send)
	if again := other.one(send); again != first {
		t.Errorf("a repeat by another role is %d, want %d", again, first)
	}
	if by := storagetest.One[string](h, "select sent_by from turnkeeper.messages where id = $1",
		first); by != "role:"+app.name {
		t.Errorf("it was sent by %s", by)
	}
	second := app.one(
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"Stop.","conversation":"c","idempotency_key":"k","priority":-5,` +
			`"trace_parent":null,"due_at":"2000-01-01T00:00:00Z"}')`)
	if n := app.one(
		"select count(*) from turnkeeper.my_messages where id = $1 and conversation = 'c' and priority = -5 and idempotency_key = 'k'", second); n != 1 {
		t.Error("the sender does not see what it sent")
	}
	for _, sql := range []string{"select turnkeeper.edit_message($1, 'mine')", "select turnkeeper.drop_message($1)"} {
		if got := other.refused(sql, first); !strings.HasPrefix(got, "TK013 you have sent no message") {
			t.Errorf("%s by another role: %s", sql, got)
		}
	}
	if n := other.one("select count(*) from turnkeeper.my_messages"); n != 0 {
		t.Errorf("another role sees %d messages", n)
	}
	app.one("select 1 from turnkeeper.edit_message($1, 'Order 18.')", first)
	app.one("select 1 from turnkeeper.edit_message($1, 'Order 19.')", first)
	if again := app.one(send); again != first {
		t.Error("after an edit, a repeat of the first body is another message")
	}
	if got := app.refused(strings.Replace(send, "17.", "19.", 1)); !strings.HasPrefix(got, "TK006") {
		t.Errorf("after an edit, the new body with the key: %s", got)
	}
	if got := app.refused("select turnkeeper.edit_message($1, ' ')", first); !strings.HasPrefix(got, "TK003") {
		t.Errorf("an empty body: %s", got)
	}
	app.one("select 1 from turnkeeper.drop_message($1)", second)
	if got := app.refused("select turnkeeper.edit_message($1, 'x')", second); got != "TK008 message "+itoa(second)+
		" no longer waits: it is dropped" {
		t.Errorf("an edit of a dropped message: %s", got)
	}
	d := h.Dispatch("a")[0]
	if d.Record.Message.Body != "Order 19." {
		t.Errorf("the turn got %q", d.Record.Message.Body)
	}
	if got := app.refused("select turnkeeper.drop_message($1)", first); got != "TK008 message "+itoa(first)+
		" no longer waits: it is running" {
		t.Errorf("a drop of a running message: %s", got)
	}
	d.Finish(t, "done")
	settle(h)
	if n := app.one("select count(*) from turnkeeper.my_replies_after(0)"); n != 2 {
		t.Errorf("%d replies, want that of the turn and that of the dropped message", n)
	}
	if n := app.one(
		"select count(*) from turnkeeper.my_messages m join turnkeeper.my_replies_after(0) r on r.id = m.reply_id and r.message_id = m.id"); n != 2 {
		t.Errorf("%d messages have a reply", n)
	}
	if n := other.one("select count(*) from turnkeeper.my_replies_after(0)"); n != 0 {
		t.Errorf("another role reads %d replies", n)
	}
	if state := storagetest.One[string](h,
		"select m.state || ' ' || c.reason from turnkeeper.messages m join turnkeeper.requested_ends c on c.turn_id = m.turn_id where m.id = $1", second); state != "cancelled dropped by its sender" {
		t.Errorf("the dropped message is %s", state)
	}
}

// TestWhatASenderMayNotSay refuses values, each with a sentence.
func TestWhatASenderMayNotSay(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	for sql, want := range map[string]string{
		"select turnkeeper.enqueue('clerk', 'x', priority => 1)":                                 "TK004 invalid message: priority 1 needs the right to operate; senders may use at most 0 (max_sender_priority)",
		"select turnkeeper.enqueue('clerk', 'x', priority => -1001)":                             "TK004",
		"select turnkeeper.enqueue('clerk', 'x', due_at => 'infinity')":                          "TK004",
		"select turnkeeper.enqueue('clerk', 'x', due_at => '-infinity')":                         "done",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","priority":7}')`:         "TK004 invalid message: priority 7 needs the right to operate",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","priority":1e99}')`:      "TK004 invalid message: priority must be a whole number",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","priority":-1.0}')`:      "done",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","priority":0.5}')`:       "TK004 invalid message: priority must be a whole number",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","priority":"0"}')`:       "TK004 invalid message: priority must be a number, and is a value of type string",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":5}')`:                        "TK004 invalid message: body must be a string, and is a value of type number",
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","attempts":5}')`:         `TK004 invalid message: it has no key "attempts"; the keys are agent, user, body, conversation, idempotency_key, trace_parent, due_at and priority`,
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","trigger":"schedule"}')`: `TK004 invalid message: it has no key "trigger"`,
		`select turnkeeper.enqueue_message('{"agent":"clerk","body":"x","due_at":"now"}')`:       "TK004 invalid message: due_at must be a time with its offset",
		`select turnkeeper.enqueue_message('{"body":"x"}')`:                                      "TK005",
		`select turnkeeper.enqueue_message('{"agent":"clerk"}')`:                                 "TK003",
		`select turnkeeper.enqueue_message('[]')`:                                                "TK004 invalid message: it must be a JSON object",
		`select turnkeeper.enqueue_message(null)`:                                                "TK004 invalid message: it must be a JSON object",
	} {
		if got := app.refused(sql); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	if odd := texts(h,
		"select trigger || ' ' || lane || ' ' || sent_by from turnkeeper.messages where (trigger, lane, sent_by) <> ('message', 'clerk', $1)", "role:"+app.name); len(odd) > 0 {
		t.Errorf("messages of a sender: %q", odd) // inbox_labels apply to the trigger message
	}
	if err := h.SetMaxSenderPriority(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	app.one("select turnkeeper.enqueue('clerk', 'x', priority => 7)")
	if got := app.refused("select turnkeeper.enqueue('clerk', 'x', priority => 8)"); !strings.HasPrefix(got, "TK004") {
		t.Errorf("above max_sender_priority: %s", got)
	}
	storagetest.One[int64](h, "select turnkeeper.enqueue('clerk', 'x', priority => 1000)")
}

// TestRightsOfASender tries every function in PL/pgSQL (Postgres may fold one in SQL without a look at rights), table,
// view and sequence of the schema as a role with the rights of the README. Only what the README grants is allowed.
func TestRightsOfASender(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	allowed := []string{"enqueue", "enqueue_message", "edit_message", "drop_message", "my_replies_after"}
	functions := texts(h,
		`select p.proname || ' ' || format('select turnkeeper.%I(%s)', p.proname, (select coalesce(string_agg(format('null::%s.%I', y.typnamespace::regnamespace, y.typname), ', '
		order by i), '') from unnest(p.proargtypes) with ordinality u(a, i) join pg_type y on y.oid = a))
		from pg_proc p where p.pronamespace = 'turnkeeper'::regnamespace and p.prolang = (select l.oid from pg_language l where l.lanname = 'plpgsql') and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype order by 1`)
	var open []string
	for _, f := range functions {
		name, call, _ := strings.Cut(f, " ")
		if got := app.refused(call); !strings.HasPrefix(got, denied) {
			open = append(open, name)
		}
	}
	slices.Sort(allowed)
	if slices.Sort(open); !slices.Equal(open, allowed) {
		t.Errorf("a sender may execute %v, want %v", open, allowed)
	}
	if got := texts(h, `select p.proname from pg_proc p where p.pronamespace = 'turnkeeper'::regnamespace
		and has_function_privilege($1, p.oid, 'execute') and not has_function_privilege('public', p.oid, 'execute')
		and p.prosecdef and 'search_path=pg_catalog, pg_temp' = any(p.proconfig) order by 1`, app.name); !slices.Equal(got, allowed) {
		t.Errorf("a sender may execute %v with a fixed search_path, want %v", got, allowed)
	}
	if got := texts(h, `select p.proname from pg_proc p where p.pronamespace = 'turnkeeper'::regnamespace
		and has_function_privilege($1, p.oid, 'execute') order by 1`, app.name); !slices.Equal(got, allowed) {
		t.Errorf("a sender has the right to execute %v, want %v", got, allowed)
	}
	relations := texts(h,
		"select relname::text from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind in ('r', 'v', 'm', 'p') order by 1")
	if len(functions) < 60 || len(relations) < 40 {
		t.Fatalf("%d functions and %d relations were tried", len(functions), len(relations))
	}
	for _, r := range relations {
		r := "turnkeeper." + pgx.Identifier{r}.Sanitize()
		for _, sql := range []string{
			"select from " + r, "insert into " + r + " default values", "delete from " + r, "truncate " + r,
			"create trigger mine before insert on " + r +
				" for each row execute function suppress_redundant_updates_trigger()", "drop table if exists " + r,
		} {
			got, mine := app.refused(sql), r == `turnkeeper."my_messages"`
			if mine && strings.HasPrefix(sql, "select") == (got == "done") || !mine && strings.HasPrefix(got, denied) ||
				strings.HasPrefix(got, "42809 ") || strings.HasPrefix(got, "55000 ") {
				continue
			}
			t.Errorf("%s: %s", sql, got)
		}
	}
	for _, sql := range []string{
		"create table turnkeeper.mine (i int)",
		"create function turnkeeper.enqueue(jsonb) returns int language sql as 'select 1'",
		"update turnkeeper.messages set attempts = 1",
		"select nextval('turnkeeper.messages_id_seq')", "drop schema turnkeeper cascade",
		"insert into turnkeeper.my_messages (agent, body) values ('clerk', 'x')",
		"update turnkeeper.my_messages set priority = 1000", "delete from turnkeeper.my_messages",
	} {
		if got := app.refused(sql); got == "done" {
			t.Errorf("done: %s", sql)
		}
	}
	// A function of the sender in a query of the view must not be given rows of others.
	storagetest.One[int64](h, "select turnkeeper.enqueue('clerk', 'secret')")
	if got := app.refused(
		"create function pg_temp.leak(text) returns boolean cost 0.0001 language plpgsql as $$ begin raise exception 'read %', $1; end $$"); got != "done" {
		t.Fatal(got)
	}
	if got := app.refused("select from turnkeeper.my_messages where pg_temp.leak(body)"); got != "done" {
		t.Errorf("the view leaks: %s", got)
	}
	// Nor does a schema of the sender change what the functions do.
	app.refused("create temp table messages (id bigint)")
	app.refused("set search_path = pg_temp, public")
	app.one(send)
}

// TestWhatASenderWroteByHand repeats the statements that a role with rights on the table could write once.
func TestWhatASenderWroteByHand(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	for _, values := range []string{
		"(agent, lane, body, attempts) values ('clerk', 'clerk', 'x', 2147483647)",
		"(agent, lane, body, accepted_at) values ('clerk', 'clerk', 'x', '-infinity')",
		"(agent, lane, body, due_at) values ('clerk', 'clerk', 'x', '-infinity')",
		"(agent, lane, body, trigger) values ('clerk', 'clerk', 'x', 'schedule')",
		"(agent, lane, body) values ('clerk', 'desk', 'x')",
		"(agent, lane, body, state) values ('clerk', 'clerk', 'x', 'odd')",
		"(agent, lane, body) values ('clerk', 'clerk', repeat('x', 30000000))",
	} {
		if got := app.refused("insert into turnkeeper.messages " + values); !strings.HasPrefix(got, denied) {
			t.Errorf("a sender wrote %s: %s", values, got)
		}
		if _, err := h.Pool().Exec(t.Context(), "insert into turnkeeper.messages "+values); err == nil {
			t.Errorf("the table accepts %s", values)
		}
	}
}

// TestASenderWithAnOldSnapshot changes and drops a message in a transaction that cannot see that its turn has begun.
func TestASenderWithAnOldSnapshot(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	for _, change := range []string{"edit_message($1, 'y')", "drop_message($1)"} {
		id := app.one("select turnkeeper.enqueue('clerk', 'x')")
		tx, err := app.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		app.one("select count(*) from turnkeeper.my_messages")
		d := h.Dispatch("a")[0]
		if n := app.one("select count(*) from turnkeeper.my_messages where id = $1 and state = 'waiting'", id); n != 1 {
			t.Fatal("the transaction sees that the turn has begun")
		}
		if got := app.refused("select turnkeeper."+change, id); !strings.HasPrefix(got, "40001 ") {
			t.Errorf("%s: %s", change, got)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Finish(t, "done")
	}
}

// TestASendersOpenTransaction changes and drops messages in transactions that stay open. Ticks, turns of other lanes,
// an operator's cancel of another message, and the outbox go on. The lane itself waits.
func TestASendersOpenTransaction(t *testing.T) {
	h := newEnv(t)
	h.Register("wide", true)
	app := h.sender("_app")
	edited, dropped := app.one("select turnkeeper.enqueue('wide', 'x', 'a')"),
		app.one("select turnkeeper.enqueue('wide', 'x', 'b')")
	behind, other := h.Submit("wide", "a", "behind"), h.Submit("wide", "c", "other")
	tx, err := app.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	app.one("select 1 from turnkeeper.edit_message($1, 'y')", edited)
	app.one("select 1 from turnkeeper.drop_message($1)", dropped)
	got := h.Dispatch("a")
	if len(got) != 1 || got[0].Record.Message.ID != other {
		t.Errorf("%d turns were granted, want that of the other lane", len(got))
	}
	got[0].Finish(t, "done")
	settle(h)
	h.Exec("update turnkeeper.agents set lane_per_conversation = false, lanes_changed_at = now() where name = 'wide'")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error { return tick.MoveLanes(ctx) })
	h.Exec("select turnkeeper.cancel_message($1, '')", int64(behind))
	if n := storagetest.One[int](h, "select count(*)::int from turnkeeper.replies_after(0)"); n != 2 {
		t.Errorf("%d replies are read beside the open transaction, want 2", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(h)
	if state := storagetest.One[string](h, "select state from turnkeeper.messages where id = $1",
		dropped); state != "cancelled" {
		t.Errorf("the dropped message is %s", state)
	}
}

// settle runs the part of a tick that closes dropped messages.
func settle(h *env) {
	h.T.Helper()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		_, err := tick.SettleSpawned(ctx, true, 100)
		return err
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// texts queries a column of texts.
func texts(h *env, sql string, args ...any) []string {
	h.T.Helper()
	rows, err := h.Pool().Query(h.T.Context(), sql, args...)
	if err != nil {
		h.T.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		h.T.Fatal(err)
	}
	return found
}

// TestAMigrationOfEnqueueKeepsRights replaces the function enqueue in a migration. "create or replace" keeps the rights
// that were granted on it. A function with another signature would lack them, so docs/upgrading.md forbids that. Nobody
// else gets a right.
func TestAMigrationOfEnqueueKeepsRights(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	sql := storagetest.One[string](h, "select pg_get_functiondef(to_regproc('turnkeeper.enqueue'))")
	files, _ := newer("-- Oldest program: 1\n" + sql +
		"; create function turnkeeper.added() returns integer language sql as 'select 1';")
	program := storagetest.Open(t, h.URL)
	program.SetMigrations(files)
	if applied, err := storagetest.Migrate(t.Context(), program.DB); err != nil || len(applied) != 1 {
		t.Fatalf("applied %v, error %v", applied, err)
	}
	app.one(send)
	if got := app.refused("select turnkeeper.added()"); !strings.HasPrefix(got, denied) {
		t.Errorf("a function that a migration has added: %s", got)
	}
}

// The scheduler's lock is a table's: a role without rights to the table can neither take it nor hold it up.
func TestOtherRolesCannotTakeTheSchedulersLock(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	for _, sql := range []string{
		"select turnkeeper.lock_scheduler()", "select turnkeeper.share_scheduler_lock()",
		"select turnkeeper.try_scheduler_lock()",
		"do $$ begin lock table turnkeeper.scheduler_lock in exclusive mode; end $$",
		"do $$ begin lock table turnkeeper.scheduler_lock in access share mode; end $$",
		"select from turnkeeper.scheduler_lock for update", "insert into turnkeeper.scheduler_lock default values",
		"drop table turnkeeper.scheduler_lock", "truncate turnkeeper.scheduler_lock",
	} {
		if got := app.refused(sql); !strings.HasPrefix(got, denied) {
			t.Errorf("%s: %s", sql, got)
		}
	}
	app.one("select 1 from pg_advisory_lock(0)")
	if !storagetest.One[bool](h, "select turnkeeper.try_scheduler_lock()") {
		t.Error("the lock is held")
	}
}

// TestAnEditedMessageOfAResponse edits a message that has earlier messages before its text. The new text has none, and
// nobody continues the response by what was said before. Another response keeps its own, and cannot be edited once it
// has had a turn.
func TestAnEditedMessageOfAResponse(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	edited, other := app.one("select turnkeeper.enqueue('clerk', 'hello')"),
		app.one("select turnkeeper.enqueue('clerk', 'hello')")
	h.Exec(
		`insert into turnkeeper.responses (message_id, background, drafts, metadata, preface, request_sha256, history_sha256)
		select id, true, false, '{}', 3, '', 'x' from turnkeeper.messages`)
	if got := app.refused("select turnkeeper.edit_message($1, 'good day')", edited); got != "done" {
		t.Fatal(got)
	}
	left := storagetest.One[int64](h,
		"select message_id from turnkeeper.responses where preface = 3 and history_sha256 is not null")
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.responses where preface = 0 and history_sha256 is null"); n != 1 ||
		left != other {
		t.Errorf("%d responses have no preface; message %d keeps it, want %d", n, left, other)
	}
	h.Exec("update turnkeeper.messages set attempts = 1 where id = $1", other)
	if got := app.refused("select turnkeeper.edit_message($1, 'good day')", other); !strings.Contains(got,
		"because it has had a turn") {
		t.Errorf("a message that has had a turn is edited: %s", got)
	}
}

// TestWhichTransactionsChangeARow asks whether transactions are open that may change a row: the one that asks, which
// counts as none, one that began after its snapshot, and the same after its end.
func TestWhichTransactionsChangeARow(t *testing.T) {
	h := newEnv(t)
	ctx := t.Context()
	asks, err := h.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asks.Rollback(context.Background()) }()
	var own string
	if err := asks.QueryRow(ctx, "select pg_current_xact_id()::xid::text from turnkeeper.settings").Scan(
		&own); err != nil {
		t.Fatal(err)
	}
	wants := func(what, xid string, want bool) {
		t.Helper()
		var open bool
		if err := asks.QueryRow(ctx, "select turnkeeper.being_changed($1::text::xid)", xid).Scan(&open); err != nil ||
			open != want {
			t.Errorf("%s is open: %t, %v", what, open, err)
		}
	}
	later, err := h.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = later.Rollback(context.Background()) }()
	var xid string
	if err := later.QueryRow(ctx, "select pg_current_xact_id()::xid::text").Scan(&xid); err != nil {
		t.Fatal(err)
	}
	wants("the transaction itself", own, false)
	wants("a later one", xid, true)
	if err := later.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	wants("the later one after its end", xid, false)
}

// TestWhoseRepliesASenderReads has replies to messages of two senders, of which some are a user's and another agent's.
func TestWhoseRepliesASenderReads(t *testing.T) {
	h := newEnv(t)
	app, other := h.sender("_app"), h.sender("_other")
	for i, c := range []struct {
		sent        *sender
		agent, user string
	}{{other, "clerk", "anna"}, {app, "clerk", ""}, {other, "desk", ""}, {app, "desk", "anna"}, {app, "clerk", "anna"},
		{other, "clerk", "anna"}, {app, "clerk", ""}} {
		id := c.sent.one("select turnkeeper.enqueue($1, 'x', user_name => $2)", c.agent, c.user)
		h.Exec(
			`insert into turnkeeper.replies (id, message_id, turn_id, agent, user_name, conversation, outcome, stop_reason, body, calls, sent_by) overriding system value
			select $1, m.id, m.id, m.agent, m.user_name, m.conversation, 'succeeded', 'none', 'said', '[]', m.sent_by from turnkeeper.messages m where m.id = $2`, i+1, id)
	}
	for arguments, want := range map[string]int64{
		"0": 2457, "0, 1": 2, "2, 1": 4, "4": 57, "7": 0, "0, 25, 'clerk'": 257, "0, 1, 'desk'": 4,
		"0, 25, '', 'anna'": 45, "0, 1, 'clerk', 'anna'": 5, "4, 1, '', 'anna'": 5, "0, 25, 'nobody'": 0,
	} {
		if got := app.one(
			"select coalesce(string_agg(r.id::text, '' order by r.id), '0')::bigint from turnkeeper.my_replies_after(" +
				arguments + ") r"); got != want {
			t.Errorf("the replies after %s are %d, want %d", arguments, got, want)
		}
	}
}

// TestASenderMissesNoReply reads replies while one with a lower id is not committed.
func TestASenderMissesNoReply(t *testing.T) {
	h := newEnv(t)
	app := h.sender("_app")
	const reply = `insert into turnkeeper.replies (id, message_id, turn_id, agent, conversation, outcome, stop_reason, body, calls, sent_by) overriding system value
		select $1::bigint, m.id, m.id, m.agent, m.conversation, 'succeeded', 'none', 'said', '[]', m.sent_by from turnkeeper.messages m where m.id = $2`
	first, second := app.one("select turnkeeper.enqueue('clerk', 'x')"),
		app.one("select turnkeeper.enqueue('clerk', 'x')")
	writer, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback(context.Background()) }()
	if _, err := writer.Exec(t.Context(), reply, 1, first); err != nil {
		t.Fatal(err)
	}
	h.Exec(reply, 2, second)
	const count = "select count(*) from turnkeeper.my_replies_after(0)"
	if n := app.one(count); n != 0 {
		t.Errorf("%d replies are read before the first is there", n)
	}
	if err := writer.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := app.one(count); n != 2 {
		t.Errorf("%d replies are read", n)
	}
}
