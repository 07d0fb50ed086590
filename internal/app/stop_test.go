package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/config"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tools"
)

// TestStoppedAtOnce checks that a worker told twice to stop logs "turn handed back" only if the turn is queued again,
// and that the worker counts as stopped, not lost, only then. If something does not stop in time, as on a slow
// machine, the log says so and the worker counts as lost.
func TestStoppedAtOnce(t *testing.T) {
	asked := make(chan struct{}, 10)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // the worker asks for the context window of the model
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after reading the body
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer model.Close()
	cfg := settings(t, "---\nmodel: slow/m\n---\nYou wait.\n")
	cfg.Providers = map[string]config.Provider{"slow": {Name: "slow", BaseURL: model.URL + "/v1"}}
	store := storagetest.Open(t, cfg.DatabaseURL.Reveal())

	core, logged := observer.New(zap.InfoLevel)
	soft, askToEnd := context.WithCancel(context.Background())
	hard, dropAll := context.WithCancel(context.Background())
	defer dropAll()
	defer askToEnd()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- app.RunWorker(soft, hard, cfg, zap.New(core), func(app.Ready) { close(ready) })
	}()
	<-ready
	id, err := store.Enqueue(t.Context(), turnkeeper.Submission{Agent: "helper", Body: "Hello"})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	askToEnd()
	dropAll()
	err = <-ended
	if err == nil || !strings.Contains(err.Error(), "turns that were not handed back continue on other workers") {
		t.Errorf("the worker ended with %v", err)
	}
	told := logged.FilterMessage("turn handed back").Len() > 0
	message, err := store.Message(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	view, err := store.ViewTurn(t.Context(), message.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	if told && view.Turn.State != turnkeeper.TurnQueued {
		t.Errorf("the turn is %s, and the log says that it was handed back", view.Turn.State)
	}
	workers, err := store.Workers(t.Context())
	if err != nil || len(workers) != 1 {
		t.Fatalf("%+v, %v", workers, err)
	}
	late := logged.FilterMessageSnippet("not recorded as stopped").Len() > 0
	if ended := workers[0].State() == presence.Stopped; ended != (told && !late) {
		t.Errorf("the worker is %s, and that its turn was handed back is %t", workers[0].State(), told)
	}
}

// build returns a detached tool whose calls end as f does.
func build(f func(context.Context) (string, error)) app.WorkerOption {
	spec := tools.Spec{Name: "build", Description: "Builds.", Effect: turnkeeper.EffectKeyed, Detached: true,
		Timeout: time.Hour, Parameters: json.RawMessage(`{"type":"object"}`)}
	return app.WithTools(tools.New(spec, func(ctx context.Context, _ tools.Call, _ none) (tools.Result, error) {
		text, err := f(ctx)
		return tools.Result{Text: text}, err
	}))
}

// TestAnotherWorkerHasTheCallsOfAStoppedOne stops a worker that has a detached call and does not run it. Another worker
// runs the call at once. Neither a poll nor the time after which a silent worker is lost comes in this test, and that
// the worker has stopped is not recorded.
func TestAnotherWorkerHasTheCallsOfAStoppedOne(t *testing.T) {
	testrun.Slow(t)
	const claimed = "exists (select from turnkeeper.detached_calls where claim is not null)"
	const unrecorded = `create function skip() returns trigger language plpgsql as 'begin return null; end';
		create trigger skip before update on turnkeeper.worker_heartbeat for each row
			when (new.stopped_at is not null) execute function skip();`
	for name, c := range map[string]struct {
		slots  string // of the worker, for detached calls
		ready  string // a condition for the stop
		before string // SQL before the stop of WORKER
	}{
		"a run whose end cannot be written": {"1", claimed, `
			create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end';
			create trigger refuse before update on turnkeeper.detached_calls for each row
				when (new.attempt > old.attempt and old.lost_at is null) execute function refuse()`},
		"a claim that was not answered": {"0", "not " + claimed, `
			update turnkeeper.river_job set state = 'scheduled', scheduled_at = clock_timestamp() + interval '5 s'
				where kind = 'DetachedCall';
			update turnkeeper.detached_calls set claim = gen_random_uuid(), worker_id = 'WORKER',
				claimed_at = clock_timestamp()`},
		"a job that did not arrive": {"0", "not " + claimed, `
			update turnkeeper.river_job set state = 'running', attempt = 1, attempted_at = clock_timestamp(),
				attempted_by = '{WORKER}' where kind = 'DetachedCall'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSettingsWorld(t, "poll_interval: 1h", "takeover_after: 1h", "lease_ttl: 2h",
				"shutdown_grace: 0s")
			w.write("clerk", "tools: [build]")
			w.reloadWith(nil, map[string]string{"detached-slots": c.slots})
			soft, stop := context.WithCancel(context.Background())
			defer stop()
			ready, ended := make(chan app.Ready, 1), make(chan error, 1)
			first := w.cfg
			draining, goesOn := make(chan struct{}), make(chan struct{})
			goOn := sync.OnceFunc(func() { close(goesOn) })
			defer goOn()
			go func() {
				ended <- app.RunWorker(soft, context.Background(), first, zap.NewNop(), func(r app.Ready) {
					ready <- r
				}, build(func(ctx context.Context) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}), app.WithFaults(atPoint(func(point string) {
					if point == "shutdown.draining" {
						close(draining)
						<-goesOn
					}
				})))
			}()
			var stopped app.Ready
			select {
			case stopped = <-ready:
			case err := <-ended:
				t.Fatal(err)
			}
			k := w.talk(t, "clerk", "main")
			id := k.send("do: build {} | say so")
			k.until(func() bool {
				return storagetest.One[bool](k.db,
					"select exists (select from turnkeeper.turns where state = 'waiting') and "+c.ready)
			})
			w.db.Exec(unrecorded + strings.ReplaceAll(c.before, "WORKER", string(stopped.WorkerID)))
			stop()
			<-draining
			w.reloadWith(nil, map[string]string{"detached-slots": "1"})
			w.run(zap.NewNop(), build(func(context.Context) (string, error) { return "built", nil }))
			goOn()
			if err := <-ended; err != nil {
				t.Fatalf("the worker ended with %v", err)
			}
			if v := k.ended(id); v.Turn.State != turnkeeper.TurnSucceeded || states(v) != "succeeded" {
				t.Errorf("the turn is %s, its calls %s", v.Turn.State, states(v))
			}
			by := storagetest.One[string](k.db, "select worker_id from turnkeeper.detached_calls")
			if by != string(w.ready.WorkerID) {
				t.Errorf("%s ended the call, want %s", by, w.ready.WorkerID)
			}
		})
	}
}
