package tests_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// A panic within a turn ends neither the worker nor the message.
func TestAPanicInsideATurn(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"turn.start", "model.before", "model.first", "plan.after", "call.checked", "call.effect_done", "finish.before", "finish.after"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := crash{point, "panic", "mark_once"}
			h := newCrashHouse(t, c)
			h.register("clerk")
			first := h.send("clerk", "first")
			faulty := h.faulty("markerworker", crashFlags...)
			h.stand.await().panic()
			h.awaitClosed(first)
			h.rest(c, faulty, func() {}, first)
		})
	}
}

// finishing is what the end of a turn writes, table by table, in one
// transaction.
var finishing = []struct{ table, when string }{
	{"turns", "new.ended_at is not null"},
	{"messages", "new.closed_at is not null"},
	{"replies", "true"},
	{"leases", "new.grant_id is null"},
	{"lease_log", "new.outcome is not null"},
	{"river_job", "new.state = 'completed'"},
}

// atTheGate are the sessions of this database that wait there.
const atTheGate = `from pg_locks where locktype = 'advisory' and objid = 4711 and not granted
	and database = (select oid from pg_database where datname = current_database())`

// TestHarmBetweenTheStatementsOfTheEnd stops the end of a turn inside the
// server, at each of its statements, and then takes the worker or the server's
// own process away.
func TestHarmBetweenTheStatementsOfTheEnd(t *testing.T) {
	t.Parallel()
	for _, at := range finishing {
		for _, fault := range []string{"kill", "terminate", "cut"} {
			t.Run(at.table+"/"+fault, func(t *testing.T) {
				t.Parallel()
				h := newCrashHouse(t, crash{"none", fault, "mark_once"})
				h.register("clerk")
				gate := h.gate(at.table, at.when)
				first := h.send("clerk", "first")
				faulty := h.faulty("markerworker", crashFlags...)
				h.await("the end waits at the gate", "select exists (select "+atTheGate+")")
				end := func() {}
				switch fault {
				case "terminate":
					h.exec("select pg_terminate_backend(pid) " + atTheGate)
				default:
					end = h.strike(fault, faulty, &visit{answer: make(chan int, 1)})
				}
				h.startWorker(crashFlags...)
				gate()
				h.rest(crash{fault: fault}, faulty, end, first)
			})
		}
	}
}

// gate makes every write to a table that fulfils the condition wait. The
// function that it returns opens it for good.
func (h *crashHouse) gate(table, condition string) (open func()) {
	h.t.Helper()
	h.exec(`create function gate() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock_shared(4711); return new; end $$;
		create trigger gate before insert or update on ` + table + ` for each row when (` + condition + `) execute function gate()`)
	holder, err := pgx.Connect(h.t.Context(), h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := holder.Exec(h.t.Context(), "select pg_advisory_lock(4711)"); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		if err := holder.Close(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}
