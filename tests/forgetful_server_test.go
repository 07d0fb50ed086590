package tests_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/pgdev"
)

// TestPostgresForgetsThatAJobWasFetched crashes Postgres just after River has
// fetched a job. River's commits do not wait for the disk, so the server may
// have forgotten it when it is back, and give the job out again while its first
// worker is at it: the turn is worked once all the same.
func TestPostgresForgetsThatAJobWasFetched(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(sharedFolder(t), "postgres")
	options := pgdev.Options{Dir: dir, Settings: map[string]string{"wal_writer_delay": "10s"}}
	server := startPostgresWith(t, options)
	migrate(t, server.URL())
	h := newHouseOn(t, server.URL())
	h.agent("clerk", marks)
	asked := make(chan struct{}, 100)
	answers := newGate()
	t.Cleanup(answers.open)
	h.model.Then(func(r recorded) reply {
		if roundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			asked <- struct{}{}
			answers.pass()
		}, standardTurn(r))
	})
	h.startWorker(patientWorker...)
	h.startWorker(patientWorker...)
	forgotten := 0
	for n := range faults(2, 20) {
		answers.shut()
		body := fmt.Sprint("message ", n)
		message := h.send("clerk", body)
		<-asked
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		startPostgresWith(t, options)
		if h.givenAgain(message) {
			forgotten++
		}
		answers.open()
		h.awaitClosed(message)
		h.answered(message, body)
		for len(asked) > 0 {
			<-asked // by the second worker
		}
	}
	t.Logf("%d of %d fetches were forgotten", forgotten, faults(2, 20))
	if longFaults && forgotten == 0 {
		t.Error("the server forgot no fetch")
	}
}

// givenAgain says whether the job of a message's turn is fetched once more,
// within the time in which River looks for jobs by itself.
func (h *house) givenAgain(message int64) bool {
	const looks = 3 * time.Second
	h.await("the server is back", "select true")
	back := query[time.Time](h, "select pg_postmaster_start_time()")
	for end := time.Now().Add(looks); time.Now().Before(end); <-after(50 * time.Millisecond) {
		again, err := ask[bool](h, `select j.attempted_at > $2 from messages m join turns t on t.id = m.turn_id
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
