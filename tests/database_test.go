package tests_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// patientWorker are the flags of a worker that is not given up while a busy
// machine brings its database back.
var patientWorker = []string{"--takeover-after", "45s"}

// TestTheDatabaseGoesAwayUnderLoad cuts every connection, and crashes and
// restarts Postgres, again and again, while messages arrive and two workers
// answer them with turns that have a call of each effect.
func TestTheDatabaseGoesAwayUnderLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(sharedFolder(t), "postgres")
	server := startPostgres(t, dir)
	migrate(t, server.URL())
	h := newHouseOn(t, server.URL())
	h.agent("clerk", marks, "lane: conversation")
	var asked atomic.Int64
	due := make(chan struct{}, 10000)
	h.model.Then(func(r recorded) reply {
		if asked.Add(1)%20 == 0 {
			due <- struct{}{}
		}
		return standardTurn(r)
	})
	h.startWorker(patientWorker...)
	h.startWorker(patientWorker...)
	load := h.startLoad(50 * time.Millisecond)
	for range faults(2, 15) {
		for range 2 {
			<-due
			h.await("every connection is cut", `select count(pg_terminate_backend(pid)) >= 0 from pg_stat_activity
				where pid <> pg_backend_pid() and backend_type = 'client backend'`)
		}
		<-due
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		startPostgres(t, dir)
	}
	load.finish()
}

// TestEachBackendIsTerminated ends the sessions of the worker, pool after pool,
// in each round of a turn: while the model is asked, so that the round's writes
// find them gone.
func TestEachBackendIsTerminated(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "lane: conversation")
	type moment struct {
		pool  string
		round int
	}
	moments := map[string]moment{}
	h.model.Then(func(r recorded) reply {
		m, ok := moments[newest(r)]
		if !ok || roundOf(r) != m.round {
			return standardTurn(r)
		}
		return meanwhile(func() { h.terminate(m.pool) }, standardTurn(r))
	})
	for run := range faults(1, 20) {
		for _, pool := range []string{"turnkeeper", "turnkeeper finish", "turnkeeper queue", "turnkeeper bell"} {
			for round := 1; round <= 3; round++ {
				moments[fmt.Sprintf("%s, round %d (%d)", pool, round, run)] = moment{pool, round}
			}
		}
	}
	h.startWorker(patientWorker...)
	h.answered(h.acceptClosed("warm"), "warm") // each pool has a session now
	for body := range moments {
		h.answered(h.acceptClosed(body), body)
	}
}

// acceptClosed sends a message to the clerk and returns when it is closed.
func (h *house) acceptClosed(body string) int64 {
	h.t.Helper()
	message, refusals := h.accept("clerk", body)
	if len(refusals) > 0 {
		h.t.Errorf("%q was refused: %q", body, refusals)
	}
	h.awaitClosed(message)
	return message
}

// terminate ends the sessions with an application's name.
func (h *house) terminate(application string) {
	n, err := ask[int](h, `select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = $1 and datname = current_database() and pid <> pg_backend_pid()) ended`, application)
	if err != nil || n == 0 {
		h.t.Errorf("%d sessions of %q were ended, %v", n, application, err)
	}
}

// TestASmallPool has more turns at once than connections.
func TestASmallPool(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "lane: conversation")
	h.model.Then(standardTurn)
	h.startWorker(append([]string{"--db-pool-size", "2"}, patientWorker...)...)
	load := h.startLoad(50 * time.Millisecond)
	h.await("some are answered", "select count(*) > $1 from replies", faults(20, 500))
	load.finish()
}

// TestNoConnectionIsLeft: others hold all connections that the server has, and
// the worker's are ended, so that it can do nothing; an effect whose start
// cannot be recorded is not begun.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	server := startPostgresWith(t, pgdev.Options{
		Dir: filepath.Join(sharedFolder(t), "postgres"), Settings: map[string]string{"max_connections": "20"},
	})
	migrate(t, server.URL())
	h := newHouseOn(t, server.URL())
	h.agent("clerk", marks)
	crowd := &crowd{h: h}
	t.Cleanup(crowd.leave)
	full := make(chan struct{})
	h.model.Then(func(r recorded) reply {
		if roundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			crowd.fill()
			close(full)
		}, rounds(callOnce("mark_once", "a once"))(r))
	})
	w := h.startWorker(patientWorker...)
	message := h.send("clerk", "a")
	<-full
	w.await("too many clients already")
	r := h.run("b", "enqueue", "--agent", "clerk", "--key", "b", "-")
	if r.code != 1 || !plainSentence(r.stderr) {
		t.Errorf("enqueue ended with %d and said %q", r.code, r.stderr)
	}
	h.ledger.ran("a once", 0)
	crowd.leave()
	h.awaitClosed(message)
	h.ledger.ran("a once", 1)
}

// A crowd holds every connection of a server.
type crowd struct {
	h    *house
	held []*pgx.Conn
}

// fill returns when the worker has no connection and can get none.
func (c *crowd) fill() {
	for empty := 0; empty < 3; empty++ {
		for conn, err := pgx.Connect(context.Background(), c.h.url); err == nil; conn, err = pgx.Connect(context.Background(), c.h.url) {
			c.held = append(c.held, conn)
		}
		n, err := ask[int](c.h, `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'turnkeeper%'`)
		if err != nil {
			c.h.t.Error(err)
			return
		}
		if n > 0 {
			empty = 0
		}
	}
}

func (c *crowd) leave() {
	for _, conn := range c.held {
		_ = conn.Close(context.Background())
	}
	c.held = nil
}

// TestNoEffectWithoutTheDatabase: the database is away when the model asks for a
// call. Its start cannot be recorded, so it does not start; when the database is
// back, all goes on.
func TestNoEffectWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	h, p := newHouseBehindProxy(t)
	h.agent("clerk", marks)
	away := make(chan struct{})
	h.model.Then(func(r recorded) reply {
		if roundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			p.Refuse(true)
			p.Break()
			close(away)
		}, rounds(callOnce("mark_once", "a once"))(r))
	})
	w := h.startWorker(patientWorker...)
	message := h.send("clerk", "a")
	<-away
	r := h.run("b", "enqueue", "--agent", "clerk", "-")
	if r.code != 1 || !plainSentence(r.stderr) {
		t.Errorf("enqueue ended with %d and said %q", r.code, r.stderr)
	}
	w.await("the heartbeat could not be written") // seconds after the write was tried first
	h.ledger.ran("a once", 0)
	p.Refuse(false)
	h.awaitClosed(message)
	h.ledger.ran("a once", 1)
}

// TestTheEndWaitsForTheDatabase: the database is away when a turn ends, for
// longer than the end's own grace, while the turn has time left.
func TestTheEndWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	h, p := newHouseBehindProxy(t)
	h.agent("clerk")
	away := make(chan struct{})
	h.model.Add(meanwhile(func() {
		p.Refuse(true)
		p.Break()
		close(away)
	}, text("Done.")))
	h.model.Then(rounds(text("Done once more.")))
	h.startWorker(patientWorker...)
	message := h.send("clerk", "a")
	<-away
	<-after(12 * time.Second)
	p.Refuse(false)
	turn := h.turnOf(message)
	h.replied(turn, "Done.")
	if turn.Dispatches != 1 {
		t.Errorf("the turn was dispatched %d times", turn.Dispatches)
	}
}

// TestATurnThatCouldNotEndIsGivenBack: the database is away for longer than a
// turn has. The worker is alive when it is back, and goes on with the turn long
// before its lease ends.
func TestATurnThatCouldNotEndIsGivenBack(t *testing.T) {
	t.Parallel()
	h, p := newHouseBehindProxy(t)
	h.agent("clerk", marks, "max_duration: 3s")
	away := make(chan struct{})
	h.model.Then(rounds(callOnce("mark_once", "a"), text("Done.")))
	h.model.Add(callOnce("mark_once", "a"), meanwhile(func() {
		p.Refuse(true)
		p.Break()
		close(away)
	}, text("Done.")))
	w := h.startWorker(patientWorker...)
	message := h.send("clerk", "a")
	<-away
	w.await("the turn stops here")
	p.Refuse(false)
	turn := h.turnOf(message)
	h.replied(turn, "Done.")
	h.ledger.ran("a", 1)
	if turn.Dispatches != 2 || turn.Losses != 1 {
		t.Errorf("the turn had %d dispatches, %d losses", turn.Dispatches, turn.Losses)
	}
}

func startPostgres(t testing.TB, dir string) *pgdev.Server {
	t.Helper()
	return startPostgresWith(t, pgdev.Options{Dir: dir})
}

func startPostgresWith(t testing.TB, options pgdev.Options) *pgdev.Server {
	t.Helper()
	server, err := pgdev.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func migrate(t testing.TB, url string) {
	t.Helper()
	store, err := storage.Open(t.Context(), storage.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := jobs.Migrate(t.Context(), store, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

// TestASlowDatabase delays all that goes to the database, and in the long form
// also each write of a turn by itself for longer.
func TestASlowDatabase(t *testing.T) {
	t.Parallel()
	h, p := newHouseBehindProxy(t)
	h.agent("clerk", marks, "lane: conversation")
	h.model.Then(standardTurn)
	h.startWorker(patientWorker...)
	steps := h.standardSteps(p)
	delay := func(d time.Duration, match func(sent) bool) {
		p.Plan(func(s sent) storagetest.Cut {
			if match(s) {
				<-after(d)
			}
			return storagetest.Pass
		})
	}
	delay(30*time.Millisecond, sent.Executes)
	load := h.startLoad(50 * time.Millisecond)
	h.await("some are answered", "select count(*) > $1 from replies", faults(10, 200))
	load.finish()
	if !longFaults {
		return
	}
	for _, place := range places(steps) {
		delay(8*time.Second, place.at())
		h.answered(h.acceptClosed("late "+place.name), "late "+place.name)
	}
}
