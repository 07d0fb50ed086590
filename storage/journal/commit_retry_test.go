package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/pgdev"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/storagetest"
)

// overProxy returns a dispatch that writes through a proxy. The env does not use the proxy.
func overProxy(t *testing.T) (*env, *storagetest.Proxy, *storagetest.Dispatch) {
	t.Helper()
	h := newEnv(t)
	p, url := storagetest.NewProxy(t, h.URL)
	far := storagetest.Open(t, url)
	d := h.Turn("x")
	d.Writer = far.Writer(d.Record, d.Grant)
	return h, p, d
}

var cuts = map[string]storagetest.Cut{
	"after the commit": storagetest.Unanswer, "before the server has it": storagetest.Lose,
	"on the way": storagetest.Abandon,
}

func done(happened <-chan struct{}) bool {
	select {
	case <-happened:
		return true
	default:
		return false
	}
}

// commits reports whether a request commits a transaction block.
func commits(sent storagetest.Sent) bool { return sent.Commits && sent.Has("commit") }

func TestLostAnswerOfAStep(t *testing.T) {
	for name, what := range cuts {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			// a write with the same number
			h.TurnOf("desk", "worker-1").Write(t, turnlog.Entry{Round: storagetest.Round(1)})
			happened := p.CutNext(what, storagetest.Sent.Executes)
			d.Write(t, turnlog.Entry{
				Round:  storagetest.Round(1, turnkeeper.EffectOnce),
				Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart),
				Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce)},
			})
			if !done(happened) {
				t.Fatal("nothing was cut")
			}
			happened = p.CutNext(what, storagetest.Sent.Executes)
			d.Write(t, turnlog.Entry{
				Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded,
					"ok")}, Events: storagetest.Events(turnkeeper.EventToolResult),
			})
			if !done(happened) {
				t.Fatal("the second entry was not cut")
			}
			d.Write(t, turnlog.Entry{Round: storagetest.Round(2),
				Events: storagetest.Events(turnkeeper.EventRoundStop)})
			view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
			if err != nil {
				t.Fatal(err)
			}
			if view.Turn.InferenceRounds != 2 || view.Turn.ExecutedCalls != 1 || view.Turn.LastSeq != 4 {
				t.Errorf("%d rounds, %d calls, %d events", view.Turn.InferenceRounds, view.Turn.ExecutedCalls,
					view.Turn.LastSeq)
			}
			if n := storagetest.One[int](h, "select max(n) from turnkeeper.journal"); n != 3 {
				t.Errorf("%d entries, want 3", n)
			}
			if stream, err := h.Events(t.Context(), d.Grant.TurnID, 0, 10); err != nil || len(stream) != 4 {
				t.Errorf("%d events, error %v", len(stream), err)
			}
		})
	}
}

func TestLostAnswerOfTheEnd(t *testing.T) {
	testrun.Guard(t)
	for name, what := range cuts {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			happened := p.CutNext(what, storagetest.Sent.Executes)
			d.Finish(t, "done")
			if !done(happened) {
				t.Fatal("nothing was cut")
			}
			if a := h.after(d); a.Reply != "done" || a.Turn != turnkeeper.TurnSucceeded || a.LaneHeld || a.Job != "" {
				t.Errorf("ended as %+v", a)
			}
		})
	}
}

// The connection breaks while the server still runs the write. The writer reads back that nothing
// was written, and tries again. The second attempt waits for the first, and then finds its write.
func TestEchoOfAWriteUnderWay(t *testing.T) {
	for name, entry := range map[string]turnlog.Entry{
		"a step":  {Round: storagetest.Round(1), Events: storagetest.Events(turnkeeper.EventRoundStart)},
		"the end": {Outcome: storagetest.Succeeded("done")},
	} {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			entry.Results = nil
			hold, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = hold.Rollback(context.Background()) }()
			// A step waits at its first lock. The end waits at a later one.
			lock := "select from turnkeeper.turns for update"
			if entry.Outcome != nil {
				lock = "select from turnkeeper.messages for update"
			}
			if _, err := hold.Exec(t.Context(), lock); err != nil {
				t.Fatal(err)
			}
			happened := p.CutNext(storagetest.Abandon, storagetest.Sent.Executes)
			written := make(chan error, 1)
			go func() { written <- d.Append(t.Context(), entry, storagetest.Answered) }()
			h.AwaitLockWaits(2) // the first and the second attempt
			if !done(happened) {
				t.Fatal("nothing was cut")
			}
			if err := hold.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Errorf("the write is on record, and Append says %v", err)
			}
			if n := storagetest.One[int](h, "select max(n) from turnkeeper.journal"); n != 1 {
				t.Errorf("%d entries, want 1", n)
			}
			if entry.Outcome == nil {
				d.Finish(t, "and on")
			}
		})
	}
}

func TestBackendTerminatedInTheMiddle(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns for update"); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		written <- d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{})
	}()
	h.AwaitLockWaits(1)
	h.Exec(
		"select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	d.Finish(t, "done")
	if n := storagetest.One[int](h, "select inference_rounds from turnkeeper.turns_now"); n != 1 {
		t.Errorf("%d rounds, want 1", n)
	}
}

func TestAppendGivesUpWithTheCauseOfItsContext(t *testing.T) {
	_, p, d := overProxy(t)
	p.Plan(func(sent storagetest.Sent) storagetest.Cut {
		if sent.Has("name: ReadBack") {
			return storagetest.Pass
		}
		return storagetest.Lose
	})
	cause := errors.New("the wall")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, cause)
	defer cancel()
	if err := d.Append(ctx, turnlog.Entry{Round: storagetest.Round(1)}, turnlog.Consequence{}); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
}

func TestLostAnswerOfATransactionalCall(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		what storagetest.Cut
		runs int
	}{"after the commit": {storagetest.Unanswer, 1}, "before the commit": {storagetest.Lose, 2}} {
		t.Run(name, func(t *testing.T) {
			h, p, d := overProxy(t)
			d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)})
			happened := p.CutNext(c.what, commits)
			runs := 0
			_, err := d.Transact(t.Context(), storagetest.Start(storagetest.Key(1, 1), "n", 1, turnkeeper.EffectOnce),
				time.Minute, func(ctx context.Context) turnlog.CallResult {
					runs++
					tx, _ := storage.TxFrom(ctx)
					if _,
						err := tx.Exec(ctx,
						"insert into turnkeeper.notes (agent, name, content) values ('clerk', 'run', 'x')"); err != nil {
						t.Error(err)
					}
					return storagetest.Result(storagetest.Key(1, 1), "n", turnkeeper.CallSucceeded, "written")
				})
			if err != nil || !done(happened) {
				t.Fatalf("error %v, cut %v", err, done(happened))
			}
			if runs != c.runs {
				t.Errorf("ran %d times, want %d", runs, c.runs)
			}
			if call := h.Call(d.Grant.TurnID, storagetest.Key(1, 1)); call.State != turnkeeper.CallSucceeded ||
				call.Starts != 1 {
				t.Errorf("the call is %s with %d starts", call.State, call.Starts)
			}
			d.Write(t, turnlog.Entry{Round: storagetest.Round(2)})
			if n := storagetest.One[int](h, "select executed_calls from turnkeeper.turns_now"); n != 1 {
				t.Errorf("%d executed calls", n)
			}
		})
	}
}

// The server stops at once, without waiting for clients, while an entry waits, and starts again.
func TestServerRestartsWhileAppendWaits(t *testing.T) {
	testrun.Slow(t)
	dir, err := os.MkdirTemp("", "turnkeeper-test-") // the server's user can open it, but not the t.TempDir of root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	open := func() *pgdev.Server {
		t.Helper()
		server, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close(context.Background()) })
		return server
	}
	server := open()
	h := &env{storagetest.Open(t, server.URL())}
	if _, err := storagetest.Migrate(t.Context(), h.Store.DB); err != nil {
		t.Fatal(err)
	}
	h.Register("clerk", false)
	d := h.Turn("x")
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1), Events: storagetest.Events(turnkeeper.EventTurnStart)})
	hold, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(context.Background()) }()
	if _, err := hold.Exec(t.Context(), "select from turnkeeper.turns for update"); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		written <- d.Append(t.Context(), turnlog.Entry{Round: storagetest.Round(2),
			Events: storagetest.Events(turnkeeper.EventRoundStart)}, turnlog.Consequence{})
	}()
	h.AwaitLockWaits(1)
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	again := open()
	if again.URL() != server.URL() {
		t.Fatal("the server has moved")
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	d.Finish(t, "done")
	got := fmt.Sprint(storagetest.One[int](h, "select max(n) from turnkeeper.journal"), storagetest.One[int](h,
		"select count(*) from turnkeeper.rounds"),
		storagetest.One[int](h, "select count(*) from turnkeeper.turn_events where type <> 'notice'"),
		storagetest.One[int](h, "select count(*) from turnkeeper.replies"))
	if got != "3 2 2 1" {
		t.Errorf("entries, rounds, events, replies: %s; want 3 2 2 1", got)
	}
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil || pid <= 1 {
		t.Fatalf("process id %q", line)
	}
	return pid
}
