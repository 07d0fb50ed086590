package cli_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/cli/turnctl"
)

// says fails the test unless the program prints each text.
func says(t *testing.T, env map[string]string, args []string, want ...string) {
	t.Helper()
	got := run(t, turnctl.Program(), env, "", args...)
	if got.code != 0 || got.stderr != "" {
		t.Errorf("%v: %+v", args, got)
	}
	text := strings.Join(strings.Fields(got.stdout), " ")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%v does not say %q:\n%s", args, w, got.stdout)
		}
	}
}

// messagesExplained explains messages after the endings of TestExplain, while a turn holds the lane.
func (s *stage) messagesExplained(env map[string]string) {
	t := s.t
	t.Helper()
	running := s.send("Behind a turn.") - 1
	behind := running + 1
	explain := func(id turnkeeper.MessageID) []string { return []string{"explain", "--message", idOf(id)} }
	says(t, env, explain(running), "turn 18 runs on worker host-3.", "turnctl events 18 --follow")
	says(t, env, explain(behind), "has had no turn yet", "- turn 18 of worker host-3 holds lane echo, at most until",
		"- no worker takes turns.",
		"See the turn: turnctl explain 18.", "Start a worker: ")
	if err := s.PauseScheduler(t.Context(), "the provider is down."); err != nil {
		t.Fatal(err)
	}
	if err := s.PauseSchedule(t.Context(), "watcher", "default", true, "too many"); err != nil {
		t.Fatal(err)
	}
	says(t, env, explain(behind), "- the scheduler has been paused since", ": the provider is down.",
		"Resume the scheduler: turnctl scheduler resume.")
	says(t, env, explain(2), "turn 2 closed it at", ": the turn ended degraded.",
		"Reply 2, degraded: “Tool results: 1 succeeded, 0 failed.”", "turnctl explain 2.")
	says(t, env, explain(11), "the turn was cancelled.")
	says(t, env, []string{"inbox", "--limit", "100"}, "! degraded echo", "✓ succeeded echo",
		"· waiting, scheduler paused echo", "✗ failed echo")
	says(t, env, []string{"lanes"}, "The scheduler has been paused since", ": the provider is down.")
	says(t, env, []string{"top", "--once"}, "The scheduler has been paused since",
		"round 1 streams, ~100 tokens so far")
	says(t, env, []string{"schedules"}, "The scheduler has been paused since", "watcher/default paused 0 9 * * *",
		"- - main paused since", ": too many")
	says(t, env, []string{"turns"}, "round 1 streams, ~100 tokens so far")
	says(t, env, []string{"show", "18"}, "now round 1 streams, ~100 tokens so far")
	says(t, env, []string{"show", "17"}, "The call may have been running")
	if got := run(t, turnctl.Program(), env, "", "agents"); !strings.Contains(got.stdout,
		"(paused: schedule default)") {
		t.Errorf("agents: %+v", got)
	}
	type view struct {
		MessageID int64 `json:"message_id"`
		State     string
		Outcome   *string
		Waits     []struct{ Reason, Detail, Until string }
		Topics    []struct{ Topic string }
	}
	v := decode[view](t, run(t, turnctl.Program(), env, "", append(explain(behind), "-o", "json")...))
	var reasons []string
	for _, w := range v.Waits {
		reasons = append(reasons, w.Reason)
	}
	if want := []string{"lane_held", "scheduler_paused", "no_worker"}; !slices.Equal(reasons, want) ||
		v.State != "waiting" || v.Outcome != nil || v.Waits[0].Until == "" {
		t.Errorf("%+v, want the waits %v", v, want)
	}
	if v := decode[view](t, run(t, turnctl.Program(), env, "", append(explain(2), "-o",
		"json")...)); v.Outcome == nil || *v.Outcome != "degraded" || len(v.Waits) != 0 {
		t.Errorf("%+v", v)
	}
	for _, args := range [][]string{{"explain"}, {"explain", "1", "--message", "1"}, {"explain", "--message", "0"}} {
		if got := run(t, turnctl.Program(), env, "", args...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func idOf(id turnkeeper.MessageID) string { return strconv.FormatInt(int64(id), 10) }
