package grants_test

import "testing"

// TestWhichMessagesAreReadyBesideOthers has messages that differ from ready ones only in the agent's lanes, in a
// sub-agent's call of another message, or in when they came due.
func TestWhichMessagesAreReadyBesideOthers(t *testing.T) {
	h := newEnv(t)
	h.Register("aunt", true)
	h.Register("mover", true)
	h.Exec("update turnkeeper.agents set lanes_changed_at = now() where name = 'mover'")
	for _, m := range []struct{ agent, conversation, lane, due, accepted string }{
		{"desk", "came-due", "desk/came-due", "-50 s", "-1 h"},
		{"clerk", "strayed", "clerk/strayed", "-45 s", "0"}, // accepted under a setting that changed long ago
		{"mover", "moved", "mover/moved", "-40 s", "0"},
		{"mover", "to-move", "mover", "-30 s", "0"},
		{"aunt", "retired", "aunt/retired", "-20 s", "0"},
		{"desk", "later", "desk/later", "1 h", "0"},
		{"desk", "once", "desk/once", "2 h", "2 h"}, // it was due before the clock was set back
	} {
		h.Exec(
			"update turnkeeper.messages set due_at = now() + $2::text::interval, accepted_at = now() + $3::text::interval where id = $1",
			h.addMessage(m.agent, m.conversation, m.lane, "waiting"), m.due, m.accepted)
	}
	h.addSpawned(h.addMessage("desk", "spawned", "desk/spawned", "succeeded"))
	if err := h.RetireAgent(t.Context(), "aunt"); err != nil {
		t.Fatal(err)
	}
	if short, general := h.readyMessages(100); short != general || general != "came-due strayed moved once" {
		t.Errorf("%q by the short statement, %q by the general one", short, general)
	}
	if short, general := h.readyMessages(4); short != general || general != "came-due strayed moved once" {
		t.Errorf("the first four: %q by the short statement, %q by the general one", short, general)
	}
	// The oldest are all of the retired agent, and a closed one is in the first lane of all.
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at)
		select 'aunt', 'retired', 'aunt/retired', 'x', now() - interval '1 h' from generate_series(1, 4)`)
	h.addMessage("a", "answered", "a", "succeeded")
	h.Exec("update turnkeeper.messages set due_at = now() - interval '2 h' where lane = 'a'")
	if _, general := h.readyMessages(1); general != "came-due" {
		t.Errorf("behind a crowd of a retired agent: %q", general)
	}
	// The oldest are all of an agent whose messages wait to be moved.
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, due_at)
		select 'mover', 'to-move', 'mover', 'x', now() - interval '2 h' from generate_series(1, 4)`)
	if _, general := h.readyMessages(1); general != "came-due" {
		t.Errorf("behind a crowd that waits to be moved: %q", general)
	}
}
