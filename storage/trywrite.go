package storage

import (
	"context"

	"github.com/jackc/pgx/v5"

	"turnkeeper/storage/internal/pg"
)

// tryWrite inserts rows into the tables that a worker inserts into during a turn, and looks whether it may change the
// others. The row of the journal is too large for its page, so that the server needs room for it, and no turn has its
// number.
const tryWrite = `
insert into turnkeeper.journal (turn_id, n, write_id, seq, last_seq, at, types, rounds, blocks, data, raw)
select -pg_backend_pid(), 1, gen_random_uuid(), 1, 0, clock_timestamp(), '{}', '{}', '{}', '{}', string_agg(md5(random()::text), '') from generate_series(1, 2000);
insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, agent, name, args_hash)
values (-pg_backend_pid(), 1, 1, 1, 'none', 0, 0, gen_random_uuid()::text, '', '', '', '');
insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
values ('', -pg_backend_pid(), gen_random_uuid(), -pg_backend_pid(), 0, now(), now(), now(), 'finished');
update turnkeeper.messages set turn_id = turn_id where false;
update turnkeeper.turns set last_seq = last_seq where false;
update turnkeeper.leases set token = token where false;
update turnkeeper.worker_heartbeat set slots = slots where false;
update turnkeeper.river_job set state = state where false;
delete from turnkeeper.replies where false;
set constraints all immediate`

// RecheckWrites tries a write if this process gave one up because the server refused it, and has written nothing since.
func (s *DB) RecheckWrites(ctx context.Context) {
	s.core.Refusals.Recheck(func() error { return s.TryWrite(ctx) })
}

// TryWrite writes as the turns of a worker do, and rolls the transaction back. It fails as they would, and waits for
// locks for 2 s.
func (s *DB) TryWrite(ctx context.Context) error {
	tx, err := s.core.Pool.Begin(ctx)
	if err != nil {
		return pg.Translate(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // if ctx has ended, this closes the connection
	_, err = tx.Exec(ctx, "set local lock_timeout = '2s'; set local statement_timeout = '10s';"+tryWrite,
		pgx.QueryExecModeSimpleProtocol)
	return pg.Translate(err)
}
