package tests_test

import (
	"fmt"
	"testing"
	"time"
)

// TestRaisedErrors lets writes fail in the server, a few times each, with the
// errors of a busy one: serialization failure, deadlock, lock time-out, no room
// on the disk. A write fails in its statement, or when all of it is done, at the
// commit.
func TestRaisedErrors(t *testing.T) {
	t.Parallel()
	codes := []string{"40001", "40P01", "55P03", "53100"}
	h := newHouse(t)
	h.agent("clerk", marks, "lane: conversation")
	h.model.Then(standardTurn)
	h.startWorker(patientWorker...)
	h.answered(h.acceptClosed("warm"), "warm")
	h.exec("create sequence raised minvalue 0")
	h.exec(`create function raise_error() returns trigger language plpgsql as $$
		begin
			if nextval('turnkeeper.raised') <= tg_argv[1]::bigint then -- a sequence counts on when the transaction is undone
				raise exception using errcode = tg_argv[0], message = 'a fault of the test';
			end if;
			return new;
		end $$`)
	n := 0
	tables := []string{"messages", "leases", "turns", "river_job", "rounds", "calls", "call_starts", "replies"}
	if longFaults {
		tables = append(tables, "worker_heartbeat")
	}
	for _, table := range tables {
		for _, at := range []string{"statement", "commit"} {
			for range faults(1, len(codes)) {
				h.raise(table, at, codes[n%len(codes)])
				n++
			}
		}
	}
}

// raise has one message answered while the writes to a table fail.
func (h *house) raise(table, at, code string) {
	h.t.Helper()
	times := faults(1, 3)
	h.exec("select setval('raised', 0, false)")
	when := "trigger raise_error before insert or update on " + table
	if at == "commit" {
		when = "constraint trigger raise_error after insert or update on " + table + " deferrable initially deferred"
	}
	h.exec(fmt.Sprintf("create %s for each row execute function raise_error('%s', %d)", when, code, times-1))
	began := time.Now()
	body := fmt.Sprintf("%s at the %s of %s", code, at, table)
	message, refusals := h.accept("clerk", body)
	h.awaitClosed(message)
	h.await("it was raised", "select last_value >= $1 from raised", times)
	h.exec("drop trigger raise_error on " + table)
	h.answered(message, body)
	h.t.Logf("%-35s %5.1f s %q", body, time.Since(began).Seconds(), refusals)
	if (table == "messages") != (len(refusals) > 0) {
		h.t.Errorf("%s: accept said %q", body, refusals)
	}
}

// TestLockedRows has another session hold the rows of a turn while the model is
// asked, for longer than the worker waits for a lock.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "lane: conversation")
	rows := map[string]string{"turns": "select from turns for update"}
	if longFaults {
		rows["leases"] = "select from leases for update"
		rows["messages"] = "select from messages for update"
		rows["jobs"] = "select from river_job for update"
		rows["heartbeats"] = "select from worker_heartbeat for update"
		rows["all calls"] = "lock table calls"
	}
	h.model.Then(func(r recorded) reply {
		lock, ok := rows[newest(r)]
		if !ok || roundOf(r) != 2 {
			return standardTurn(r)
		}
		return meanwhile(func() { h.lockForLong(lock) }, standardTurn(r))
	})
	h.startWorker(patientWorker...)
	for body := range rows {
		h.answered(h.acceptClosed(body), body)
	}
}

// lockForLong takes locks, and lets go a while after the worker's first write
// has waited in vain.
func (h *house) lockForLong(lock string) {
	tx, err := h.db.Begin(h.t.Context())
	if err != nil {
		h.t.Error(err)
		return
	}
	if _, err := tx.Exec(h.t.Context(), lock); err != nil {
		h.t.Error(err)
	}
	const longerThanTheWorkerWaits = 11
	go func() {
		if _, err := tx.Exec(h.t.Context(), "select pg_sleep($1)", longerThanTheWorkerWaits); err != nil {
			h.t.Error(err)
		}
		if err := tx.Rollback(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}()
}
