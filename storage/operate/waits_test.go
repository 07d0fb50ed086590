package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// heldUpBy returns the reasons why a message waits, with their details.
func (h *env) heldUpBy(id turnkeeper.MessageID) (said []string) {
	h.T.Helper()
	// A worker with heartbeats must not become silent on a slow machine.
	h.Exec(
		"update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() where takeover_after = interval '1 hour'")
	m, err := h.WaitingMessage(h.T.Context(), id)
	if err != nil {
		h.T.Fatal(err)
	}
	for _, w := range m.Waits {
		text := string(w.Reason)
		for _, part := range []struct {
			name  string
			value any
			zero  bool
		}{
			{"message", w.Message, w.Message == 0}, {"turn", w.Turn, w.Turn == 0}, {"state", w.State, w.State == ""},
			{"worker", w.Worker, w.Worker == ""}, {"model", w.Model, w.Model == ""}, {"count", w.Count, w.Count == 0},
			{"why", w.Why, w.Why == ""},
		} {
			if !part.zero {
				text += fmt.Sprintf(" %s=%v", part.name, part.value)
			}
		}
		if !w.Until.IsZero() {
			text += " until"
		}
		said = append(said, text)
	}
	return said
}

func (h *env) wantWaits(when string, id turnkeeper.MessageID, want ...string) {
	h.T.Helper()
	if diff := cmp.Diff(want, h.heldUpBy(id)); diff != "" {
		h.T.Errorf("%s, message %d waits for (-want +got):\n%s", when, id, diff)
	}
}

func (h *env) serves(id turnkeeper.WorkerID, slots int) {
	h.T.Helper()
	h.HeartBeat(id, slots, time.Hour)
	h.Exec("update turnkeeper.worker_heartbeat set takeover_after = interval '1 hour' where worker_id = $1", id)
	h.Exec("update turnkeeper.settings set last_tick_at = clock_timestamp()")
}

// fallsSilent makes a worker silent for d, which exceeds its limit of 15 s.
func (h *env) fallsSilent(id turnkeeper.WorkerID, d time.Duration) {
	h.T.Helper()
	h.Silence(id, d)
	h.Exec("update turnkeeper.worker_heartbeat set takeover_after = interval '15 s' where worker_id = $1", id)
}

func TestWhatAMessageWaitsFor(t *testing.T) {
	h := newEnv(t)
	m := h.Submit("clerk", "", "first")
	h.wantWaits("with nothing there", m, "no_worker")
	h.HeartBeat("worker-1", 1, time.Hour)
	h.wantWaits("with a worker that has just started", m, "next_tick")
	h.Exec("update turnkeeper.worker_heartbeat set started_at = clock_timestamp() - interval '1 minute'")
	h.wantWaits("with a worker", m, "scheduler_silent")
	h.serves("worker-1", 1)
	h.wantWaits("with a scheduler", m, "next_tick")
	h.Exec("update turnkeeper.messages set due_at = date_trunc('second', clock_timestamp() + interval '1 hour')")
	h.wantWaits("before its time", m, "not_due until")
	h.Exec("update turnkeeper.messages set due_at = date_trunc('second', accepted_at)")

	if err := h.PauseScheduler(t.Context(), "repairs"); err != nil {
		t.Fatal(err)
	}
	h.wantWaits("while the scheduler is paused", m, "scheduler_paused why=repairs")
	h.Exec(
		"update turnkeeper.settings set hold_until = clock_timestamp() + interval '1 hour', hold_reason = 'the clock stepped'")
	h.fallsSilent("worker-1", time.Hour)
	h.wantWaits("while all stands still", m, "scheduler_paused why=repairs",
		"scheduler_holds_off why=the clock stepped until", "no_worker")
	h.Exec(
		"update turnkeeper.settings set hold_until = clock_timestamp() - interval '1 second', paused_at = null, paused_reason = null")
	h.serves("worker-1", 1)

	h.Exec(
		"update turnkeeper.agents set models = '{a/one,b/two}', give_up_after = interval '1 day' where name = 'clerk'")
	down :=
		"insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error) values ($1, now(), now() + interval '1 minute', 1, 'auth', $2)"
	h.Exec(down, "b/two", "401 Unauthorized")
	h.wantWaits("with one model of two", m, "next_tick")
	h.Exec(down, "a/one", "403 Forbidden")
	h.wantWaits("with no model", m, "model_down model=a/one why=auth: 403 Forbidden until",
		"model_down model=b/two why=auth: 401 Unauthorized until")
	h.Exec("delete from turnkeeper.model_health")

	second, third := h.Submit("clerk", "", "second"), h.Submit("clerk", "", "third")
	h.wantWaits("behind one", second, "earlier_message message=1 count=1")
	h.wantWaits("behind two", third, "earlier_message message=1 count=2")
	h.Exec(
		"update turnkeeper.messages set due_at = date_trunc('second', clock_timestamp()), priority = case when id = 3 then 5 else 0 end")
	h.wantWaits("ahead of all by its priority", third, "next_tick")
	h.wantWaits("behind it", m, "earlier_message message=3 count=1")
	h.Exec("update turnkeeper.messages set priority = 0")

	d := h.Dispatch("worker-1")[0]
	other := h.Submit("desk", "", "elsewhere")
	h.wantWaits("with a worker that has as many as it takes", other, "no_free_slot count=1")
	h.serves("worker-1", 2)
	h.wantWaits("while its turn runs", m)
	h.wantWaits("while the lane is held", second, "lane_held turn=1 state=running worker=worker-1 until")
	h.Exec("update turnkeeper.turns set worker_id = null")
	h.Exec("update turnkeeper.river_job set state = 'available', attempted_by = null")
	h.wantWaits("before a worker takes it", m, "not_taken_up turn=1 state=running")
	h.Exec("update turnkeeper.turns set worker_id = 'worker-1'")
	h.fallsSilent("worker-1", time.Minute)
	h.HeartBeat("worker-2", 1, time.Hour)
	h.wantWaits("of a silent worker", m, "worker_silent turn=1 state=running worker=worker-1 until")
	h.wantWaits("behind a silent worker", second,
		"lane_held turn=1 state=running worker=worker-1 until",
		"worker_silent turn=1 state=running worker=worker-1 until")
	h.serves("worker-1", 2)

	err := d.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnQueued, ErrorClass: "budget", Error: "the day's budget is used up", Backoff: time.Hour,
	}}, turnlog.Consequence{Log: "deferred"})
	if err != nil {
		t.Fatal(err)
	}
	h.wantWaits("with its budget spent", m, "budget_spent turn=1 state=queued why=the day's budget is used up until")
	h.wantWaits("behind it", second, "lane_held turn=1 state=queued why=the day's budget is used up until")
	h.Exec("update turnkeeper.turns set error_class = 'left', error = 'for a newer worker'")
	h.wantWaits("put off", m, "deferred turn=1 state=queued why=for a newer worker until")
	h.Exec("update turnkeeper.turns set error_class = 'needs_newer_worker', error = 'it lacks a tool'")
	h.wantWaits("handed back, before the others have seen it", m, "next_tick")
	h.Exec(
		`insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome)
		select t.lane, -row_number() over (), gen_random_uuid(), t.id, 1, w.worker_id, t.created_at, t.created_at + interval '4 min', t.created_at, 'handed_back'
		from turnkeeper.turns t, turnkeeper.worker_heartbeat w where t.state = 'queued'`)
	h.wantWaits("handed back by all", m, "newer_worker turn=1 state=queued why=it lacks a tool until")
	if waits, err := h.LongWaits(t.Context(), time.Hour); err != nil || len(waits) != 1 || waits[0].Message != m {
		t.Errorf("doctor reports %+v, %v", waits, err)
	}
	h.Exec("delete from turnkeeper.ended_grants where token < 0")
	h.Exec("update turnkeeper.turns set due_at = null")
	h.wantWaits("given back", m, "next_tick")

	d = h.Dispatch("worker-1")[0]
	if err := d.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, ErrorClass: "overloaded",
		Error: "503 Service Unavailable", Retry: true, Backoff: time.Minute,
	}},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished",
			LaneBackoff: time.Minute}); err != nil {
		t.Fatal(err)
	}
	h.wantWaits("after a failure", m, "lane_backoff count=1 why=503 Service Unavailable until")
	h.Exec("update turnkeeper.agents set retired_at = now() where name = 'clerk'")
	if got := h.heldUpBy(m); len(got) == 0 || !strings.HasPrefix(got[0], "agent_retired") {
		t.Errorf("of a retired agent: %q", got)
	}
	h.Exec("update turnkeeper.agents set retired_at = null")
	h.Exec("update turnkeeper.messages set agent = 'gone', lane = 'gone' where id = 1")
	if got := h.heldUpBy(m); len(got) == 0 || !strings.HasPrefix(got[0], "unknown_agent") {
		t.Errorf("of an agent that nobody has: %q", got)
	}
	all, err := h.Messages(t.Context(), operate.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range all {
		if len(listed.Waits) != len(h.heldUpBy(listed.ID)) {
			t.Errorf("the list says of message %d: %+v", listed.ID, listed.Waits)
		}
	}
	if _, err := h.CancelMessage(t.Context(), second, ""); err != nil {
		t.Fatal(err)
	}
	h.wantWaits("closed", second)
	if m, err := h.Message(t.Context(), second); err != nil || m.Outcome != turnkeeper.TurnCancelled {
		t.Errorf("the outcome is %q, error %v", m.Outcome, err)
	}
}

// A view of a running turn shows its current activity, which its counts do not include yet.
func TestWhatATurnDoes(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	look := func() turnkeeper.Turn {
		t.Helper()
		view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range map[string]func() ([]waiting.Turn, error){
			"turns":          func() ([]waiting.Turn, error) { return h.Turns(t.Context(), operate.Page{}) },
			"open turns":     func() ([]waiting.Turn, error) { return h.OpenTurns(t.Context(), 10) },
			"of the message": func() ([]waiting.Turn, error) { return h.TurnsOf(t.Context(), view.Turn.MessageID) },
		} {
			turns, err := list()
			if err != nil || len(turns) != 1 {
				t.Fatalf("%s: %+v, error %v", name, turns, err)
			}
			if diff := cmp.Diff(view.Turn.UnderWay, turns[0].UnderWay); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if turns[0].WorkerID != "worker-1" {
				t.Errorf("%s: the worker is %q", name, turns[0].WorkerID)
			}
		}
		return view.Turn
	}
	want := func(when string, want turnkeeper.UnderWay) {
		t.Helper()
		got := look().UnderWay
		if got == nil {
			t.Fatalf("%s: it does nothing", when)
		}
		if len(want.Calls) == 0 == got.Since.IsZero() {
			t.Errorf("%s: since %v", when, got.Since)
		}
		seen := *got
		seen.Since = time.Time{}
		for i := range seen.Calls {
			seen.Calls[i].StartedAt = time.Time{}
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	event := func(kind turnkeeper.EventType, round int, data string) turnkeeper.Event {
		return turnkeeper.Event{Type: kind, Round: round, Data: []byte(data)}
	}
	text := `{"text":"` + strings.Repeat("word", 50) + `"}`
	want("before the first text", turnkeeper.UnderWay{Round: 1})
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{event(turnkeeper.EventRoundStart, 1, `{"of":3}`),
		event(turnkeeper.EventBlockDelta, 1, text)}})
	want("while it streams", turnkeeper.UnderWay{Round: 1, OutputTokens: 50})
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{event(turnkeeper.EventBlockDelta, 1, text)}})
	want("as it goes on", turnkeeper.UnderWay{Round: 1, OutputTokens: 100})
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{event(turnkeeper.EventRoundRollback, 1, `{"reason":"x"}`)}})
	want("taken back", turnkeeper.UnderWay{Round: 1})
	d.Write(t, turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce, turnkeeper.EffectNone),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 1), "a", 1, turnkeeper.EffectOnce)}})
	want("while tools run", turnkeeper.UnderWay{Round: 1, Calls: []turnkeeper.OpenCall{
		{Key: storagetest.Key(1, 1), Name: "tool", State: turnkeeper.CallStarted}, {Key: storagetest.Key(1, 2),
			Name: "tool", State: turnkeeper.CallPlanned},
	}})
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{
		storagetest.Result(storagetest.Key(1, 1), "a", turnkeeper.CallSucceeded, "ok"),
		storagetest.Result(storagetest.Key(1, 2), "", turnkeeper.CallSucceeded, "ok"),
	}})
	want("after them", turnkeeper.UnderWay{Round: 2})
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{event(turnkeeper.EventRoundStart, 2, `{"of":3}`),
		event(turnkeeper.EventBlockDelta, 2, text)}})
	want("in its second round", turnkeeper.UnderWay{Round: 2, OutputTokens: 50})

	if turn := look(); turn.Silence != nil {
		t.Errorf("of a worker without a heartbeat: %+v", turn.Silence)
	}
	h.HeartBeat("worker-1", 1, time.Minute)
	if turn := look(); turn.Silence != nil {
		t.Errorf("of a worker that beats: %+v", turn.Silence)
	}
	h.Silence("worker-1", 40*time.Second)
	turn := look()
	if turn.Silence == nil || turn.Silence.For < 40*time.Second || turn.Silence.Stopped ||
		!turn.Silence.Until.Before(turn.LeaseUntil) {
		t.Errorf("of a silent worker: %+v", turn.Silence)
	}
	h.Exec("update turnkeeper.worker_heartbeat set takeover_after = interval '0'")
	if turn = look(); turn.Silence == nil || !turn.Silence.Until.Equal(turn.LeaseUntil) {
		t.Errorf("of a worker that is left until its lease ends: %+v", turn.Silence)
	}
	if lanes, err := h.Lanes(t.Context(), operate.Page{}); err != nil || len(lanes) != 1 || lanes[0].Silence == nil {
		t.Errorf("the lanes are %+v, error %v", lanes, err)
	}
	h.Exec("update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp(), beat_at = clock_timestamp()")
	if turn = look(); turn.Silence == nil || !turn.Silence.Stopped {
		t.Errorf("of a worker that has stopped: %+v", turn.Silence)
	}
	d.Finish(t, "done")
	if turn, err := h.ViewTurn(t.Context(), d.Grant.TurnID); err != nil || turn.Turn.UnderWay != nil ||
		turn.Turn.Silence != nil {
		t.Errorf("it has ended, and does %+v, error %v", turn.Turn.UnderWay, err)
	}
}

func TestRolesOfAProcess(t *testing.T) {
	h := newEnv(t)
	for _, c := range []struct {
		roles []string
		slots int
		want  presence.State
	}{
		{[]string{"api", "worker"}, 5, presence.Alive}, {[]string{"api", "worker"}, 0, presence.Draining},
		{[]string{"api"}, 0, presence.Serving}, {nil, 0, presence.Draining},
	} {
		h.Exec("delete from turnkeeper.worker_heartbeat")
		if err := h.Beat(t.Context(), presence.Heartbeat{WorkerID: "w", Roles: c.roles, Slots: c.slots,
			TakeoverAfter: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if all, err := h.Workers(t.Context()); err != nil || len(all) != 1 || all[0].State() != c.want {
			t.Errorf("with the roles %v and %d slots: %+v, error %v", c.roles, c.slots, all, err)
		}
	}
}

func TestAPausedScheduleSaysWhy(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, turnkeeper.Schedule{Agent: "clerk", Name: "daily", Cron: "@daily", TimeZone: "UTC",
		Message: "x"})
	for _, paused := range []bool{true, false} {
		why := map[bool]string{true: "too many"}[paused]
		if err := h.PauseSchedule(t.Context(), "clerk", "daily", paused, "too many"); err != nil {
			t.Fatal(err)
		}
		if all, err := h.Schedules(t.Context()); err != nil || len(all) != 1 || all[0].PausedReason != why ||
			all[0].PausedAt.IsZero() == paused {
			t.Errorf("paused %t: %+v, error %v", paused, all, err)
		}
		agents, err := h.Agents(t.Context())
		if err != nil || len(agents) != 2 || (len(agents[0].PausedSchedules) == 1) != paused ||
			len(agents[1].PausedSchedules) != 0 {
			t.Errorf("paused %t: %+v, error %v", paused, agents, err)
		}
	}
}
