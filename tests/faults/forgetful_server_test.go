package faults_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pgdev"
	"turnkeeper/tests/internal/env"
)

// TestPostgresForgetsThatAJobWasFetched crashes Postgres just after River has
// fetched a job. River's commits do not wait for the disk, so the server may
// have forgotten it when it is back, and give the job out again while its first
// worker is at it: the turn is worked once all the same.
func TestPostgresForgetsThatAJobWasFetched(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(env.SharedDir(t), "postgres")
	options := pgdev.Options{Dir: dir, Settings: map[string]string{"wal_writer_delay": "10s"}}
	server := startPostgresWith(t, options)
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", env.MarkerTools)
	asked := make(chan struct{}, 100)
	answers := newGate()
	t.Cleanup(answers.open)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			asked <- struct{}{}
			answers.pass()
		}, standardTurn(r))
	})
	e.StartWorker()
	e.StartWorker()
	forgotten := 0
	for n := range env.FaultCount(2, 20) {
		answers.shut()
		body := fmt.Sprint("message ", n)
		message := e.Send("clerk", body)
		<-asked
		if err := syscall.Kill(env.PostmasterPID(t, dir), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		startPostgresWith(t, options)
		if fetchedAgain(e, message) {
			forgotten++
		}
		answers.open()
		e.AwaitClosed(message)
		wantAnswered(e, message, body)
		for len(asked) > 0 {
			<-asked // by the second worker
		}
	}
	t.Logf("%d of %d fetches were forgotten", forgotten, env.FaultCount(2, 20))
	if env.LongFaults && forgotten == 0 {
		t.Error("the server forgot no fetch")
	}
}

// fetchedAgain says whether the job of a message's turn is fetched once more,
// within the time in which River looks for jobs by itself.
func fetchedAgain(e *env.Env, message int64) bool {
	const looks = 3 * time.Second
	e.Await("the server is back", "select true")
	back := env.Query[time.Time](e, "select pg_postmaster_start_time()")
	for end := time.Now().Add(looks); time.Now().Before(end); <-env.After(50 * time.Millisecond) {
		again, err := env.TryQuery[bool](e, `select j.attempted_at > $2 from messages m join turns t on t.id = m.turn_id
			join river_job j on j.id = t.job_id where m.id = $1 and j.attempted_at is not null`, message, back)
		if err == nil && again {
			return true
		}
	}
	return false
}

// A gate lets everybody pass while it is open, and makes them wait while it is
// shut.
type gate struct {
	mu     sync.Mutex
	opened chan struct{}
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) pass() {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	<-opened
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}
