package faults_test

import (
	"strings"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pgdev"
	"turnkeeper/tests/internal/env"
)

// Postgres is stopped for twenty seconds, while a turn writes and others wait. The worker's log says so when it begins,
// every ten seconds, and at the end, and has little else above level debug.
func TestALogWhileTheDatabaseIsStopped(t *testing.T) {
	t.Parallel()
	dir := env.ServerDir(t)
	server := startPostgresWith(t, pgdev.Options{Dir: dir})
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", "lane: conversation")
	stopped := make(chan struct{})
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return meanwhile(func() { <-stopped }, env.Echo("You said: ")(r))
	})
	w := e.StartWorker()
	message := e.Send("clerk", "hello")
	e.AwaitRequests(1)
	before := len(w.Output.String())
	if err := syscall.Kill(env.PostmasterPID(t, dir), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	close(stopped) // its answer cannot be written
	w.Await("the database is unavailable; retrying")
	w.Await(`"for": "20.`)
	startPostgresWith(t, pgdev.Options{Dir: dir})
	w.Await("the database is available again")
	lines := strings.Split(strings.TrimSpace(w.Output.String()[before:]), "\n")
	const handful = 7 // four about the outage, and the worker gives up its turn, which goes on
	if len(lines) > handful {
		t.Errorf("%d lines, want at most %d:\n%s", len(lines), handful, strings.Join(lines, "\n"))
	}
	t.Logf("the log:\n%s", strings.Join(lines, "\n"))
	e.AwaitClosed(message)
}
