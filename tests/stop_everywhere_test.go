package tests_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/storage/storagetest"
)

// How long a worker may take to end beyond its grace: a tool that does not obey
// is left behind after a moment, and turns are then handed back. And how long
// one that is told twice may take. On a machine that is busy with other tests;
// docs/upgrading.md promises the product's own bounds.
const (
	stopGrace  = time.Second
	stopBound  = 5 * time.Second
	twiceBound = 3500 * time.Millisecond
)

// A holdUp is where a turn is held when the worker is told to stop.
type holdUp struct {
	model    func(recorded) reply // what the model answers while it is held
	tool     string               // it is held in this tool
	requests int                  // it is held when the model got so many requests
	says     string               // it is held when the worker has said this
	ends     string               // state and reply in the end, elsewhere
	unknown  bool                 // or degraded, since nobody knows what became of the call
	runs     int                  // of the call in all, at most
}

var holdUps = map[string]holdUp{
	"idle":                  {ends: "succeeded Done."},
	"before the first byte": {model: rounds(hang()), requests: 1, ends: "succeeded Done."},
	"in mid-stream":         {model: rounds(drip("Half. ")), requests: 1, ends: "succeeded Done."},
	"in the second call":    {model: rounds(callOnce("mark_once", "a"), hang()), requests: 2, ends: "succeeded Done.", runs: 1},
	"in a tool, none":       {tool: "mark_none", ends: "succeeded Done.", runs: 2},
	"in a tool, keyed":      {tool: "mark_keyed", ends: "succeeded Done.", runs: 2},
	"in a tool, once":       {tool: "mark_once", ends: "succeeded Done.", unknown: true, runs: 1},
	"in a tool that obeys":  {tool: "mark_slow", ends: "succeeded Done.", unknown: true, runs: 1},
	"in a transaction":      {tool: "mark_tx", ends: "succeeded Done.", runs: 2},
	"between rounds":        {model: endless, requests: 4, ends: "succeeded Done.", runs: 99},
	"in the back-off of a call": {
		model: rounds(fault(503, "overloaded", "Come again.", "Retry-After", "20")), says: "model call failed, trying again", ends: "succeeded Done.",
	},
	"in the back-off of a lane": {model: rounds(fault(401, "invalid_api_key", "No.")), says: "turn failed", ends: "succeeded Done."},
}

// endless asks for one more mark at each round, for longer than the grace.
func endless(r recorded) reply {
	next := callOnce("mark_none", fmt.Sprint("round ", roundOf(r)))
	return func(x *inferencetest.Exchange) { waitFor(after(150*time.Millisecond), next)(x) }
}

func TestSIGTERMAnywhere(t *testing.T) {
	t.Parallel()
	for name, p := range holdUps {
		for _, twice := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", twice"}[twice], func(t *testing.T) {
				t.Parallel()
				stopAt(t, p, twice)
			})
		}
	}
}

func stopAt(t *testing.T, p holdUp, twice bool) {
	h := newHouse(t)
	h.agent("clerk", "tools: [mark_none, mark_keyed, mark_once, mark_slow, mark_tx]", "max_rounds: 20", "max_tool_calls: 30")
	if p.tool != "" {
		h.ledger.hold("a")
		p.model = rounds(callOnce(p.tool, "a"), text("Done."))
	}
	if p.model == nil {
		p.model = rounds(text("Done."))
	}
	h.model.Then(p.model)
	flags := []string{"--shutdown-grace", stopGrace.String(), "--takeover-after", silence}
	w := h.startWorker(flags...)
	var message int64
	if p.tool != "" || p.requests > 0 || p.says != "" {
		message = h.send("clerk", "Do it.")
	}
	if p.tool != "" {
		h.ledger.await("a", 1)
	}
	h.awaitRequests(p.requests)
	w.await(p.says)

	began, bound := time.Now(), stopGrace+stopBound
	w.signal(syscall.SIGTERM)
	if twice {
		w.await("no new turns are taken")
		began, bound = time.Now(), twiceBound
		// The worker may have had nothing to wait for.
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	code, took := w.wait(), time.Since(began)
	if took > bound {
		t.Errorf("the worker took %s to end", took)
	}
	if code != 0 && (!twice || code != 1) {
		t.Errorf("the worker ended with %d", code)
	}
	h.nothingLeft()

	h.model.Then(rounds(text("Done.")))
	if p.tool != "" || p.runs > 0 {
		h.model.Then(func(r recorded) reply {
			if roundOf(r) > 1 || p.tool == "" {
				return text("Done.")
			}
			return callOnce(p.tool, "a")
		})
	}
	h.ledger.release()
	h.startWorker(flags...)
	if message == 0 {
		message = h.send("clerk", "Do it.")
	}
	turn := h.turnOf(message)
	ended := turn.State + " "
	if turn.Reply != nil {
		ended += turn.Reply.Body
	}
	if ended != p.ends && (!p.unknown || ended != "degraded Done.") {
		t.Errorf("the turn ended %q (%s)", ended, turn.Error)
	}
	if n := len(h.ledger.runs("a")); n > p.runs {
		t.Errorf("the call ran %d times", n)
	}
	if p.tool == "mark_tx" {
		if n := query[int](h, "select count(*) from notes where agent = 'marks'"); n != 1 {
			t.Errorf("%d marks are in the database", n)
		}
	}
}

// A worker that is told to stop before it takes work.
func TestSIGTERMDuringTheStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url   func(testing.TB) string
		hold  string // keeps the worker from going on
		waits string // says that it does
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
			h := newHouseOn(t, c.url(t))
			h.agent("clerk")
			h.model.Then(rounds(text("Done.")))
			tx, release := h.holder(c.hold)
			w := h.launchWorker("--shutdown-grace", stopGrace.String())
			h.await("the worker waits", c.waits)
			began := time.Now()
			if code := w.terminate(); code != 130 {
				t.Errorf("the worker ended with %d", code)
			}
			if took := time.Since(began); took > stopBound {
				t.Errorf("the worker took %s to end", took)
			}
			h.nothingLeft(tx)
			release()
			h.startWorker()
			h.ended(h.turnOf(h.send("clerk", "Hello")), "succeeded", "none", 1)
		})
	}
}

const lockAwaited = `select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
	where not l.granted and a.datname = current_database())`

// holder runs SQL on a connection that keeps what it locked until release.
func (h *house) holder(sql string) (pid int, release func()) {
	h.t.Helper()
	conn, err := h.db.Acquire(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := conn.Exec(h.t.Context(), sql); err != nil {
		h.t.Fatal(err)
	}
	gone := func() { _ = conn.Hijack().Close(h.t.Context()) }
	return int(conn.Conn().PgConn().PID()), gone
}

// The grant is on its way when the only worker is told to stop: the worker
// wakes to both.
func TestSIGTERMWhileAGrantIsOnItsWay(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), text("Done.")))
	h.startWorker("--roles", "scheduler", "--poll-interval", "200ms")
	w := h.startWorker("--roles", "worker", "--shutdown-grace", stopGrace.String())
	w.signal(syscall.SIGSTOP)
	message := h.send("clerk", "Do it.")
	h.await("the turn is granted", "select exists (select from leases where grant_id is not null)")
	w.signal(syscall.SIGTERM)
	w.signal(syscall.SIGCONT)
	began := time.Now()
	if code := w.wait(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if took := time.Since(began); took > stopGrace+stopBound {
		t.Errorf("the worker took %s to end", took)
	}
	h.startWorker("--roles", "worker")
	h.ended(h.turnOf(message), "succeeded", "none", 2)
	h.ledger.ran("a", 1)
}

// nothingLeft fails the test if a process of this house lives, or a connection
// that is not the test's own or one of except.
func (h *house) nothingLeft(except ...int) {
	h.t.Helper()
	h.await("all connections of the worker are gone", `
		select not exists (select from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
			and application_name <> $1 and not pid = any($2))`, ownName, except)
	if runtime.GOOS != "linux" {
		return
	}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		h.t.Fatal(err)
	}
	home := []byte("HOME=" + h.dir)
	for _, file := range all {
		// A process that ends meanwhile, or is another user's, is not ours.
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(env, append(home, 0)) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			h.t.Errorf("a process is left: %s %s", strings.Split(file, "/")[2], bytes.ReplaceAll(command, []byte{0}, []byte(" ")))
		}
	}
}

// ownName is what the test's own connections are called.
const ownName = "the test"
