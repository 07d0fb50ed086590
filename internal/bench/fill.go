package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// openFiller connects to a database to fill it: triggers and foreign keys are off, and commits do not wait
// for the disk.
func openFiller(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, errUnreadableAddress
	}
	if _, err := conn.Exec(ctx, "set session_replication_role = replica; set synchronous_commit = off",
		pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// A backlog is messages that wait. due is SQL: when the message number i is due.
type backlog struct {
	name     string // begins the names of their conversations
	messages int
	lanes    int
	due      string
}

// fillBacklog writes waiting messages, those of one lane as far from each other as possible. Nobody is notified.
func fillBacklog(ctx context.Context, conn *pgx.Conn, w backlog) error {
	_, err := conn.Exec(ctx, fmt.Sprintf(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at)
		select $1, c, $1 || '/' || c, $2, %s from generate_series(0, $3::bigint - 1) i, lateral (select $4 || '-' || i %% $5::bigint as c) conversation`, w.due),
		benchAgent, sentAt+"no time", w.messages, w.name, w.lanes)
	return err
}

// pauses is for how long lanes back off: the scheduler ignores more than 130 s.
const pauses = 2 * time.Minute

// backOff makes the lanes of a backlog back off, and those that did so before.
func backOff(ctx context.Context, conn *pgx.Conn, w backlog) error {
	_, err := conn.Exec(ctx, `insert into turnkeeper.leases (lane, agent, failures)
		select $1 || '/' || $2 || '-' || i, $1, 1 from generate_series(0, $3::bigint - 1) i`, benchAgent, w.name, w.lanes)
	if err == nil {
		_, err = conn.Exec(ctx, "update turnkeeper.leases set not_before = now() + $1::interval where failures > 0",
			pauses)
	}
	return err
}

// copied is how many turns one statement of copyTurns writes.
const copied = 50_000

// copyTurns copies the oldest finished turn with its message and everything that belongs to them. conversation is SQL:
// the conversation of the copy number i, from 0. The last copy is older by age, and each other is a second older than
// the next. A turn's job is deleted when it ends.
func copyTurns(ctx context.Context, conn *pgx.Conn, n int, conversation string, age time.Duration) error {
	var turn, message, lastTurn, lastMessage int64
	err := conn.QueryRow(ctx,
		`select id, message_id, (select max(id) from turnkeeper.turns), (select max(id) from turnkeeper.messages)
		from turnkeeper.turns where ended_at is not null order by id limit 1`).Scan(&turn, &message, &lastTurn, &lastMessage)
	if err != nil {
		return fmt.Errorf("no turn to copy: %w", err)
	}
	tables, err := tablesOfTurns(ctx, conn)
	if err != nil {
		return err
	}
	newTurn, newMessage := fmt.Sprintf("%d + 1 + i", lastTurn), fmt.Sprintf("%d + 1 + i", lastMessage)
	values := map[string]string{ // of the columns that differ; those of one table have its name
		"turns.id": newTurn, "turn_id": newTurn, "messages.id": newMessage, "message_id": newMessage,
		"token":        newTurn, // higher than all before
		"conversation": conversation, "lane": fmt.Sprintf("'%s/' || %s", benchAgent, conversation),
		"grant_id": "case when x.grant_id is not null then gen_random_uuid() end", "write_id": "gen_random_uuid()",
		"outputs.id": "x.id || '-' || i", "output_id": "x.output_id || '-' || i",
		"nonce": "case when x.nonce <> '' then x.nonce || '-' || i else '' end",
	}
	for from := 0; from < n; from += copied {
		to := min(from+copied, n) - 1
		for _, t := range tables {
			if _, err := conn.Exec(ctx, t.copy(values, turn, message, from, to, n, age),
				pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("cannot copy rows of %s: %w", t.name, err)
			}
		}
	}
	_, err = conn.Exec(ctx, `select setval('turnkeeper.tokens', max(token)) from turnkeeper.turns;
		select setval(pg_get_serial_sequence('turnkeeper.turns', 'id'), max(id)) from turnkeeper.turns;
		select setval(pg_get_serial_sequence('turnkeeper.messages', 'id'), max(id)) from turnkeeper.messages`, pgx.QueryExecModeSimpleProtocol)
	return err
}

// A table has rows of a turn. times says which of the columns hold times.
type table struct {
	name    string
	columns []string
	times   []bool
}

// tablesOfTurns returns the tables with rows of turns and of their messages, without leases. Numbers that the
// database generates are left out of the columns.
func tablesOfTurns(ctx context.Context, conn *pgx.Conn) ([]table, error) {
	rows, err := conn.Query(ctx, `select c.table_name, array_agg(c.column_name::text order by c.ordinal_position),
			array_agg(c.data_type like 'timestamp%' order by c.ordinal_position)
		from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
		where c.table_schema = 'turnkeeper' and t.table_type = 'BASE TABLE' and c.table_name <> 'leases' and c.is_generated = 'NEVER'
			and (c.table_name in ('turns', 'messages') or exists (select from information_schema.columns o
				where o.table_schema = c.table_schema and o.table_name = c.table_name and o.column_name = 'turn_id'))
			and (c.identity_generation is distinct from 'ALWAYS' or c.table_name = 'messages')
		group by c.table_name order by c.table_name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.name, &t.columns, &t.times)
	})
}

// copy returns the statement that copies the table's rows of a turn and its message.
func (t table) copy(values map[string]string, turn, message int64, from, to, n int, age time.Duration) string {
	var columns, list []string
	for i, name := range t.columns {
		value, found := values[t.name+"."+name]
		if !found {
			value, found = values[name]
		}
		quoted := pgx.Identifier{name}.Sanitize()
		switch {
		case found:
		case t.times[i]:
			value = fmt.Sprintf("x.%s - (%d - i) * interval '1 second'", quoted, n+int(age.Seconds()))
		default:
			value = "x." + quoted
		}
		columns, list = append(columns, quoted), append(list, value)
	}
	of := fmt.Sprintf("x.turn_id = %d", turn)
	switch t.name {
	case "turns":
		of = fmt.Sprintf("x.id = %d", turn)
	case "messages":
		of = fmt.Sprintf("x.id = %d", message)
	}
	name := pgx.Identifier{"turnkeeper", t.name}.Sanitize()
	return fmt.Sprintf(
		"insert into %s (%s) overriding system value select %s from %s x, generate_series(%d::bigint, %d) i where %s",
		name, strings.Join(columns, ", "), strings.Join(list, ", "), name, from, to, of)
}

// settle does what autovacuum would do after a while, and writes everything to the disk.
func settle(ctx context.Context, conn *pgx.Conn) error {
	for _, statement := range []string{"vacuum (analyze)", "checkpoint"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
