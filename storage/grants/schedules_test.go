package grants_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

var morning = turnkeeper.Schedule{Name: "morning", Cron: "0 6 * * *", TimeZone: "Europe/Berlin", Conversation: "main",
	Message: "Wake up."}

func (h *env) schedule() turnkeeper.Schedule {
	h.T.Helper()
	all, err := h.Schedules(h.T.Context())
	if err != nil || len(all) != 1 {
		h.T.Fatalf("schedules %v, error %v", all, err)
	}
	return all[0]
}

// due returns the cron expressions of the due schedules, and fires each with the decision of decide.
func (h *env) due(decide func(granting.DueSchedule) granting.SlotDecision) (crons []string) {
	h.T.Helper()
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		due, err := tick.DueSchedules(ctx, 10)
		for _, d := range due {
			crons = append(crons, d.Cron)
			decision := decide(d)
			decision.Schedule = d
			if err := tick.Fire(ctx, decision); err != nil {
				return err
			}
		}
		return err
	})
	return crons
}

func next(at time.Time) func(granting.DueSchedule) granting.SlotDecision {
	return func(granting.DueSchedule) granting.SlotDecision { return granting.SlotDecision{NextDue: at} }
}

func broken(granting.DueSchedule) granting.SlotDecision {
	return granting.SlotDecision{Error: "cannot be read"}
}

func TestRegisteredSchedules(t *testing.T) {
	h := newEnv(t)
	later := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	h.Register("clerk", false, morning)
	if diff := cmp.Diff([]string{"0 6 * * *"}, h.due(next(later))); diff != "" {
		t.Fatalf("a new schedule is looked at once (-want +got):\n%s", diff)
	}
	if got := h.due(next(later)); got != nil {
		t.Errorf("due again: %v", got)
	}
	h.Register("clerk", false, morning)
	if s := h.schedule(); !s.NextDue.Equal(later) {
		t.Errorf("an unchanged schedule is next due %v, want %v", s.NextDue, later)
	}
	changed := morning
	changed.Message = "Get up."
	h.Register("clerk", false, changed)
	if s := h.schedule(); !s.NextDue.Equal(later) || s.Message != "Get up." {
		t.Errorf("after a change of its message: %+v", s)
	}
	changed.Cron = "0 7 * * *"
	h.Register("clerk", false, changed)
	if diff := cmp.Diff([]string{"0 7 * * *"}, h.due(next(later))); diff != "" {
		t.Errorf("a changed time is looked at again (-want +got):\n%s", diff)
	}
	h.Register("clerk", false)
	if s := h.schedule(); s.Active {
		t.Error("a schedule that left the file is active")
	}
	h.Exec("update turnkeeper.schedules set next_due = now()")
	if got := h.due(next(later)); got != nil {
		t.Errorf("a retired schedule is due: %v", got)
	}
	h.Register("clerk", false, changed)
	if diff := cmp.Diff([]string{"0 7 * * *"}, h.due(next(later))); diff != "" {
		t.Errorf("back in the file (-want +got):\n%s", diff)
	}
}

func TestOverriddenSchedule(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, morning)
	later := time.Now().Add(time.Hour)
	h.due(next(later))
	override := func(cron string) {
		t.Helper()
		if err := h.OverrideSchedule(t.Context(), "clerk", "morning", cron); err != nil {
			t.Fatal(err)
		}
	}
	override("@hourly")
	if diff := cmp.Diff([]string{"@hourly"}, h.due(next(later))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.Register("clerk", false, morning)
	if s := h.schedule(); s.CronOverride != "@hourly" || s.Cron != "0 6 * * *" {
		t.Errorf("after a restart: %+v", s)
	}
	override("")
	if diff := cmp.Diff([]string{"0 6 * * *"}, h.due(next(later))); diff != "" {
		t.Errorf("taken back (-want +got):\n%s", diff)
	}
	// An override repairs a schedule that was switched off. It does not restore one that was
	// removed from its file.
	override("nonsense")
	h.due(broken)
	if s := h.schedule(); s.Active || s.LastError != "cannot be read" {
		t.Errorf("an unreadable schedule: %+v", s)
	}
	override("@daily")
	if diff := cmp.Diff([]string{"@daily"}, h.due(next(later))); diff != "" {
		t.Errorf("repaired (-want +got):\n%s", diff)
	}
	if s := h.schedule(); !s.Active || s.LastError != "" {
		t.Errorf("repaired: %+v", s)
	}
	h.Register("clerk", false)
	override("@hourly")
	if s := h.schedule(); s.Active {
		t.Error("an override revived a schedule that left its file")
	}
	h.Register("clerk", false, morning)
	h.due(broken)
	h.Register("clerk", false)
	override("@hourly")
	if s := h.schedule(); s.Active {
		t.Error("an override revived a schedule that was switched off and then left its file")
	}
	if err := h.OverrideSchedule(t.Context(), "clerk", "nothing", "@daily"); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("an unknown schedule: %v", err)
	}
}

func TestPausedSchedule(t *testing.T) {
	h := newEnv(t)
	h.Register("clerk", false, morning)
	h.due(next(time.Now().Add(-time.Hour)))
	pause := func(paused bool) {
		t.Helper()
		if err := h.PauseSchedule(t.Context(), "clerk", "morning", paused, ""); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	if got := h.due(broken); got != nil || h.schedule().PausedAt.IsZero() {
		t.Errorf("due while paused: %v", got)
	}
	h.Register("clerk", false, morning)
	if h.schedule().PausedAt.IsZero() {
		t.Error("a restart ended the pause")
	}
	pause(false)
	if s := h.schedule(); !s.PausedAt.IsZero() || !s.NextDue.IsZero() {
		t.Errorf("after the pause: %+v; want it to go on from its next slot", s)
	}
	if err := h.PauseSchedule(t.Context(), "nobody", "morning", true, ""); !errors.Is(err, turnkeeper.ErrNotFound) {
		t.Errorf("an unknown schedule: %v", err)
	}
}

func TestSchedulerSettings(t *testing.T) {
	h := newEnv(t)
	if err := h.PauseScheduler(t.Context(), "maintenance"); err != nil {
		t.Fatal(err)
	}
	if err := h.SetScheduler(t.Context(), 2*time.Second, 0); err != nil {
		t.Fatal(err)
	}
	if err := h.SetScheduler(t.Context(), 0, 7); err != nil {
		t.Fatal(err)
	}
	if sit, _ := h.Snapshot(); !sit.Paused || sit.PollInterval != 2*time.Second || sit.MaxDispatches != 7 ||
		sit.Timeline == "" {
		t.Errorf("the scheduler sees %+v", sit)
	}
	s, err := h.SchedulerSettings(t.Context())
	if err != nil || s.PausedReason != "maintenance" || s.PausedAt.IsZero() || s.PollInterval != 2*time.Second ||
		s.MaxDispatches != 7 {
		t.Errorf("settings %+v, error %v", s, err)
	}
	if err := h.ResumeScheduler(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sit, _ := h.Snapshot(); sit.Paused {
		t.Error("it is still paused")
	}
}

func TestOneTickAtATime(t *testing.T) {
	h := newEnv(t)
	look := func(tick *grants.Tick) bool {
		_, locked, err := tick.Snapshot(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return locked
	}
	within := func(inside func(*grants.Tick) error) {
		if err := h.InTick(t.Context(), inside); err != nil {
			t.Fatal(err)
		}
	}
	within(func(first *grants.Tick) error {
		if !look(first) {
			t.Error("the first tick did not get the lock")
		}
		within(func(second *grants.Tick) error {
			if look(second) {
				t.Error("a second tick beside the first got the lock")
			}
			return nil
		})
		return nil
	})
	within(func(third *grants.Tick) error {
		if !look(third) {
			t.Error("the lock outlived its tick")
		}
		return nil
	})
}

func TestGrantOfATakenLaneUndoesTheTick(t *testing.T) {
	h := newEnv(t)
	h.Submit("clerk", "", "x")
	second := h.Submit("clerk", "", "y")
	err := h.InTick(t.Context(), func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(t.Context(), true); err != nil {
			return err
		}
		ready, err := tick.ReadyMessages(t.Context(), 10, nil)
		if err != nil {
			return err
		}
		next := ready[0]
		next.MessageID = second
		grants := []turnkeeper.GrantID{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}
		return errors.Join(
			tick.Grant(t.Context(), ready, grants[:1], storagetest.TurnJob, storagetest.TTL),
			tick.Grant(t.Context(), []granting.Candidate{next}, grants[1:], storagetest.TurnJob, storagetest.TTL),
		)
	})
	if err == nil || !strings.Contains(err.Error(), "another session took one") {
		t.Fatalf("a lane granted twice: %v", err)
	}
	if n := storagetest.One[int](h,
		"select (select count(*) from turnkeeper.turns) + (select count(*) from turnkeeper.river_job) + (select count(*) from turnkeeper.leases)"); n != 0 {
		t.Errorf("the undone tick left %d rows", n)
	}
}

func TestRegisteringAnAgentEndsTheBackoffOfItsLanes(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	err := d.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Error: "no key", Retry: true,
	}}, turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished", LaneBackoff: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if all := h.Dispatch("w"); len(all) != 0 {
		t.Fatalf("dispatched %d turns during the back-off", len(all))
	}
	if err := h.RegisterAgents(t.Context(), []turnkeeper.AgentRegistration{{
		Name: "clerk", DefinitionHash: strings.Repeat("a", 64), Definition: []byte("new"),
	}}); err != nil {
		t.Fatal(err)
	}
	if all := h.Dispatch("w"); len(all) != 1 {
		t.Errorf("dispatched %d turns after the agent was registered anew, want 1", len(all))
	}
}

// TestAScheduleIsRunNow runs schedules outside of their slots.
func TestAScheduleIsRunNow(t *testing.T) {
	h := newEnv(t)
	daily := turnkeeper.Schedule{Agent: "desk", Name: "daily", Cron: "@daily", TimeZone: "UTC", Conversation: "news",
		Message: "Snapshot."}
	broken := turnkeeper.Schedule{Agent: "desk", Name: "broken", Cron: "@daily", TimeZone: "UTC", Conversation: "news",
		Message: "Snapshot again."}
	gone := turnkeeper.Schedule{Agent: "desk", Name: "gone", Cron: "@daily", TimeZone: "UTC", Conversation: "news",
		Message: "Not any more."}
	h.Register("desk", true, daily, broken, gone)
	h.Register("desk", true, daily, broken)
	h.Exec(
		"update turnkeeper.schedules set active = false, last_error = 'no such day', next_due = null where name = 'broken'")
	h.Exec("update turnkeeper.schedules set paused_at = now() where name = 'daily'")
	before := storagetest.One[string](h, "select string_agg(s::text, ' ' order by name) from turnkeeper.schedules s")

	run := func(name string, waits bool) turnkeeper.MessageID {
		t.Helper()
		id, waiting, err := h.RunSchedule(t.Context(), "desk", name)
		if err != nil || waiting != waits {
			t.Fatalf("run %s: %d, waiting %v, %v", name, id, waiting, err)
		}
		return id
	}
	first := run("daily", false)
	if again := run("daily", true); again != first {
		t.Errorf("message %d waits, and the run is %d", first, again)
	}
	m, err := h.Message(t.Context(), first)
	if err != nil || m.Trigger != turnkeeper.TriggerSchedule || m.Schedule != "daily" || m.Lane != "desk/news" ||
		m.Body != "Snapshot." || m.Slot.IsZero() {
		t.Errorf("the message is %+v, %v", m, err)
	}
	h.Dispatch("worker-1") // the message no longer waits
	if next := run("daily", false); next == first {
		t.Error("a message that is handled is taken for one that waits")
	}
	run("broken", false)
	for name, want := range map[string]error{"gone": turnkeeper.ErrWrongState, "never": turnkeeper.ErrNotFound} {
		if id, _, err := h.RunSchedule(t.Context(), "desk", name); !errors.Is(err, want) {
			t.Errorf("run %s: %d, %v", name, id, err)
		}
	}
	if err := h.RetireAgent(t.Context(), "desk"); err != nil {
		t.Fatal(err)
	}
	if id, _, err := h.RunSchedule(t.Context(), "desk", "daily"); !errors.Is(err, turnkeeper.ErrAgentRetired) {
		t.Errorf("run daily of a retired agent: %d, %v", id, err)
	}
	if after := storagetest.One[string](h,
		"select string_agg(s::text, ' ' order by name) from turnkeeper.schedules s"); after != before {
		t.Errorf("the schedules were changed from %s to %s", before, after)
	}
}

// TestWhichSchedulesAreDue has a schedule for each reason to be due or not.
func TestWhichSchedulesAreDue(t *testing.T) {
	h := newEnv(t)
	for name, set := range map[string]string{
		"1 new": "next_due = null", "2 since an hour": "next_due = now() - interval '1 h'",
		"3 since a minute": "next_due = now() - interval '1 min'",
		"in an hour":       "next_due = now() + interval '1 h'",
		"paused":           "next_due = now() - interval '1 h', paused_at = now()",
		"off":              "next_due = now() - interval '1 h', active = false",
		"new, paused":      "next_due = null, paused_at = now()", "new, off": "next_due = null, active = false",
	} {
		h.Exec(
			"insert into turnkeeper.schedules (agent, name, cron, time_zone, conversation, message) values ('clerk', $1, '@daily', 'UTC', 'main', 'x')", name)
		h.Exec("update turnkeeper.schedules set "+set+" where name = $1", name)
	}
	h.Register("aunt", false)
	h.Exec(
		"insert into turnkeeper.schedules (agent, name, cron, time_zone, conversation, message) values ('aunt', 'retired', '@daily', 'UTC', 'main', 'x')")
	h.Exec("update turnkeeper.agents set retired_at = now() where name = 'aunt'")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		due, err := tick.DueSchedules(ctx, 10)
		var names []string
		for _, d := range due {
			names = append(names, d.Name)
		}
		if diff := cmp.Diff([]string{"1 new", "2 since an hour", "3 since a minute"}, names); diff != "" {
			t.Errorf("due are (-want +got):\n%s", diff)
		}
		return err
	})
}

// TestWhatASlotBecomes fires a slot with different messages waiting. Only the schedule of the slot
// gets a new next slot.
func TestWhatASlotBecomes(t *testing.T) {
	h := newEnv(t)
	often, other := morning, morning
	often.Name, other.Name = "often", "other"
	h.Register("clerk", false, often, other)
	h.Register("desk", true, often, other)
	schedules := func() map[string]string {
		rows, _ := h.Pool().Query(t.Context(),
			"select agent || ' ' || name, to_jsonb(s)::text from turnkeeper.schedules s")
		all := map[string]string{}
		var name, row string
		if _, err := pgx.ForEachRow(rows, []any{&name, &row}, func() error {
			all[name] = row
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	slot := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	next := slot.Add(24 * time.Hour)
	occur := func(agent, name, conversation string) {
		before := schedules()
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			next = next.Add(time.Hour)
			d := granting.SlotDecision{Slot: slot, NextDue: next}
			d.Schedule = granting.DueSchedule{Agent: agent, Name: name, Conversation: conversation,
				Message: "Snapshot."}
			return tick.Fire(ctx, d)
		})
		if diff := cmp.Diff([]string{agent + " " + name}, storagetest.Changed(before, schedules())); diff != "" {
			t.Errorf("schedules that are moved on (-want +got):\n%s", diff)
		}
		slot = slot.Add(time.Hour)
	}
	message := func(agent, body string) func() { return func() { h.Submit(agent, "main", body) } }
	schedule := func(agent, name, conversation string) func() { return func() { occur(agent, name, conversation) } }
	for name, c := range map[string]struct {
		waits []func()
		agent string
		want  string // lane of the new message; empty: there is none
	}{
		"nothing waits":                     {nil, "clerk", "clerk"},
		"nothing waits in its conversation": {nil, "desk", "desk/main"},
		"a message waits":                   {[]func(){message("clerk", "x")}, "clerk", "clerk"},
		"another schedule waits": {[]func(){schedule("clerk", "other", "main")},
			"clerk", "clerk"},
		"that of another agent waits": {[]func(){schedule("desk", "often", "main")},
			"clerk", "clerk"},
		"it waits": {[]func(){schedule("clerk", "often", "main")}, "clerk", ""},
		"it waits, for another conversation of its lane": {[]func(){schedule("clerk", "often", "log")}, "clerk", ""},
		"it waits in another lane": {[]func(){schedule("desk", "often", "log")},
			"desk", "desk/main"},
		"it has run": {[]func(){schedule("clerk", "often", "main"), func() {
			h.Exec(closed)
		}}, "clerk", "clerk"},
		"it has become one, which is closed, for its slot": {[]func(){schedule("clerk", "often", "main"), func() {
			h.Exec(closed)
		}, func() { slot = slot.Add(-time.Hour) }}, "clerk", ""},
	} {
		h.Exec(closed)
		for _, waits := range c.waits {
			waits()
		}
		last := storagetest.One[int](h, "select coalesce(max(id), 0) from turnkeeper.messages")
		at := slot
		occur(c.agent, "often", "main")
		got := storagetest.One[string](h,
			`select coalesce(string_agg(concat_ws(' ', lane, case when (agent, schedule, slot, due_at, trigger) = ($2, 'often', $3, $3, 'schedule') then '' else 'wrong' end), ', '), '')
			from turnkeeper.messages where id > $1`, last, c.agent, at)
		if strings.TrimSpace(got) != c.want {
			t.Errorf("%s: it becomes a message in the lane %q, want %q", name, got, c.want)
		}
		slot = at.Add(time.Hour)
	}
}

// TestARetiredAgentGetsNoSlot fires a slot of an agent that was retired after the schedules were listed.
func TestARetiredAgentGetsNoSlot(t *testing.T) {
	h := newEnv(t)
	h.Register("aunt", false, morning)
	decide := func(granting.DueSchedule) granting.SlotDecision {
		h.Exec("update turnkeeper.agents set retired_at = now() where name = 'aunt'")
		return granting.SlotDecision{Slot: time.Now().Truncate(time.Second), NextDue: time.Now().Add(time.Hour)}
	}
	if got := h.due(decide); len(got) != 1 {
		t.Fatalf("due are %v", got)
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.messages"); n != 0 {
		t.Errorf("the slot became %d messages", n)
	}
}

// closed is SQL that closes all waiting messages.
const closed = "update turnkeeper.messages set state = 'cancelled', closed_at = clock_timestamp() where state = 'waiting'"

// TestAHeldScheduleIsRunNow runs a schedule whose message waits in another lane, because something holds it.
func TestAHeldScheduleIsRunNow(t *testing.T) {
	for name, hold := range map[string]func(h *env, before *storagetest.Dispatch) error{
		"the level of the agent": func(h *env, _ *storagetest.Dispatch) error {
			h.Exec(`update turnkeeper.agents set levels = '{"low": {"min_priority": 9}}'`)
			err := h.PinLevel(h.T.Context(), operate.Pin{Agent: "clerk", Level: survival.Low, By: "ann"})
			h.Tick(func(ctx context.Context, tick *grants.Tick) error { _, err := tick.MoveLevels(ctx); return err })
			return err
		},
		"a turn that waits for a person": func(h *env, before *storagetest.Dispatch) error {
			before.Write(h.T, turnlog.Entry{Asks: []asks.Question{{Call: storagetest.Key(1, 1), Kind: asks.KindQuestion,
				N: 1, Tool: "ask", Arguments: "{}", Terms: asks.Terms{Hold: true, Timeout: time.Hour}}}})
			before.Wait(h.T)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.Register("clerk", false, morning)
			before := h.Turn("x")
			first, waiting, err := h.RunSchedule(t.Context(), "clerk", "morning")
			if err != nil || waiting {
				t.Fatalf("waiting %t, %v", waiting, err)
			}
			if err := hold(h, before); err != nil {
				t.Fatal(err)
			}
			if m, err := h.Message(t.Context(), first); err != nil || m.Lane == "clerk" {
				t.Errorf("the message is not held: %+v, %v", m, err)
			}
			if id, waiting, err := h.RunSchedule(t.Context(), "clerk", "morning"); err != nil || !waiting ||
				id != first {
				t.Errorf("message %d is held, and the run is %d, waiting %t, %v", first, id, waiting, err)
			}
		})
	}
}
