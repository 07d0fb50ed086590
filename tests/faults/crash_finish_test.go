package faults_test

import (
	"testing"

	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A panic in a turn ends neither the worker nor the message.
func TestAPanicInsideATurn(t *testing.T) {
	t.Parallel()
	for _, point := range testrun.Sample([]string{"turn.start", "model.before", "model.first", "plan.after",
		"call.checked", "call.effect_done", "finish.before", "finish.after"}, 3) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			c := env.Crash{Point: point, Fault: "panic", Tool: "mark_once"}
			e := env.NewCrash(t, c)
			e.Register("clerk")
			first := e.Send("clerk", "first")
			faulty := e.StartFaulty("markerworker", crashFlags...)
			e.Hook.Await().Panic()
			e.AwaitClosed(first)
			finish(e, c, faulty, func() {}, first)
		})
	}
}

// finishing lists the writes at the end of a turn, by table, in one transaction.
var finishing = []struct{ table, write, when string }{
	{"turns", "insert or update", "new.ended_at is not null"},
	{"messages", "insert or update", "new.closed_at is not null"},
	{"replies", "insert or update", "true"},
	{"leases", "delete", "true"},
	{"ended_grants", "insert", "true"},
	{"river_job", "delete", "true"},
}

// The end of a turn is stopped inside the server, at each of its statements. Then the worker, or the server's
// process, is killed.
func TestHarmBetweenTheStatementsOfTheEnd(t *testing.T) {
	t.Parallel()
	for i, at := range finishing {
		faults := []string{"kill", "terminate", "cut"}
		if !testrun.All() {
			faults = faults[i%len(faults):][:1]
		}
		for _, fault := range faults {
			t.Run(at.table+"/"+fault, func(t *testing.T) {
				t.Parallel()
				e := env.NewCrash(t, env.Crash{Point: "none", Fault: fault, Tool: "mark_once"})
				e.Register("clerk")
				gate := e.Gate(at.table, at.write, at.when)
				first := e.Send("clerk", "first")
				flags := crashFlags
				if at.table == "river_job" { // a turn that the scheduler hands to its own worker has no job
					e.StartWorker(append([]string{"--roles", "scheduler"}, crashFlags...)...)
					flags = append([]string{"--roles", "worker"}, crashFlags...)
				}
				faulty := e.StartFaulty("markerworker", flags...)
				e.Await("the end waits at the gate", "select exists (select "+env.AtTheGate+")")
				end := func() {}
				switch fault {
				case "terminate":
					e.Exec("select pg_terminate_backend(pid) " + env.AtTheGate)
				default:
					end = apply(e, fault, faulty, func() {}) // no fault point to resume from
				}
				e.StartWorker(crashFlags...)
				gate()
				finish(e, env.Crash{Fault: fault}, faulty, end, first)
			})
		}
	}
}
