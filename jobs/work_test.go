package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/pause"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/jobs"
	"turnkeeper/scheduler"
	"turnkeeper/tools"
)

// grant grants the next turn to the worker w, and returns its job in the form that River passes to
// a worker.
func (s *site) grant() *river.Job[jobs.TurnArgs] {
	s.t.Helper()
	ctx := s.t.Context()
	if err := s.Beat(ctx, presence.Heartbeat{WorkerID: "w", Slots: 1}); err != nil {
		s.t.Fatal(err)
	}
	d := &jobs.Dispatcher{Grants: s.Grants, TTL: bounds.Default().LeaseTTL}
	if _, err := scheduler.New(scheduler.Config{Store: d}).Tick(ctx); err != nil {
		s.t.Fatal(err)
	}
	return &river.Job[jobs.TurnArgs]{
		JobRow: &rivertype.JobRow{ID: one[int64](s,
			"select max(id) from turnkeeper.river_job where kind = 'AgentTurn'")},
		Args: jobs.TurnArgs{
			TurnID: one[turnkeeper.TurnID](s, "select turn_id from turnkeeper.leases where grant_id is not null"),
			GrantID: one[turnkeeper.GrantID](s,
				"select grant_id::text from turnkeeper.leases where grant_id is not null"),
		},
	}
}

// turnWorker returns the worker w and its log.
func (s *site) turnWorker(m model, change func(*jobs.WorkerConfig)) (*jobs.Worker, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	bounds := bounds.Default()
	config := jobs.WorkerConfig{
		DB: s.DB.DB, WorkerID: "w", Bounds: bounds, Log: zap.New(core),
		Runner: agentturn.New(agentturn.Config{Models: m, Bounds: bounds, Budget: &jobs.Spend{Grants: s.Grants}}),
	}
	if change != nil {
		change(&config)
	}
	return jobs.NewWorker(config), logs
}

// TestWhatBecomesOfAJob checks what a worker returns to River for a job, and what it logs.
func TestWhatBecomesOfAJob(t *testing.T) {
	broken := errors.New("broken")
	fates := recordFates(t, "turns.txt")
	for name, c := range map[string]struct {
		before    string                                     // SQL; the state at the beginning
		model     func(*site, context.CancelCauseFunc) model // nil: echo
		cancelled bool                                       // River's job is cancelled
		err       string                                     // of the job; "": none
		log       string                                     // "": no warning
		state     string                                     // of the turn
		reply     string
	}{
		"it succeeds": {state: "succeeded", reply: "re: hello"},
		"the grant is another's": {
			before: "update turnkeeper.turns set worker_id = 'other'", cancelled: true,
			err: "the lease is no longer held",
			log: "the turn no longer belongs to this worker", state: "running",
		},
		"the journal cannot be read": {
			before: "alter table turnkeeper.summaries rename to moved",
			err:    `relation "turnkeeper.summaries" does not exist`,
			log:    "the turn failed; the scheduler will reclaim it", state: "running",
		},
		"the worker stops": {
			model: func(_ *site, stop context.CancelCauseFunc) model {
				return func(ctx context.Context, _ string) (string, error) {
					stop(broken)
					<-ctx.Done()
					return "", ctx.Err()
				}
			},
			state: "queued",
		},
		"River cancels the job": {
			model: func(_ *site, stop context.CancelCauseFunc) model {
				return func(ctx context.Context, _ string) (string, error) {
					stop(rivertype.ErrJobCancelledRemotely)
					<-ctx.Done()
					return "", ctx.Err()
				}
			},
			state: "queued",
		},
		"the journal moves": {
			model: func(s *site, _ context.CancelCauseFunc) model {
				asked := 0
				return func(_ context.Context, body string) (string, error) {
					if asked++; asked == 1 {
						s.exec("select turnkeeper.add_events(id, '{}', '{}', '{}', '{}') from turnkeeper.turns")
					}
					return strings.Repeat("re: ", asked) + body, nil
				}
			},
			log: "", state: "succeeded", reply: "re: re: hello",
		},
		"the journal moves as the turn is cancelled": {
			model: func(s *site, stop context.CancelCauseFunc) model {
				return func(ctx context.Context, _ string) (string, error) {
					s.exec("select turnkeeper.add_events(id, '{}', '{}', '{}', '{}') from turnkeeper.turns")
					stop(agentturn.ErrCancelled)
					<-ctx.Done()
					return "", ctx.Err()
				}
			},
			state: "cancelled", reply: "This turn was cancelled.",
		},
		"the definition cannot be read": {
			before: `update turnkeeper.definitions set content = E'---\nunheard_of: 1\n---\nYou are the clerk.\n'`,
			log:    "handing the turn back for a newer worker", state: "queued",
		},
		"it was cancelled before": {
			before: "insert into turnkeeper.requested_ends (turn_id) select id from turnkeeper.turns",
			state:  "cancelled", reply: "This turn was cancelled.",
		},
		"it was cancelled and is late": {
			before: "insert into turnkeeper.requested_ends (turn_id) select id from turnkeeper.turns; " + wait80s,
			state:  "cancelled", reply: "This turn was cancelled.",
		},
		"it is late": {
			before: wait80s, log: "no worker took the turn for half of its time", state: "queued",
		},
		"it is late, and was bound before": {
			before: wait80s + "; update turnkeeper.turns set worker_id = 'w'", state: "succeeded", reply: "re: hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.enqueue("clerk", "", "hello")
			job := s.grant()
			s.exec(c.before)
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			m := model(echo)
			if c.model != nil {
				m = c.model(s, stop)
			}
			worker, logs := s.turnWorker(m, nil)
			err := worker.Work(ctx, job)
			_, cancelled := errors.AsType[*rivertype.JobCancelError](err)
			if fates.add(name, s, endOfJob(err), logs); cancelled != c.cancelled ||
				(err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("the job ends with %v", err)
			}
			warnings := logs.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zapcore.WarnLevel }).All()
			if (len(warnings) == 0) != (c.log == "") || len(warnings) > 0 &&
				!strings.Contains(warnings[0].Message, c.log) {
				t.Errorf("the log has %v", warnings)
			}
			if state := one[string](s, "select state from turnkeeper.turns"); state != c.state {
				t.Errorf("the turn is %s, want %s", state, c.state)
			}
			if reply := one[string](s,
				"select coalesce((select body from turnkeeper.replies where message_id = $1), '')",
				id); reply != c.reply {
				t.Errorf("the reply is %q, want %q", reply, c.reply)
			}
		})
	}
}

// wait80s moves the grant back, as if the turn had waited for a worker for 80 of its 90 s.
const wait80s = `
	update turnkeeper.turns set granted_at = granted_at - interval '80 s', lease_until = lease_until - interval '80 s';
	update turnkeeper.leases set granted_at = granted_at - interval '80 s', lease_until = lease_until - interval '80 s'`

// callJob returns the job of the only detached call.
func (s *site) callJob(turn turnkeeper.TurnID, attempt int) *river.Job[jobs.CallArgs] {
	return &river.Job[jobs.CallArgs]{
		JobRow: &rivertype.JobRow{ID: one[int64](s, "select job_id from turnkeeper.detached_calls")},
		Args:   jobs.CallArgs{TurnID: turn, Round: 1, Ordinal: 1, Attempt: attempt},
	}
}

func TestWhatBecomesOfTheJobOfADetachedCall(t *testing.T) {
	fates := recordFates(t, "calls.txt")
	for name, c := range map[string]struct {
		before, during string // SQL
		gone           bool   // the worker's database is unavailable
		attempt        int
		ends           string // nil, snoozed, cancelled or failed
		runs           int
	}{
		"it runs":                {attempt: 1, ends: "nil", runs: 1},
		"it has another attempt": {attempt: 2, ends: "nil"},
		"it has ended": {before: "update turnkeeper.detached_calls set ended_at = now()",
			attempt: 1, ends: "nil"},
		"another worker has it": {
			before: "update turnkeeper.detached_calls set claim = gen_random_uuid(), worker_id = 'other', claimed_at = now()", attempt: 1, ends: "nil"},
		"it has another tool": {
			before:  `update turnkeeper.journal set calls = replace(calls::text, '"build"', '"other"')::json`,
			attempt: 1, ends: "snoozed"},
		"the database is away": {gone: true, attempt: 1, ends: "snoozed"},
		"it is taken from it": {during: "update turnkeeper.detached_calls set claim = gen_random_uuid()",
			attempt: 1, ends: "cancelled", runs: 1},
		"its end cannot be written": {during: "alter table turnkeeper.awaited_calls rename to moved", attempt: 1,
			ends: "failed", runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			turn := s.detachedCall()
			job := s.callJob(turn, c.attempt)
			runs := 0
			worker := s.buildWorker(func(context.Context) {
				runs++
				s.exec(c.during)
			})
			core, logs := observer.New(zapcore.DebugLevel)
			worker.Log = zap.New(core)
			s.exec(c.before)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.gone {
				cancel()
			}
			err := worker.Work(ctx, job)
			fates.add(name, s, endOfJob(err), logs)
			_, cancelled := errors.AsType[*rivertype.JobCancelError](err)
			_, snoozed := errors.AsType[*rivertype.JobSnoozeError](err)
			ends := map[bool]string{err == nil: "nil", snoozed: "snoozed", cancelled: "cancelled"}[true]
			if ends == "" {
				ends = "failed"
			}
			if ends != c.ends || runs != c.runs {
				t.Errorf("it ran %d times and ended as %s: %v", runs, ends, err)
			}
		})
	}
}

// buildWorker returns the worker w of detached calls, with the tool build.
func (s *site) buildWorker(build func(context.Context)) *jobs.CallWorker {
	s.t.Helper()
	registry := &tools.Registry{}
	spec := tools.Spec{Name: "build", Detached: true, Timeout: time.Hour,
		Parameters: json.RawMessage(`{"type":"object"}`)}
	err := registry.Register(tools.New(spec, func(ctx context.Context, _ tools.Call, _ struct{}) (tools.Result, error) {
		build(ctx)
		return tools.Result{Text: "built"}, context.Cause(ctx)
	}))
	if err != nil {
		s.t.Fatal(err)
	}
	return jobs.NewCallWorker(jobs.CallWorkerConfig{
		DB: s.DB.DB, WorkerID: "w", Tools: []string{"build"}, Runner: agentturn.New(agentturn.Config{Tools: registry}),
	})
}

// setEffect changes the effect of a turn's started call.
func (s *site) setEffect(turn turnkeeper.TurnID, effect turnkeeper.Effect) {
	s.t.Helper()
	s.Replan(turn, turnkeeper.CallKey{Round: 1, Ordinal: 1}, `{"effect": "`+string(effect)+`"}`)
	s.exec("update turnkeeper.call_starts set effect = $1", effect)
}

// A worker that shuts down releases the calls that may run again, including those that it has just
// claimed.
func TestACallClaimedDuringTheShutdown(t *testing.T) {
	for effect, released := range map[turnkeeper.Effect]bool{turnkeeper.EffectOnce: false,
		turnkeeper.EffectKeyed: true} {
		t.Run(string(effect), func(t *testing.T) {
			s := newSite(t)
			turn := s.detachedCall()
			s.setEffect(turn, effect)
			ran := false
			worker := s.buildWorker(func(ctx context.Context) { ran = ctx.Err() == nil })
			worker.Release()
			_ = worker.Work(t.Context(), s.callJob(turn, 1))
			if ran == released {
				t.Errorf("the worker ran the call: %v", ran)
			}
			if again := one[bool](s, "select attempt = 2 from turnkeeper.detached_calls"); again != released {
				t.Errorf("it is left to another worker: %v", again)
			}
		})
	}
	t.Run("not shut down", func(t *testing.T) {
		s := newSite(t)
		turn := s.detachedCall()
		s.setEffect(turn, turnkeeper.EffectKeyed)
		ran := false
		if err := s.buildWorker(func(ctx context.Context) {
			ran = ctx.Err() == nil
		}).Work(t.Context(), s.callJob(turn, 1)); err != nil || !ran {
			t.Errorf("the worker ran the call: %v; the job ended with %v", ran, err)
		}
	})
}

// A worker that cannot read whether a call is open snoozes the job.
func TestTheJobOfACallThatCannotBeRead(t *testing.T) {
	s := newSite(t)
	turn := s.detachedCall()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.buildWorker(func(context.Context) {}).Leave(gone, turnlog.CallRef{TurnID: turn,
		Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Attempt: 1})
	if _, snoozed := errors.AsType[*rivertype.JobSnoozeError](err); !snoozed {
		t.Errorf("the job ends with %v", err)
	}
}

// An observed is an Observer that records the previous grant of each dispatch.
type observed struct {
	before   []turnkeeper.Dispatch
	requests []inference.Request
}

func (o *observed) Dispatch(ctx context.Context, d agentturn.DispatchBegin) (context.Context,
	func(agentturn.DispatchEnd)) {
	o.before = append(o.before, d.Before)
	return ctx, func(agentturn.DispatchEnd) {}
}

func (*observed) Round(ctx context.Context, _ agentturn.RoundBegin) (context.Context, func(agentturn.RoundEnd)) {
	return ctx, func(agentturn.RoundEnd) {}
}

func (o *observed) ModelCall(ctx context.Context, m agentturn.ModelBegin) (context.Context, func(agentturn.ModelEnd)) {
	o.requests = append(o.requests, m.Request)
	return ctx, func(agentturn.ModelEnd) {}
}

func (*observed) ToolCall(ctx context.Context, _ agentturn.ToolBegin) (context.Context, func(agentturn.ToolEnd)) {
	return ctx, func(agentturn.ToolEnd) {}
}

func (*observed) SubAgent(context.Context, agentturn.SubAgentEnd) {}
func (*observed) Traced(context.Context) bool                     { return false }

// atPoint is a fault.Hook that calls do at a point.
type atPoint struct {
	label string
	do    func()
}

func (p atPoint) At(_ context.Context, label string) {
	if label == p.label {
		p.do()
	}
}

// A turn that is cancelled before its worker has read it, in its first or a later dispatch, is closed at once.
func TestATurnIsCancelledAsItIsRead(t *testing.T) {
	for _, point := range []string{jobs.PointFetched, jobs.PointLoaded} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprint(point, " later ", later), func(t *testing.T) {
				s := newSite(t)
				s.enqueue("clerk", "", "hello")
				job := s.grant()
				if later {
					s.exec("update turnkeeper.turns set dispatches = 2")
				}
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				worker, _ := s.turnWorker(echo, func(c *jobs.WorkerConfig) {
					c.Fault = atPoint{point, func() { stop(agentturn.ErrCancelled) }}
				})
				if err := worker.Work(ctx, job); err != nil {
					t.Error(err)
				}
				if state := one[string](s, "select state from turnkeeper.turns"); state != "cancelled" {
					t.Errorf("the turn is %s", state)
				}
			})
		}
	}
}

// TestWhatAModelCallMayTake checks the limits of a model call that come with the turn's record: the tokens that the
// message's sender allows for an answer, and the time until the end of the lease as it was when the record was read,
// however long the worker takes until it begins.
func TestWhatAModelCallMayTake(t *testing.T) {
	s := newSite(t)
	id := s.enqueue("clerk", "", "hello")
	s.exec(`insert into turnkeeper.responses (message_id, background, drafts, metadata, max_output_tokens, preface,
		request_sha256) values ($1, true, false, '{}', 77, 0, '')`, id)
	job := s.grant()
	s.exec("update turnkeeper.turns set lease_until = clock_timestamp() + interval '20 s'")
	leased := time.Now().Add(20 * time.Second) // or a little earlier
	var deadline time.Time
	seen := &observed{}
	worker, _ := s.turnWorker(nil, func(w *jobs.WorkerConfig) {
		w.Fault = atPoint{jobs.PointLoaded, func() { _ = pause.For(t.Context(), 300*time.Millisecond) }}
		m := model(func(ctx context.Context, body string) (string, error) {
			deadline, _ = ctx.Deadline()
			return echo(ctx, body)
		})
		w.Runner = agentturn.New(agentturn.Config{Models: m, Bounds: w.Bounds,
			Budget: &jobs.Spend{Grants: s.Grants}, Observer: seen})
	})
	if err := worker.Work(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if len(seen.requests) != 1 || seen.requests[0].MaxOutputTokens != 77 {
		t.Errorf("the requests are %+v", seen.requests)
	}
	if deadline.IsZero() || deadline.After(leased) {
		t.Errorf("the model may answer until %s, %s after the end of the lease", deadline, deadline.Sub(leased))
	}
}

// The observer of a continued turn receives the previous grant, if it can be read.
func TestTheGrantBefore(t *testing.T) {
	for name, c := range map[string]struct {
		observed bool
		before   string // SQL
		known    bool
		log      bool
		locked   bool
	}{
		"it goes on":            {observed: true, known: true},
		"not observed":          {},
		"it is not on record":   {observed: true, before: "delete from turnkeeper.ended_grants where token = 1"},
		"it cannot be read now": {observed: true, locked: true, log: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.enqueue("clerk", "", "hello")
			first := s.grant()
			stopping, _ := s.turnWorker(echo, nil)
			ctx, stop := context.WithCancel(t.Context())
			stop()
			_ = stopping.Work(ctx, first)
			s.exec(wait80s) // the worker hands the turn back
			if err := stopping.Work(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			second := s.grant()
			s.exec(c.before)
			unlock := func() {}
			lock := atPoint{jobs.PointLoaded, func() {
				tx, err := s.Pool().Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec(t.Context(), "lock turnkeeper.ended_grants in access exclusive mode"); err != nil {
					t.Error(err)
				}
				unlock = func() { _ = tx.Rollback(t.Context()) }
			}}
			seen := &observed{}
			worker, logs := s.turnWorker(nil, func(w *jobs.WorkerConfig) {
				m := model(func(ctx context.Context, body string) (string, error) { unlock(); return echo(ctx, body) })
				w.Observed = c.observed
				if c.locked {
					w.Fault = lock
				}
				w.Runner = agentturn.New(agentturn.Config{Models: m, Bounds: w.Bounds,
					Budget: &jobs.Spend{Grants: s.Grants}, Observer: seen})
			})
			if err := worker.Work(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			if len(seen.before) != 1 || (seen.before[0].GrantID == first.Args.GrantID) != c.known ||
				(seen.before[0].GrantID == "") == c.known {
				t.Errorf("observed with %+v", seen.before)
			}
			if n := logs.FilterMessageSnippet("the previous grant was not found").Len(); (n > 0) != c.log {
				t.Errorf("%d lines of the log say that it was not found", n)
			}
		})
	}
}
