package cli_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// A stage is a database with methods that grant turns and write their journal, as a scheduler and a worker do.
type stage struct {
	*storagetest.DB
	t      *testing.T
	grants int
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.Pool().Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// An act is a granted turn with the journal of its worker.
type act struct {
	*journal.Writer
	s     *stage
	grant turnkeeper.Grant
}

// beat sends one heartbeat of a worker.
func (s *stage) beat(worker turnkeeper.WorkerID) {
	s.t.Helper()
	if err := s.Beat(s.t.Context(), presence.Heartbeat{WorkerID: worker, Host: "host", PID: 1, Version: "v", Slots: 1,
		TakeoverAfter: 15 * time.Second}); err != nil {
		s.t.Fatal(err)
	}
	s.exec(
		"update turnkeeper.worker_heartbeat set started_at = least(started_at, clock_timestamp() - interval '1 hour')")
}

// keepAlive sends heartbeats of a worker until the test ends.
func (s *stage) keepAlive(worker turnkeeper.WorkerID) {
	s.beat(worker)
	ctx, stop := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.Beat(ctx, presence.Heartbeat{WorkerID: worker, Host: "host", PID: 1, Version: "v", Slots: 1,
				TakeoverAfter: time.Hour})
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	s.t.Cleanup(func() { stop(); <-done })
}

func (s *stage) send(body string) turnkeeper.MessageID {
	s.t.Helper()
	id, err := s.Enqueue(s.t.Context(), turnkeeper.Submission{Agent: "echo", Body: body})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// turn sends a message and grants its turn.
func (s *stage) turn(body string) *act {
	s.t.Helper()
	s.send(body)
	return s.next("host-1")
}

// next grants the first ready turn or message to a worker.
func (s *stage) next(worker turnkeeper.WorkerID) *act {
	s.t.Helper()
	s.exec("update turnkeeper.leases set not_before = null")
	ctx := s.t.Context()
	s.grants++
	grant := turnkeeper.GrantID(fmt.Sprintf("00000000-0000-4000-8000-%012x", s.grants))
	var job turnkeeper.JobID
	s.tick(func(tick *grants.Tick) error {
		turns, err := tick.ReadyTurns(ctx, 1, nil)
		if err != nil {
			return err
		}
		messages, err := tick.ReadyMessages(ctx, 1, nil)
		if err != nil {
			return err
		}
		ready := slices.Concat(turns, messages)[:1]
		return tick.Grant(ctx, ready, []turnkeeper.GrantID{grant}, grants.Job{Kind: "AgentTurn", Queue: "turns"},
			240*time.Second)
	})
	var turn turnkeeper.TurnID
	row := s.Pool().QueryRow(ctx,
		`update turnkeeper.river_job j set state = 'running', attempted_by = $2, attempted_at = now()
		from turnkeeper.lease_log g where g.grant_id = $1 and j.id = g.job_id returning g.turn_id, j.id`, grant, []string{string(worker)})
	if err := row.Scan(&turn, &job); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.BindGrant(ctx, turn, grant, worker); err != nil {
		s.t.Fatal(err)
	}
	record, err := s.Load(ctx, turn, grant)
	if err != nil {
		s.t.Fatal(err)
	}
	g := turnkeeper.Grant{TurnID: turn, Lane: record.Turn.Lane, Token: record.Turn.Token, GrantID: grant, JobID: job,
		WorkerID: worker}
	return &act{s.Writer(record, g), s, g}
}

func (s *stage) tick(f func(*grants.Tick) error) {
	s.t.Helper()
	err := s.InTick(s.t.Context(), func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(s.t.Context(), true); err != nil {
			return err
		}
		return f(tick)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// lose expires the lease and reclaims the grant.
func (a *act) lose() {
	a.s.t.Helper()
	a.s.exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id = $1", a.grant.GrantID)
	a.s.loseAll()
}

// loseAll reclaims a grant whose lease has expired.
func (s *stage) loseAll() {
	s.t.Helper()
	s.tick(func(tick *grants.Tick) error {
		lost, err := tick.Lost(s.t.Context(), 1)
		if err != nil {
			return err
		}
		return tick.Requeue(s.t.Context(), lost[0])
	})
}

func (a *act) write(e turnlog.Entry) *act {
	a.s.t.Helper()
	if err := a.Append(a.s.t.Context(), e, turnlog.Consequence{}); err != nil {
		a.s.t.Fatal(err)
	}
	return a
}

// round writes a model response that calls tools, each with the same effect.
func (a *act) round(number int, effect turnkeeper.Effect, tools ...string) *act {
	a.s.t.Helper()
	r := &turnkeeper.Round{
		Number: number, Charged: true, Provider: "openai", Model: "gpt-5-mini", Attempts: number, Latency: time.Second,
		FinishReason: "stop",
		Usage:        turnkeeper.Usage{InputTokens: 1000, OutputTokens: 50},
	}
	for i, name := range tools {
		k := turnkeeper.CallKey{Round: number, Ordinal: i + 1}
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: k, WireID: k.String(), Name: name, Arguments: "{}", ArgsHash: "h", Effect: effect,
			State: turnkeeper.CallPlanned,
		})
	}
	return a.write(turnlog.Entry{Round: r})
}

func first(round int) turnkeeper.CallKey { return turnkeeper.CallKey{Round: round, Ordinal: 1} }

func (a *act) start(k turnkeeper.CallKey, effect turnkeeper.Effect, detached time.Duration) *act {
	e := turnlog.Entry{Starts: []turnlog.CallStart{{Key: k, Nonce: a.nonce(k), Attempt: 1, Effect: effect,
		Detached: detached}}}
	if detached > 0 {
		e.Results = []turnlog.CallResult{{Key: k, Nonce: a.nonce(k), State: turnkeeper.CallRunning, Shown: "handle",
			OutputID: "abcdefghijkl"}}
	}
	return a.write(e)
}

func (a *act) nonce(k turnkeeper.CallKey) string { return fmt.Sprintf("%d/%s", a.grant.TurnID, k) }

func (a *act) result(k turnkeeper.CallKey, state turnkeeper.CallState, text string) *act {
	r := turnlog.CallResult{Key: k, Nonce: a.nonce(k), State: state, Shown: text, Preview: text,
		Duration: 5 * time.Millisecond}
	if state == turnkeeper.CallDenied {
		r.Nonce = "" // it was never started
	}
	if state == turnkeeper.CallUnknown {
		return a.write(turnlog.Entry{Verdicts: []turnlog.CallResult{r}})
	}
	return a.write(turnlog.Entry{Results: []turnlog.CallResult{r}})
}

func (a *act) end(message turnkeeper.MessageState, o turnlog.Outcome) {
	a.s.t.Helper()
	log := map[turnkeeper.TurnState]string{turnkeeper.TurnQueued: "deferred",
		turnkeeper.TurnWaiting: "waiting"}[o.State]
	switch {
	case log == "":
		log = "finished"
	case o.State == turnkeeper.TurnQueued && o.Backoff == 0:
		log = "handed_back"
	}
	if err := a.Append(a.s.t.Context(), turnlog.Entry{Outcome: &o}, turnlog.Consequence{Message: message,
		Log: log}); err != nil {
		a.s.t.Fatal(err)
	}
}

// capped plays a turn that a bound ended after a call.
func capped(stop turnkeeper.StopReason) func(*stage) {
	return func(s *stage) {
		a := s.turn("Order 3 boxes.").round(1, turnkeeper.EffectOnce, "order").start(first(1), turnkeeper.EffectOnce, 0)
		a.result(first(1), turnkeeper.CallSucceeded, "ordered")
		a.end(turnkeeper.MessageDegraded, turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: stop,
			Reply: "Tool results: 1 succeeded, 0 failed."})
	}
}

// endings puts turns into the states that explain describes, in the order in which TestExplain plays them.
var endings = []struct {
	name string
	play func(*stage)
}{
	{"succeeded", func(s *stage) {
		s.turn("What time is it?").round(1, turnkeeper.EffectNone).end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "Noon.",
		})
	}},
	{"max-rounds", capped(turnkeeper.StopMaxRounds)},
	{"max-duration", capped(turnkeeper.StopMaxDuration)},
	{"max-tool-calls", capped(turnkeeper.StopMaxToolCalls)},
	{"budget", func(s *stage) {
		s.turn("Go on.").end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopBudget, ErrorClass: "budget",
			Error: "the turn's budget of 100 tokens is used up", Reply: "Tool results: 0 succeeded, 0 failed.",
		})
	}},
	{"degraded-by-the-model", func(s *stage) {
		a := s.turn("Order 3 boxes.").round(1, turnkeeper.EffectOnce, "order", "tell").start(first(1),
			turnkeeper.EffectOnce, 0)
		a.result(first(1), turnkeeper.CallFailed, "tool error: no boxes").result(turnkeeper.CallKey{Round: 1,
			Ordinal: 2}, turnkeeper.CallDenied, "denied")
		a.end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopInferenceError, ErrorClass: "overloaded",
			Error: "503 Service Unavailable", Reply: "Tool results: 0 succeeded, 1 failed.",
		})
	}},
	{"failed-for-now", func(s *stage) {
		s.turn("Hello.").end(turnkeeper.MessageWaiting, turnlog.Outcome{
			State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth",
			Error: "401 Unauthorized", Retry: true,
		})
	}},
	{"failed-for-good", func(s *stage) {
		s.next("host-2").end(turnkeeper.MessageFailed, turnlog.Outcome{
			State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "auth",
			Error: "401 Unauthorized", Reply: "This message could not be answered.",
		})
	}},
	{"retry", func(s *stage) {
		var failed turnkeeper.MessageID
		if err := s.Pool().QueryRow(s.t.Context(),
			"select max(id) from turnkeeper.messages where state = 'failed'").Scan(&failed); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.Retry(s.t.Context(), failed, false); err != nil {
			s.t.Fatal(err)
		}
		s.next("host-2").round(1, turnkeeper.EffectNone).end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "Hello.",
		})
	}},
	{"worker-lost", func(s *stage) {
		a := s.turn("Order 3 boxes.").round(1, turnkeeper.EffectOnce, "order").start(first(1), turnkeeper.EffectOnce, 0)
		a.lose()
		b := s.next("host-2")
		b.result(first(1), turnkeeper.CallUnknown, "outcome unknown")
		b.end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost,
			Reply: "Tool results: 0 succeeded, 0 failed, 1 unknown.",
		})
	}},
	{"cut-request", func(s *stage) {
		a := s.turn("Long.")
		a.write(turnlog.Entry{
			Round: &turnkeeper.Round{
				Number: 1, Charged: true, Provider: "openai", Model: "gpt-5-mini", Attempts: 1, FinishReason: "stop",
				Text: "Short.",
				Recipe: &turnkeeper.Recipe{Version: 1, SHA256: sixty("2"), Cut: true,
					Start: &turnkeeper.Epoch{Reason: prompt.EpochRoom, System: sixty("1"),
						Form: sixty("1"), Omitted: 12,
						Dropped: "1-3", Room: 9000}},
			},
			Parts: []turnlog.RequestPart{{SHA256: sixty("1"), Content: "{}"}},
		})
		a.end(turnkeeper.MessageSucceeded, turnlog.Outcome{State: turnkeeper.TurnSucceeded,
			StopReason: turnkeeper.StopNone, Reply: "Short."})
	}},
	{"cancelled-in-the-inbox", func(s *stage) {
		if _, err := s.CancelMessage(s.t.Context(), s.send("Never mind."), "asked by the sender"); err != nil {
			s.t.Fatal(err)
		}
	}},
	{"cancelled-while-waiting", func(s *stage) {
		a := s.turn("Build all.").round(1, turnkeeper.EffectOnce, "build").start(first(1),
			turnkeeper.EffectOnce, time.Hour)
		a.end("", turnlog.Outcome{State: turnkeeper.TurnWaiting})
		if _, err := s.CancelTurn(s.t.Context(), a.grant.TurnID, ""); err != nil {
			s.t.Fatal(err)
		}
	}},
	{"finished", func(s *stage) {
		a := s.turn("Build all.")
		if _, err := s.FinishTurn(s.t.Context(), a.grant.TurnID, ""); err != nil {
			s.t.Fatal(err)
		}
		a.round(1, turnkeeper.EffectNone).end(turnkeeper.MessageSucceeded,
			turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopFinished, Reply: "A part."})
	}},
	{"finished-too-late", func(s *stage) {
		a := s.turn("Build all.")
		if _, err := s.FinishTurn(s.t.Context(), a.grant.TurnID, "good enough"); err != nil {
			s.t.Fatal(err)
		}
		a.round(1, turnkeeper.EffectNone).end(turnkeeper.MessageSucceeded,
			turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "All."})
	}},
	{"quiet", func(s *stage) {
		s.exec(`insert into turnkeeper.messages (agent, conversation, lane, body, trigger, schedule, slot, due_at)
			values ('echo', 'main', 'echo', 'Look around.', 'schedule', 'default', clock_timestamp(), date_trunc('second', clock_timestamp()))`)
		s.next("host-1").round(1, turnkeeper.EffectNone).end(turnkeeper.MessageSucceeded, turnlog.Outcome{
			State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, InnerDialogue: "Nothing new.",
		})
	}},
	{"deferred", func(s *stage) {
		a := s.turn("Later.")
		a.end("", turnlog.Outcome{State: turnkeeper.TurnQueued, ErrorClass: "budget",
			Error: "the day's budget is used up", Backoff: time.Minute})
	}},
	{"handed-back", func(s *stage) {
		s.exec("update turnkeeper.turns set due_at = null where state = 'queued'")
		s.beat("host-1")
		s.next("host-1").end("", turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "the worker is shutting down"})
	}},
	{"granted", func(s *stage) {
		s.beat("host-1") // the last heartbeat may be too old
		a := s.next("host-1")
		s.exec("update turnkeeper.river_job set state = 'available', attempted_by = null where id = $1", a.grant.JobID)
		s.exec("update turnkeeper.turns set worker_id = null where id = $1", a.grant.TurnID)
	}},
	{"taken-up", func(s *stage) {
		s.beat("host-1")
		s.exec("update turnkeeper.river_job set state = 'running', attempted_by = '{host-1}' where state = 'available'")
	}},
	{"running-on-a-silent-worker", func(s *stage) {
		s.exec("update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - interval '20.2 s'")
	}},
	{"never-taken-up", func(s *stage) {
		s.exec(
			"update turnkeeper.river_job set state = 'cancelled', finalized_at = clock_timestamp(), attempted_by = null where state = 'running' and attempted_by = '{host-1}'")
		s.exec(
			`insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
			select lane, token, grant_id, turn_id, job_id, granted_at, lease_until, clock_timestamp(), 'unclaimed' from turnkeeper.lease_log where ended_at is null`)
		s.exec(
			"update turnkeeper.turns set state = 'queued', grant_id = null, lease_until = null, error = null where state = 'running'")
		s.exec(
			"update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where grant_id is not null")
	}},
	{"running", func(s *stage) {
		s.exec("update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp()")
		s.exec("update turnkeeper.turns set due_at = null where state = 'queued'")
		s.next("host-1").round(1, turnkeeper.EffectNone, "clock")
	}},
	{"closed-after-losses", func(s *stage) {
		s.exec("update turnkeeper.turns set losses = 2 where state = 'running'")
		s.closeLost()
	}},
	{"streaming", func(s *stage) {
		s.send("Tell me a story.")
		s.next("host-3").write(turnlog.Entry{
			Failed: []turnlog.FailedAttempt{
				{Round: 1, Attempt: 1, Provider: "openai", Model: "gpt-5-mini", Class: "overloaded",
					Error: "503 Service Unavailable", Latency: time.Second},
				{Round: 1, Class: "interrupted", Error: "older turns were summarised"},
			},
			Events: []turnkeeper.Event{
				{Type: turnkeeper.EventRoundStart, Round: 1, Data: []byte(`{"of":3}`)},
				{Type: turnkeeper.EventBlockStart, Round: 1, Block: 1, Data: []byte(`{"kind":"text"}`)},
				{Type: turnkeeper.EventBlockDelta, Round: 1, Block: 1, Data: []byte(`{"text":"` + strings.Repeat("word",
					100) + `"}`)},
			},
		})
	}},
}

// closeLost closes the turns of lost workers, as the scheduler does after the third loss.
func (s *stage) closeLost() {
	s.t.Helper()
	s.exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id is not null")
	ctx := s.t.Context()
	s.tick(func(tick *grants.Tick) error {
		lost, err := tick.Lost(ctx, 1)
		if err != nil {
			return err
		}
		if err := tick.SettleCalls(ctx, lost[0].TurnID, agentturn.ShownUnknown, agentturn.ShownPerhaps,
			agentturn.ShownNotRun, ""); err != nil {
			return err
		}
		return tick.Close(ctx, lost[0], turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, ErrorClass: "worker_lost",
			Error: "the turn lost its worker 3 times; it was answered without being run again",
			Reply: "Tool results: 0 succeeded, 1 failed.",
		}, nil)
	})
}

func sixty(digit string) string {
	text := ""
	for len(text) < 64 {
		text += digit
	}
	return text
}

// keepsPromises fails the test if Check finds a broken promise.
func (s *stage) keepsPromises() {
	s.t.Helper()
	promises, err := s.Check(s.t.Context(), false)
	if err != nil {
		s.t.Error(err)
	}
	for _, p := range promises {
		if len(p.Broken) > 0 {
			s.t.Errorf("%s: %v", p.Text, p.Broken)
		}
	}
}

var (
	clockTimes = regexp.MustCompile(`\b(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?\b`)
	durations  = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?( ms| s|s)\b`)
)

// TestExplain compares the explanation of each ending with a golden file.
func TestExplain(t *testing.T) {
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	for _, ending := range endings {
		ending.play(s)
		got := run(t, turnctl.Program(), env, "", "explain", "latest")
		if got.code != 0 || got.stderr != "" {
			t.Fatalf("%s: %+v", ending.name, got)
		}
		text := durations.ReplaceAllString(clockTimes.ReplaceAllString(got.stdout, "TIME"), "DURATION")
		text = strings.ReplaceAll(text, "\n    ", " ") // line breaks depend on the length of the times
		golden.File(t, "testdata/explain-"+ending.name+".txt", text)
	}
	type view struct {
		TurnID int64 `json:"turn_id"`
		State  string
		Topics []struct {
			Topic     string
			Sentences []string
		}
	}
	v := decode[view](t, run(t, turnctl.Program(), env, "", "explain", "1", "-o", "json"))
	if v.TurnID != 1 || v.State != "succeeded" || len(v.Topics) < 4 || v.Topics[0].Topic != "asked" {
		t.Errorf("%+v", v)
	}
	type sight struct {
		Running int `json:"running_turns"`
		Turns   []struct{ ID int64 }
		Lanes   []struct{ Lane string }
	}
	if top := decode[sight](t, run(t, turnctl.Program(), env, "", "top", "--once", "-o", "json")); top.Running != 1 ||
		len(top.Turns) != 1 || len(top.Lanes) != 1 {
		t.Errorf("top: %+v", top)
	}
	if got := run(t, turnctl.Program(), env, "", "top"); got.code != 0 || !strings.Contains(got.stdout,
		"turns    1 running of 0 slots on 0 workers") {
		t.Errorf("top into a pipe: %+v", got)
	}
	s.messagesExplained(env)
	for _, args := range [][]string{{"explain", "999"}, {"explain", "--message", "999"}, {"events", "999"},
		{"cancel", "999"}, {"retry", "999"}} {
		if got := run(t, turnctl.Program(), env, "", args...); got.code != 3 || got.stdout != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	s.keepsPromises()
}
