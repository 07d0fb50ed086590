package jobs_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tools"
)

// detachedCall returns a turn of the clerk that waits for a detached call of the tool "build".
func (s *site) detachedCall() turnkeeper.TurnID {
	s.t.Helper()
	ctx := s.t.Context()
	s.enqueue("clerk", "", "build it")
	if err := s.Beat(ctx, presence.Heartbeat{WorkerID: "w", Slots: 1}); err != nil {
		s.t.Fatal(err)
	}
	d := &jobs.Dispatcher{Grants: s.Grants, TTL: time.Minute}
	if _, err := scheduler.New(scheduler.Config{Store: d}).Tick(ctx); err != nil {
		s.t.Fatal(err)
	}
	id := one[turnkeeper.TurnID](s, "select id from turnkeeper.turns")
	grant := one[turnkeeper.GrantID](s, "select grant_id::text from turnkeeper.turns")
	if _, err := s.BindGrant(ctx, id, grant, "w"); err != nil {
		s.t.Fatal(err)
	}
	record, err := s.Load(ctx, id, grant)
	if err != nil {
		s.t.Fatal(err)
	}
	turn, key := record.Turn, turnkeeper.CallKey{Round: 1, Ordinal: 1}
	journal := jobs.NewJournal(s.Journals, record, turnkeeper.Grant{
		TurnID: id, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID, JobID: turn.JobID, WorkerID: "w",
	})
	err = journal.Append(ctx, turnlog.Entry{
		Round: &turnkeeper.Round{Number: 1, Calls: []turnkeeper.ToolCall{{
			Key: key, WireID: "a", Name: "build", Arguments: "{}", Effect: turnkeeper.EffectOnce,
			State: turnkeeper.CallPlanned,
		}}},
		Starts: []turnlog.CallStart{{Key: key, Nonce: "n", Attempt: 1, Effect: turnkeeper.EffectOnce,
			Detached: time.Hour}},
		Results: []turnlog.CallResult{{Key: key, Nonce: "n", State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: "output"}},
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.exec("update turnkeeper.river_job set state = 'completed', finalized_at = now() where kind = 'AgentTurn'")
	return id
}

// callWorker starts a process that runs detached calls with these tools.
func (s *site) callWorker(id turnkeeper.WorkerID, names ...string) {
	s.t.Helper()
	store, registry := storagetest.Open(s.t, s.url), &tools.Registry{}
	for _, name := range names {
		spec := tools.Spec{Name: name, Detached: true, Timeout: time.Hour,
			Parameters: json.RawMessage(`{"type":"object"}`)}
		err := registry.Register(tools.New(spec, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
			return tools.Result{Text: "built by " + string(id)}, nil
		}))
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := store.Beat(s.t.Context(), presence.Heartbeat{WorkerID: id, Slots: 1}); err != nil {
		s.t.Fatal(err)
	}
	client, err := jobs.NewClient(jobs.ClientConfig{
		Pool: store.QueuePool(), WorkerID: id, CallSlots: 1, Calls: jobs.NewCallWorker(jobs.CallWorkerConfig{
			DB: store.DB, WorkerID: id, Tools: names, Runner: agentturn.New(agentturn.Config{Tools: registry}),
		}),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := client.Start(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			s.t.Errorf("stopping River: %v", err)
		}
	})
}

// A worker without the tool of a detached call does not keep a worker that has the tool from
// running it.
func TestADetachedCallIsLeftToAWorkerWithItsTool(t *testing.T) {
	s := newSite(t)
	turn := s.detachedCall()
	s.callWorker("without", "another")
	s.callWorker("with", "build")
	s.await("exists (select from turnkeeper.turns where id = $1 and state = 'queued')", turn)
	s.await("not exists (select from turnkeeper.detached_calls where worker_id <> 'with')")
	output, err := s.Output(t.Context(), "output")
	if err != nil || output.Text != "built by with" || output.TurnID != turn {
		t.Errorf("%+v, %v", output, err)
	}
	s.await("exists (select from turnkeeper.river_job where kind = 'DetachedCall' and state = 'completed')")
}

// For five minutes, a worker without a tool of the agent leaves the turn to other workers. Then it
// runs the turn.
func TestATurnIsLeftToAWorkerWithItsTools(t *testing.T) {
	for name, c := range map[string]struct {
		ago string // time since the turn was first handed back; empty: never
		ran bool
	}{
		"not yet":          {"", false},
		"for four minutes": {"4 minutes", false},
		"for six minutes":  {"6 minutes", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.register("builder", "---\ndescription: d\nmodel: script/m\ntools: [build]\n---\nYou build.\n")
			id := s.enqueue("builder", "", "build it")
			dead := s.start(kind{})
			if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "dead", Slots: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(dead)}).Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.ago != "" { // the grant before this one was handed back
				s.exec(
					`insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
					select lane, 0, gen_random_uuid(), turn_id, 0, granted_at - $1::interval - interval '1 s', granted_at, granted_at - $1::interval, 'handed_back'
					from turnkeeper.lease_log`, c.ago)
			}
			s.start(kind{model: echo})
			s.await("exists (select from turnkeeper.lease_log where token = 1 and ended_at is not null)")
			want := map[bool]string{false: "handed_back", true: "finished"}[c.ran]
			if got := one[string](s, "select outcome from turnkeeper.lease_log where token = 1"); got != want {
				t.Errorf("the grant is %s, want %s", got, want)
			}
			if n := one[int](s, "select count(*) from turnkeeper.replies where message_id = $1",
				id); (n == 1) != c.ran {
				t.Errorf("%d replies", n)
			}
		})
	}
}

// An entry without an outcome does not end the turn.
func TestAnEntryThatEndsNothing(t *testing.T) {
	s := newSite(t)
	s.enqueue("clerk", "", "hello")
	if err := s.Beat(t.Context(), presence.Heartbeat{WorkerID: "w", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.New(scheduler.Config{Store: s.dispatcher(s.start(kind{}))}).Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := one[turnkeeper.TurnID](s, "select id from turnkeeper.turns")
	grant := one[turnkeeper.GrantID](s, "select grant_id::text from turnkeeper.turns")
	if _, err := s.BindGrant(t.Context(), id, grant, "w"); err != nil {
		t.Fatal(err)
	}
	record, err := s.Load(t.Context(), id, grant)
	if err != nil {
		t.Fatal(err)
	}
	turn := record.Turn
	journal := jobs.NewJournal(s.Journals, record, turnkeeper.Grant{
		TurnID: id, Lane: turn.Lane, Token: turn.Token, GrantID: turn.GrantID, JobID: turn.JobID, WorkerID: "w",
	})
	if err := journal.Append(t.Context(), turnlog.Entry{Round: &turnkeeper.Round{Number: 1}}); err != nil {
		t.Fatal(err)
	}
	if state := one[string](s, "select state from turnkeeper.turns"); state != "running" {
		t.Errorf("the turn is %s", state)
	}
}
