package faults_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// Every connection is cut, and Postgres crashes and restarts, again and again, while two workers answer
// messages with calls of each effect.
func TestTheDatabaseGoesAwayUnderLoad(t *testing.T) {
	t.Parallel()
	dir := env.ServerDir(t)
	server := startPostgres(t, dir)
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	var asked atomic.Int64
	due := make(chan struct{}, 10000)
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if asked.Add(1)%20 == 0 {
			due <- struct{}{}
		}
		return standardTurn(r)
	})
	e.StartWorker()
	e.StartWorker()
	load := startLoad(e, 50*time.Millisecond)
	for range env.FaultCount(2, 15) {
		for range 2 {
			<-due
			e.Await("every connection is cut", `select count(pg_terminate_backend(pid)) >= 0 from pg_stat_activity
				where pid <> pg_backend_pid() and backend_type = 'client backend'`)
		}
		<-due
		if err := syscall.Kill(env.PostmasterPID(t, dir), syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		startPostgres(t, dir)
	}
	load.finish()
}

// The sessions of the worker are terminated, pool after pool, in each round of a turn, during the model call.
// The writes of the round find them closed.
func TestEachBackendIsTerminated(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	type moment struct {
		pool  string
		round int
	}
	moments, terminated := map[string]moment{}, map[string]int{}
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		m, ok := moments[env.NewestMessage(r)]
		if !ok || env.RoundOf(r) != m.round {
			return standardTurn(r)
		}
		// A pool may have dropped its sessions just before, because of a failure in another pool.
		return meanwhile(func() { terminated[m.pool] += terminateSessions(e, m.pool) }, standardTurn(r))
	})
	pools := []string{"turnkeeper", "turnkeeper finish", "turnkeeper queue", "turnkeeper bell"}
	for run := range env.FaultCount(1, 20) {
		for _, pool := range pools {
			for round := 1; round <= 3; round++ {
				moments[fmt.Sprintf("%s, round %d (%d)", pool, round, run)] = moment{pool, round}
			}
		}
	}
	e.StartWorker()
	wantAnswered(e, acceptAndAwait(e, "warm"), "warm") // each pool now has a session
	warm := 0
	for body, m := range moments {
		const sessions = "select count(*) > 0 from pg_stat_activity where application_name = $1 and datname = current_database()"
		// A pool may drop its new session too, once it gets a late error of an old one: perhaps just after this has
		// seen it.
		for until := time.Now().Add(env.Patience); !env.Query[bool](e, sessions, m.pool); warm++ {
			if time.Now().After(until) {
				t.Fatalf("the pool %s still has no session after %d messages", m.pool, warm)
			}
			// its text is its key: with an old one it would be no new message
			acceptAndAwait(e, fmt.Sprint("warm ", warm))
		}
		wantAnswered(e, acceptAndAwait(e, body), body)
	}
	for _, pool := range pools {
		if terminated[pool] == 0 {
			t.Errorf("no session of %q was terminated", pool)
		}
	}
}

// acceptAndAwait sends a message to clerk and waits until it is closed.
func acceptAndAwait(e *env.Env, body string) int64 {
	e.T.Helper()
	message, refusals := acceptMessage(e, "clerk", body)
	if len(refusals) > 0 {
		e.T.Errorf("%q was refused: %q", body, refusals)
	}
	e.AwaitClosed(message)
	return message
}

// terminateSessions terminates the sessions with an application name, and returns their number.
func terminateSessions(e *env.Env, application string) int {
	n, err := env.TryQuery[int](e, `select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = $1 and datname = current_database() and pid <> pg_backend_pid()) ended`, application)
	if err != nil {
		e.T.Errorf("sessions of %q were not terminated: %v", application, err)
	}
	return n
}

// More turns run at once than there are connections.
func TestASmallPool(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.Model.Then(standardTurn)
	e.StartWorker("--db-pool-size", "2")
	load := startLoad(e, 50*time.Millisecond)
	e.Await("some are answered", "select count(*) > $1 from replies", env.FaultCount(20, 500))
	load.finish()
}

// All connections of the server are in use by others, and the worker's are terminated. An effect whose start
// cannot be recorded does not run.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	server := startPostgresWith(t, pgdev.Options{
		Dir: env.ServerDir(t), Settings: map[string]string{"max_connections": "20"},
	})
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", env.MarkerTools)
	crowd := &connectionHog{h: e}
	t.Cleanup(crowd.leave)
	full := make(chan struct{})
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			crowd.fill()
			close(full)
		}, env.Rounds(env.MarkerReply("mark_once", "a once"))(r))
	})
	w := e.StartWorker()
	message := e.Send("clerk", "a")
	<-full
	w.Await("too many clients already")
	r := e.Run("b", "enqueue", "--agent", "clerk", "--key", "b", "-")
	if r.Code != 1 || !plainSentence(r.Stderr) {
		t.Errorf("enqueue ended with %d and printed %q", r.Code, r.Stderr)
	}
	e.Ledger.WantRuns("a once", 0)
	crowd.leave()
	e.AwaitClosed(message)
	e.Ledger.WantRuns("a once", 1)
}

// A connectionHog uses all connections of a server.
type connectionHog struct {
	h    *env.Env
	held []*pgx.Conn
}

// fill takes connections until the server has no other sessions than those of the test, and no room for more.
func (c *connectionHog) fill() {
	for full := false; !full; {
		for conn, err := pgx.Connect(context.Background(), c.h.DatabaseURL); err == nil; conn,
			err = pgx.Connect(context.Background(), c.h.DatabaseURL) {
			c.held = append(c.held, conn)
		}
		var err error
		full, err = env.TryQuery[bool](c.h, `
			select count(*) filter (where application_name like 'turnkeeper%' and pg_terminate_backend(pid)) = 0 and
				count(*) = current_setting('max_connections')::integer - case when (
					select rolsuper from pg_roles where rolname = current_user
				) then 0 else current_setting('superuser_reserved_connections')::integer end
			from pg_stat_activity where backend_type = 'client backend'`)
		if err != nil {
			c.h.T.Error(err)
			return
		}
	}
}

func (c *connectionHog) leave() {
	for _, conn := range c.held {
		_ = conn.Close(context.Background())
	}
	c.held = nil
}

// The database is unavailable when the model makes a call. The call does not run, because its start cannot be
// recorded. When the database is back, the turn continues.
func TestNoEffectWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	e, p := newEnvBehindProxy(t)
	e.WriteAgent("clerk", env.MarkerTools)
	away := make(chan struct{})
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) > 1 {
			return standardTurn(r)
		}
		return meanwhile(func() {
			p.Refuse(true)
			p.Break()
			close(away)
		}, env.Rounds(env.MarkerReply("mark_once", "a once"))(r))
	})
	w := e.StartWorker()
	message := e.Send("clerk", "a")
	<-away
	r := e.Run("b", "enqueue", "--agent", "clerk", "-")
	if r.Code != 1 || !plainSentence(r.Stderr) {
		t.Errorf("enqueue ended with %d and printed %q", r.Code, r.Stderr)
	}
	w.Await("the database is still unavailable") // seconds after the first attempt
	e.Ledger.WantRuns("a once", 0)
	p.Refuse(false)
	e.AwaitClosed(message)
	e.Ledger.WantRuns("a once", 1)
}

// The database is unavailable at the end of a turn, for longer than the grace of the end, while the turn has
// time left.
func TestTheEndWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	e, p := newEnvBehindProxy(t)
	e.WriteAgent("clerk")
	away := make(chan struct{})
	e.Model.Add(meanwhile(func() {
		p.Refuse(true)
		p.Break()
		close(away)
	}, inferencetest.Text("Done.")))
	e.Model.Then(env.Rounds(inferencetest.Text("Done once more.")))
	e.StartWorker()
	message := e.Send("clerk", "a")
	<-away
	<-env.After(12 * time.Second)
	p.Refuse(false)
	turn := e.TurnOf(message)
	e.WantReply(turn, "Done.")
	if turn.Dispatches != 1 {
		t.Errorf("the turn was dispatched %d times", turn.Dispatches)
	}
}

// The database is unavailable for longer than the turn's time. When it is back, the worker continues the turn
// long before the lease ends.
func TestATurnThatCouldNotEndIsGivenBack(t *testing.T) {
	t.Parallel()
	e, p := newEnvBehindProxy(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_duration: 20s")
	away := make(chan struct{})
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
	e.Model.Add(env.MarkerReply("mark_once", "a"), meanwhile(func() {
		p.Refuse(true)
		p.Break()
		close(away)
	}, inferencetest.Text("Done.")))
	w := e.StartWorker()
	message := e.Send("clerk", "a")
	<-away
	w.Await("the turn failed; the scheduler will reclaim it")
	p.Refuse(false)
	turn := e.TurnOf(message)
	e.WantReply(turn, "Done.")
	e.Ledger.WantRuns("a", 1)
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
	store, err := operate.Open(t.Context(), storage.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := jobs.Migrate(t.Context(), store.DB, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

// All requests to the database are delayed. The long form also delays each write of a turn for longer.
func TestASlowDatabase(t *testing.T) {
	t.Parallel()
	e, p := newEnvBehindProxy(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.Model.Then(standardTurn)
	e.StartWorker()
	steps := countStandardSteps(e, p)
	delay := func(d time.Duration, match func(storagetest.Sent) bool) {
		p.Plan(func(s storagetest.Sent) storagetest.Cut {
			if match(s) {
				<-env.After(d)
			}
			return storagetest.Pass
		})
	}
	delay(30*time.Millisecond, storagetest.Sent.Executes)
	load := startLoad(e, 50*time.Millisecond)
	e.Await("some are answered", "select count(*) > $1 from replies", env.FaultCount(10, 200))
	load.finish()
	if !env.LongFaults {
		return
	}
	for _, place := range places(steps) {
		delay(8*time.Second, place.at())
		wantAnswered(e, acceptAndAwait(e, "late "+place.name), "late "+place.name)
	}
}
