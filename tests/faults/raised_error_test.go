package faults_test

import (
	"fmt"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// Writes fail in the server a few times each, with the errors of a busy server: serialization failure,
// deadlock, lock timeout, full disk. A write fails in its statement or at the commit.
func TestRaisedErrors(t *testing.T) {
	t.Parallel()
	t.Run("handed over", func(t *testing.T) {
		tables := []string{"messages", "leases", "turns", "journal", "call_starts", "replies"}
		if env.LongFaults {
			tables = append(tables, "worker_heartbeat")
		}
		raiseErrors(t, tables, "api,scheduler,webhooks,worker")
	})
	t.Run("through the queue", func(t *testing.T) { // else a turn has no job
		raiseErrors(t, []string{"river_job"}, "scheduler", "worker")
	})
}

// raiseErrors raises errors in each of the tables, while there is a process for each of the roles.
func raiseErrors(t *testing.T, tables []string, roles ...string) {
	t.Parallel()
	codes := []string{"40001", "40P01", "55P03", "53100"}
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.Model.Then(standardTurn)
	for _, role := range roles {
		e.StartWorker("--roles", role)
	}
	wantAnswered(e, acceptAndAwait(e, "warm"), "warm")
	e.Exec("create sequence raised minvalue 0")
	e.Exec(`create function raise_error() returns trigger language plpgsql as $$
		begin
			if nextval('turnkeeper.raised') <= tg_argv[1]::bigint then -- a sequence counts on when the transaction is undone
				raise exception using errcode = tg_argv[0], message = 'a fault of the test';
			end if;
			return new;
		end $$`)
	n := 0
	for _, table := range tables {
		for _, at := range []string{"statement", "commit"} {
			for range env.FaultCount(1, len(codes)) {
				answerWhileRaising(e, table, at, codes[n%len(codes)])
				n++
			}
		}
	}
}

// answerWhileRaising checks that a message is answered while writes to a table fail.
func answerWhileRaising(e *env.Env, table, at, code string) {
	e.T.Helper()
	times := env.FaultCount(1, 3)
	e.Exec("select setval('raised', 0, false)")
	when := "trigger raise_error before insert or update on " + table
	if at == "commit" {
		when = "constraint trigger raise_error after insert or update on " + table + " deferrable initially deferred"
	}
	e.Exec(fmt.Sprintf("create %s for each row execute function raise_error('%s', %d)", when, code, times-1))
	began := time.Now()
	body := fmt.Sprintf("%s at the %s of %s", code, at, table)
	message, refusals := acceptMessage(e, "clerk", body)
	e.AwaitClosed(message)
	e.Await("it was raised", "select last_value >= $1 from raised", times)
	e.Exec("drop trigger raise_error on " + table)
	wantAnswered(e, message, body)
	e.T.Logf("%-35s %5.1f s %q", body, time.Since(began).Seconds(), refusals)
	if (table == "messages") != (len(refusals) > 0) {
		e.T.Errorf("%s: accept was refused with %q", body, refusals)
	}
}

// Another session locks the rows of a turn during the model call, for longer than the lock timeout of the
// worker.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	rows := map[string]string{"turns": "select from turns for update"}
	if env.LongFaults {
		rows["leases"] = "select from leases for update"
		rows["messages"] = "select from messages for update"
		rows["jobs"] = "select from river_job for update"
		rows["heartbeats"] = "select from worker_heartbeat for update"
		rows["the journal"] = "lock table journal"
	}
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		lock, ok := rows[env.NewestMessage(r)]
		if !ok || env.RoundOf(r) != 2 {
			return standardTurn(r)
		}
		return meanwhile(func() { lockForLong(e, lock) }, standardTurn(r))
	})
	e.StartWorker("--roles", "scheduler") // so that the turns have jobs
	e.StartWorker("--roles", "worker")
	for body := range rows {
		wantAnswered(e, acceptAndAwait(e, body), body)
	}
}

// lockForLong takes locks and releases them some time after the worker's first write has timed out.
func lockForLong(e *env.Env, lock string) {
	tx, err := e.DB.Begin(e.T.Context())
	if err != nil {
		e.T.Error(err)
		return
	}
	if _, err := tx.Exec(e.T.Context(), lock); err != nil {
		e.T.Error(err)
	}
	const longerThanTheWorkerWaits = 11
	go func() {
		if _, err := tx.Exec(e.T.Context(), "select pg_sleep($1)", longerThanTheWorkerWaits); err != nil {
			e.T.Error(err)
		}
		if err := tx.Rollback(e.T.Context()); err != nil {
			e.T.Error(err)
		}
	}()
}
