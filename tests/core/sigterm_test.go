package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// stopGrace lets a test reach the end of the shutdown grace. twiceGrace is longer than a test waits: a worker
// that is told to stop twice must not use it. A turn is held until the test ends, so the end of the worker
// does not depend on it.
const (
	stopGrace  = "1s"
	twiceGrace = "1h"
)

// A stopPoint is a place where a turn is held when the worker is told to stop.
type stopPoint struct {
	model    func(inferencetest.Recorded) inferencetest.Reply // the model's replies
	tool     string                                           // held in this tool
	requests int                                              // held when the model got this number of requests
	says     string                                           // held when the worker wrote this
	ends     string                                           // final state and reply, on another worker
	unknown  bool                                             // or degraded, because the outcome of the call is unknown
	runs     int                                              // maximum runs of the call
}

var stopPoints = map[string]stopPoint{
	"idle":                  {ends: "succeeded Done."},
	"before the first byte": {model: env.Rounds(inferencetest.Hang()), requests: 1, ends: "succeeded Done."},
	"in mid-stream":         {model: env.Rounds(env.Drip("Half. ")), requests: 1, ends: "succeeded Done."},
	"in the second call": {model: env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Hang()), requests: 2,
		ends: "succeeded Done.", runs: 1},
	"in a tool, none":      {tool: "mark_none", ends: "succeeded Done.", runs: 2},
	"in a tool, keyed":     {tool: "mark_keyed", ends: "succeeded Done.", runs: 2},
	"in a tool, once":      {tool: "mark_once", ends: "succeeded Done.", unknown: true, runs: 1},
	"in a tool that obeys": {tool: "mark_slow", ends: "succeeded Done.", unknown: true, runs: 1},
	"in a transaction":     {tool: "mark_tx", ends: "succeeded Done.", runs: 2},
	"between rounds":       {model: endless, requests: 4, ends: "succeeded Done.", runs: 99},
	"in the back-off of a call": {
		model: env.Rounds(inferencetest.Fault(503, "overloaded", "Come again.", "Retry-After", "2")),
		says:  "model call failed, trying again", ends: "succeeded Done.",
	},
	"in the back-off of a lane": {model: env.Rounds(inferencetest.Fault(401, "invalid_api_key", "No.")),
		says: "turn failed", ends: "succeeded Done."},
}

// endless calls a marker tool in each round, for longer than the grace.
func endless(r inferencetest.Recorded) inferencetest.Reply {
	next := env.MarkerReply("mark_none", fmt.Sprint("round ", env.RoundOf(r)))
	return func(x *inferencetest.Exchange) { inferencetest.WaitFor(env.After(150*time.Millisecond), next)(x) }
}

func TestSIGTERMAnywhere(t *testing.T) {
	t.Parallel()
	for i, name := range testrun.Sample(slices.Sorted(maps.Keys(stopPoints)), 4) {
		p := stopPoints[name]
		for _, twice := range []bool{false, true} {
			if !testrun.All() && twice != (i%2 == 1) {
				continue
			}
			t.Run(name+map[bool]string{true: ", twice"}[twice], func(t *testing.T) {
				t.Parallel()
				stopAt(t, p, twice)
			})
		}
	}
}

func stopAt(t *testing.T, p stopPoint, twice bool) {
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_none, mark_keyed, mark_once, mark_slow, mark_tx]", "max_rounds: 20",
		"max_tool_calls: 30")
	if p.tool != "" {
		e.Ledger.Hold("a")
		p.model = env.Rounds(env.MarkerReply(p.tool, "a"), inferencetest.Text("Done."))
	}
	if p.model == nil {
		p.model = env.Rounds(inferencetest.Text("Done."))
	}
	e.Model.Then(p.model)
	grace := stopGrace
	if twice {
		grace = twiceGrace
	}
	w := e.StartWorker("--shutdown-grace", grace)
	var message int64
	if p.tool != "" || p.requests > 0 || p.says != "" {
		message = e.Send("clerk", "Do it.")
	}
	if p.tool != "" {
		e.Ledger.Await("a", 1)
	}
	e.AwaitRequests(p.requests)
	w.Await(p.says)

	w.Signal(syscall.SIGTERM)
	if twice {
		w.Await("taking no new turns")
		// The worker may have had nothing to wait for.
		if err := w.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	if code := w.Wait(); code != 0 && (!twice || code != 1) {
		t.Errorf("the worker ended with %d", code)
	}
	e.CountAsLost(w) // it may not have handed back its turn
	wantNothingLeft(e)

	e.Model.Then(env.Rounds(inferencetest.Text("Done.")))
	if p.tool != "" || p.runs > 0 {
		e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
			if env.RoundOf(r) > 1 || p.tool == "" {
				return inferencetest.Text("Done.")
			}
			return env.MarkerReply(p.tool, "a")
		})
	}
	e.Ledger.Release()
	e.StartWorker()
	if message == 0 {
		message = e.Send("clerk", "Do it.")
	}
	turn := e.TurnOf(message)
	ended := turn.State + " "
	if turn.Reply != nil {
		ended += turn.Reply.Body
	}
	if ended != p.ends && (!p.unknown || ended != "degraded Done.\n\n- "+p.tool+
		": unknown: it may or may not have happened") {
		t.Errorf("the turn ended %q (%s)", ended, turn.Error)
	}
	if n := len(e.Ledger.Runs("a")); n > p.runs {
		t.Errorf("the call ran %d times", n)
	}
	if p.tool == "mark_tx" {
		if n := env.Query[int](e, "select count(*) from notes where agent = 'marks'"); n != 1 {
			t.Errorf("%d marks are in the database", n)
		}
	}
}

// A worker gets SIGTERM before it is ready.
func TestSIGTERMDuringTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url   func(testing.TB) string
		hold  string // statement with a lock that blocks the worker
		waits string // query that returns true when the worker waits
	}{
		"while another migrates": {
			storagetest.EmptyURL, "select pg_advisory_lock(7283641190022)",
			"select exists (select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and query ~ 'pg_try_advisory_lock')",
		},
		"in a migration": {storagetest.EmptyURL, `create schema turnkeeper;
			create table turnkeeper.schema_migrations (version integer primary key, name text, applied_at timestamptz, oldest_program integer);
			begin; lock turnkeeper.schema_migrations in share mode`, lockAwaited},
		"while it registers agents": {storagetest.URL, "begin; lock turnkeeper.agents", lockAwaited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.NewOn(t, c.url(t))
			e.WriteAgent("clerk")
			e.Model.Then(env.Rounds(inferencetest.Text("Done.")))
			tx, release := holdLocks(e, c.hold)
			w := e.LaunchWorker("--shutdown-grace", stopGrace)
			e.Await("the worker waits", c.waits)
			if code := w.Terminate(); code != 130 { // while the lock is held
				t.Errorf("the worker ended with %d", code)
			}
			wantNothingLeft(e, tx)
			release()
			e.StartWorker()
			e.WantEnd(e.TurnOf(e.Send("clerk", "Hello")), "succeeded", "none", 1)
		})
	}
}

const lockAwaited = `select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
	where not l.granted and a.datname = current_database())`

// holdLocks runs SQL on a connection that keeps its locks until release.
func holdLocks(e *env.Env, sql string) (pid int, release func()) {
	e.T.Helper()
	conn, err := e.DB.Acquire(e.T.Context())
	if err != nil {
		e.T.Fatal(err)
	}
	if _, err := conn.Exec(e.T.Context(), sql); err != nil {
		e.T.Fatal(err)
	}
	pid = int(conn.Conn().PgConn().PID())
	release = sync.OnceFunc(func() { _ = conn.Hijack().Close(context.WithoutCancel(e.T.Context())) })
	e.T.Cleanup(release) // the pool's end waits for it
	return pid, release
}

// The only worker is told to stop while it is notified of a grant.
func TestSIGTERMWhileAGrantIsOnItsWay(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Done.")))
	e.StartWorker("--roles", "scheduler", "--poll-interval", "200ms")
	w := e.StartWorker("--roles", "worker")
	w.Signal(syscall.SIGSTOP)
	message := e.Send("clerk", "Do it.")
	e.Await("the turn is granted", "select exists (select from leases where grant_id is not null)")
	w.Signal(syscall.SIGTERM)
	w.Signal(syscall.SIGCONT)
	if code := w.Wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	e.StartWorker("--roles", "worker")
	e.WantEnd(e.TurnOf(message), "succeeded", "none", 2)
	e.Ledger.WantRuns("a", 1)
}

// wantNothingLeft fails the test if a process of this Env runs, or a connection is open that is not the test's
// own or in except.
func wantNothingLeft(e *env.Env, except ...int) {
	e.T.Helper()
	e.Await("all connections of the worker are gone", `
		select not exists (select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
			and application_name <> $1 and not pid = any($2))`, env.ApplicationName, except)
	if runtime.GOOS != "linux" {
		return
	}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		e.T.Fatal(err)
	}
	home := []byte("HOME=" + e.Dir)
	for _, file := range all {
		// skip processes that end meanwhile and those of other users
		if environ, err := os.ReadFile(file); err == nil && bytes.Contains(environ, append(home, 0)) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			e.T.Errorf("a process is left: %s %s", strings.Split(file, "/")[2], bytes.ReplaceAll(command,
				[]byte{0}, []byte(" ")))
		}
	}
}
