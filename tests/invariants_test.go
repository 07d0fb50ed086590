package tests_test

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// invariants are queries whose every row is a broken promise. They hold
// whenever no turn runs.
var invariants = []struct{ promise, sql string }{
	{"a closed message has one reply", `
		select m.id::text from messages m left join replies r on r.message_id = m.id
		where m.closed_at is not null and m.trigger = 'message' group by m.id having count(r.id) <> 1`},
	{"a reply belongs to a closed message and to its newest turn", `
		select r.id::text from replies r join messages m on m.id = r.message_id
		where m.closed_at is null or m.turn_id <> r.turn_id`},
	{"a closed message has no open turn, and an open one no answer", `
		select m.id::text from messages m join turns t on t.message_id = m.id
		where (m.closed_at is not null and t.ended_at is null)
		   or (m.closed_at is null and t.state in ('succeeded', 'degraded', 'cancelled'))`},
	{"no call is open under a closed turn", `
		select c.turn_id || ' ' || c.round || '.' || c.ordinal || ' ' || c.state from calls c join turns t on t.id = c.turn_id
		where t.ended_at is not null and c.state in ('planned', 'started', 'running')`},
	{"every start of a call is on record", `
		select c.turn_id || ' ' || c.round || '.' || c.ordinal from calls c
		where c.starts <> (select count(*) from call_starts s
			where (s.turn_id, s.round, s.ordinal) = (c.turn_id, c.round, c.ordinal))`},
	{"an effect that happened, or may have, was started", `
		select c.turn_id || ' ' || c.round || '.' || c.ordinal || ' ' || c.state from calls c
		where c.effect <> 'none' and c.starts = 0 and c.state in ('started', 'succeeded', 'unknown')`},
	{"a call of effect once was started once at most", `
		select turn_id::text from call_starts where effect = 'once' group by turn_id, round, ordinal having count(*) > 1`},
	{"the grants of a lane do not overlap", `
		select a.lane || ' ' || a.token || ' ' || b.token from lease_log a join lease_log b on b.lane = a.lane and b.token > a.token
		where coalesce(a.ended_at, a.lease_until) > b.granted_at`},
	{"events are numbered 1 to n", `
		select t.id::text from turns t left join turn_events e on e.turn_id = t.id group by t.id
		having count(e.seq) <> t.last_seq or coalesce(max(e.seq), 0) <> t.last_seq or coalesce(min(e.seq), 1) <> 1`},
	{"a turn has one last event, and it is the last", `
		select t.id::text from turns t join turn_events e on e.turn_id = t.id and e.type in ('turn_complete', 'turn_error')
		where t.ended_at is null or e.seq <> t.last_seq`},
	{"no plain success stands on an unknown outcome", `
		select t.id::text from turns t join calls c on c.turn_id = t.id where t.state = 'succeeded' and c.state = 'unknown'`},
	{"no lease is left", `select lane from leases where grant_id is not null`},
	{"no turn runs", `select id::text from turns where state = 'running'`},
	{"every grant that is over says how it ended", `
		select g.id::text from lease_log g where g.outcome is null`},
	{"no job is left", `select id || ' ' || state from river_job where finalized_at is null`},
}

// checkInvariants reports every broken promise. Processes have ended by then:
// clean-ups run last in, first out.
func (h *house) checkInvariants() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, check := range invariants {
		rows, err := h.db.Query(ctx, check.sql)
		if err != nil {
			h.t.Errorf("%s: %v", check.promise, err)
			continue
		}
		if broken, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(broken) > 0 {
			h.t.Errorf("broken: %s: %v %v", check.promise, broken, err)
		}
	}
	if h.model == nil {
		return
	}
	if faults := h.model.Violations(); len(faults) > 0 {
		h.t.Errorf("a strict model server refused requests: %v", faults)
	}
}
