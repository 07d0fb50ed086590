package storage_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// An agent whose rows, or whose schedule's rows, cannot be written is set aside, and the others are registered.
func TestEachAgentIsRegisteredForItself(t *testing.T) {
	h := newEnv(t)
	slot := turnkeeper.Schedule{Name: "s", Cron: "0 8 * * *", TimeZone: "UTC", Message: "x"}
	all := []turnkeeper.AgentRegistration{
		storagetest.Registration("broken", false), storagetest.Registration("sound", false),
		storagetest.Registration("timed", false, slot), storagetest.Registration("last", false),
	}
	register := func(want ...string) {
		t.Helper()
		if failed, err := h.RegisterEach(t.Context(), all); err != nil || !slices.Equal(failed, want) {
			t.Errorf("%q failed, %v; want %q", failed, err, want)
		}
	}
	aside := func(want string) {
		t.Helper()
		if got := storagetest.One[string](h,
			"select coalesce(string_agg(kind || ' ' || id || ' ' || failures, ', ' order by id), '') from turnkeeper.set_aside"); got != want {
			t.Errorf("set aside: %q, want %q", got, want)
		}
	}
	h.Exec(`create function refuse() returns trigger language plpgsql as $$ begin
		if to_jsonb(new) ->> 'name' = 'broken' or to_jsonb(new) ->> 'agent' = 'timed' then raise exception 'refused'; end if; return new; end $$`)
	h.Exec("create trigger refuse before insert or update on turnkeeper.agents for each row execute function refuse()")
	h.Exec(
		"create trigger refuse before insert or update on turnkeeper.schedules for each row execute function refuse()")
	register("broken", "timed")
	aside("agent broken 1, agent timed 1")
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.agents where name in ('broken', 'sound', 'timed', 'last')"); n != 2 {
		t.Errorf("%d agents are registered, want 2", n)
	}
	if due, err := h.AgentsToTry(t.Context(), []string{"broken", "sound"}); err != nil || !slices.Equal(due,
		[]string{"sound"}) {
		t.Errorf("to try: %q, %v", due, err)
	}
	register("broken", "timed")
	aside("agent broken 2, agent timed 2")
	h.Exec("update turnkeeper.set_aside set next_try = clock_timestamp()")
	if due, err := h.AgentsToTry(t.Context(), []string{"timed", "broken"}); err != nil || !slices.Equal(due,
		[]string{"broken", "timed"}) {
		t.Errorf("to try: %q, %v", due, err)
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.RegisterEach(cancelled, all); !errors.Is(err, context.Canceled) {
		t.Errorf("without a database: %v", err)
	}
	aside("agent broken 2, agent timed 2")

	h.Exec("drop function refuse cascade")
	h.Exec("create function keep() returns trigger language plpgsql as $$ begin raise exception 'it is kept'; end $$")
	h.Exec("create trigger keep before delete on turnkeeper.set_aside for each row execute function keep()")
	register() // they are registered all the same
	h.Exec("drop function keep cascade")
	register()
	aside("")
}
