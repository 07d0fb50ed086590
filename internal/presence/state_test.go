package presence_test

import (
	"testing"
	"time"

	"turnkeeper/internal/presence"
)

func TestEveryStateOfAWorker(t *testing.T) {
	t.Parallel()
	stopped := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		beat presence.Heartbeat
		want presence.State
	}{
		"takes turns": {presence.Heartbeat{Slots: 1, Roles: []string{presence.RoleScheduler,
			presence.RoleWorker}}, presence.Alive},
		"has slots": {presence.Heartbeat{Slots: 1}, presence.Alive},
		"has slots and no role": {presence.Heartbeat{Slots: 1, Roles: []string{presence.RoleScheduler}},
			presence.Alive},
		"no slots": {presence.Heartbeat{Roles: []string{presence.RoleScheduler, presence.RoleWorker}},
			presence.Draining},
		"no slots of a worker":   {presence.Heartbeat{Roles: []string{presence.RoleWorker}}, presence.Draining},
		"says nothing of itself": {presence.Heartbeat{}, presence.Draining},
		"serves":                 {presence.Heartbeat{Roles: []string{presence.RoleScheduler}}, presence.Serving},
		"silent": {presence.Heartbeat{Roles: []string{presence.RoleScheduler},
			Silent: presence.SilentAfter + 1}, presence.Silent},
		"stopped": {presence.Heartbeat{Slots: 1, Silent: time.Hour, StoppedAt: stopped},
			presence.Stopped},
	} {
		if got := c.beat.State(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestTheLongestRefusal looks for it among a process's own and those of workers, and leaves both as they were.
func TestTheLongestRefusal(t *testing.T) {
	t.Parallel()
	own := make([]presence.Refusal, 1, 4)
	own[0] = presence.Refusal{Turn: 1, For: time.Second}
	workers := []presence.Heartbeat{
		{Slots: 1, Refused: []presence.Refusal{{Turn: 2, For: 2 * time.Second}, {Turn: 3, For: 3 * time.Second}}},
		{Slots: 1, Refused: []presence.Refusal{{Turn: 4, For: 3 * time.Second}}, Silent: time.Hour},
		{Slots: 1, Refused: []presence.Refusal{{Turn: 5, For: time.Hour}}, StoppedAt: time.Unix(1, 0)},
	}
	if got := presence.Longest(own, workers); got == nil || got.Turn != 3 {
		t.Errorf("of all: %+v", got)
	}
	if got := presence.Longest(own, nil); got == nil || got.Turn != 1 {
		t.Errorf("of its own: %+v", got)
	}
	if got := presence.Longest(nil, workers[2:]); got != nil {
		t.Errorf("of a stopped worker: %+v", got)
	}
	if beyond := own[:2]; beyond[1].Turn != 0 {
		t.Errorf("its own are written to: %+v", beyond)
	}
}
