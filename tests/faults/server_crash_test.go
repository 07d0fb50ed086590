package faults_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pgdev"
	"turnkeeper/jobs"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
	"turnkeeper/tests/internal/faultpoint"
)

// lazyServer returns the options of a server that loses asynchronous commits in a crash.
func lazyServer(dir string) pgdev.Options {
	return pgdev.Options{Dir: dir, Settings: map[string]string{"wal_writer_delay": "10s"}}
}

// crash stops Postgres with SIGQUIT and starts it again.
func crash(t *testing.T, options pgdev.Options) {
	t.Helper()
	if err := syscall.Kill(env.PostmasterPID(t, options.Dir), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	startPostgresWith(t, options)
}

// forgetFetch makes River give out a job again, as after a crash that lost the fetch. It reports whether the
// crash did lose it.
func forgetFetch(e *env.Env, message int64) (forgotten bool) {
	e.T.Helper()
	e.Await("the server is back", "select true")
	job := env.Query[int64](e, "select t.job_id from messages m join turns t on t.id = m.turn_id where m.id = $1",
		message)
	again := env.Query[int](e,
		`with j as (update river_job set state = 'available', attempt = 0, attempted_at = null, attempted_by = null
		where id = $1 and state = 'running' returning true) select count(*) from j`, job)
	return again == 0
}

// oneSlot is the flags of a worker that gets its turns from River, and cannot fetch its own job again.
var oneSlot = []string{"--roles", "worker", "--worker-slots", "1"}

// awaitLeftOrAsked waits until a worker that got another worker's job has left it or, wrongly, called its
// model.
func awaitLeftOrAsked[T any](e *env.Env, worker string, message int64, asked chan T) {
	e.T.Helper()
	end := time.Now().Add(env.Patience)
	for len(asked) == 0 && env.Query[bool](e, `select j.state in ('available', 'running')
			from turns t join river_job j on j.id = t.job_id where t.message_id = $1`, message) {
		if time.Now().After(end) {
			e.T.Fatalf("the %s worker has not left the job", worker)
		}
		<-env.After(50 * time.Millisecond)
	}
}

// Postgres crashes just after River has fetched a job. River's commits are asynchronous, so the server may
// have lost the fetch: the job is given to a second worker while the first still runs it. The second worker
// finds out before it calls its model.
func TestPostgresForgetsThatAJobWasFetched(t *testing.T) {
	t.Parallel()
	options := lazyServer(env.ServerDir(t))
	server := startPostgresWith(t, options)
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", env.MarkerTools)
	e.StartWorker("--roles", "scheduler")
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
	forgotten := 0
	for n := range env.FaultCount(2, 10) {
		answers.shut()
		hook := env.NewHookServer(t, jobs.PointFetched)
		for _, variable := range hook.Environ() {
			name, value, _ := strings.Cut(variable, "=")
			e.Vars[name] = value
		}
		first := e.StartWorker(oneSlot...)
		delete(e.Vars, faultpoint.URLVariable)
		body := fmt.Sprint("message ", n)
		message := e.Send("clerk", body)
		fetched := hook.Await()
		crash(t, options)
		if forgetFetch(e, message) {
			forgotten++
		}
		second := e.StartWorker(oneSlot...)
		<-asked // the second worker's request
		fetched.Resume()
		awaitLeftOrAsked(e, "first", message, asked)
		answers.open()
		e.AwaitClosed(message)
		wantAnswered(e, message, body)
		if n := len(asked); n != 0 {
			t.Errorf("models got %d more requests", n)
		}
		first.Stop()
		second.Stop()
	}
	t.Logf("%d of %d fetches were forgotten by the server itself", forgotten, env.FaultCount(2, 10))
	if env.LongFaults && forgotten == 0 {
		t.Error("the server forgot no fetch")
	}
}

// Postgres crashes while a worker waits for its model, and the job is given to a second worker, whose model
// makes another call. The first worker's write is lost, and it reads back when the second could have written.
// It must not take the second worker's entry for its own, and its tool must not run.
func TestTwoWorkersAreGivenOneGrant(t *testing.T) {
	t.Parallel()
	options := lazyServer(env.ServerDir(t))
	server := startPostgresWith(t, options)
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	e.WriteAgent("clerk", env.MarkerTools)
	asked := make(chan string, 10)
	answers := map[string]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{}),
		"third": make(chan struct{})}
	lost, written := make(chan struct{}), make(chan struct{})
	pass := func(gates ...chan struct{}) {
		for _, gate := range gates {
			select {
			case <-gate:
			default:
				close(gate)
			}
		}
	}
	var requests atomic.Int32
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.RoundOf(r) > 1 {
			return inferencetest.Text("done")
		}
		label := []string{"first", "second", "third"}[min(requests.Add(1), 3)-1]
		return meanwhile(func() {
			asked <- label
			<-answers[label]
		}, env.MarkerReply("mark_once", label))
	})
	e.StartWorker("--roles", "scheduler")
	p := behindProxy(e)
	t.Cleanup(func() { pass(answers["first"], answers["second"], answers["third"], written) })
	var once sync.Once
	p.Plan(func(sent storagetest.Sent) storagetest.Cut {
		cut := storagetest.Pass
		switch {
		case sent.Has("name: AppendMany "):
			once.Do(func() {
				cut = storagetest.Lose
				close(lost)
			})
		case sent.Has("name: ReadBack "):
			select {
			case <-lost:
				<-written
			default: // an attempt on a connection that the crash broke was not sent
			}
		}
		return cut
	})
	e.StartWorker(oneSlot...)
	message := e.Send("clerk", "pay")
	<-asked
	crash(t, options)
	e.Vars["DATABASE_URL"] = e.DatabaseURL
	forgetFetch(e, message)
	e.StartWorker(oneSlot...)
	awaitLeftOrAsked(e, "second", message, asked)
	pass(answers["first"])
	<-lost
	pass(answers["second"])
	if len(asked) > 0 {
		e.Ledger.Await("second", 1)
	}
	pass(written, answers["third"])
	e.AwaitClosed(message)
	if reply := env.Query[string](e,
		"select string_agg(outcome || ': ' || body, '; ') from replies where message_id = $1",
		message); reply != "succeeded: done" {
		t.Errorf("the reply is %q", reply)
	}
	runs := 0
	for _, mark := range e.Ledger.Marks() {
		runs++
		if arguments := env.Query[string](e,
			"select string_agg(arguments::json ->> 'label', ' ') from calls"); arguments != mark.Label {
			t.Errorf("%s ran, and the journal has %s", mark.Label, arguments)
		}
	}
	if runs != 1 {
		t.Errorf("a call of effect once ran %d times", runs)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("models got %d requests for one grant", n)
	}
}

// A gate blocks callers while it is shut.
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
