package tests_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// turnctl events --follow, on a terminal and in pipes, while the worker is killed in the middle of
// a round and another runs it again: what was taken back is said to be, and the text that stands
// is that of the reply.
func TestFollowOverALostWorker(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	var lines []string
	for n := range 120 {
		lines = append(lines, fmt.Sprintf("line %d of what the model says, which is long enough to be streamed in pieces", n))
	}
	long := strings.Join(lines, "\n")
	h.model.Then(func(recorded) reply {
		if len(h.model.Requests()) == 1 {
			return halfOf(long)
		}
		return text(long)
	})
	first := h.startWorker("--takeover-after", silence)
	message := h.send("clerk", "Talk.")
	h.await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")

	x := h.newTerminal(t, 110, 200)
	x.line("turnctl events latest --follow; echo ended:$?")
	x.shows("line 30 of what")
	pipe := startProcess(t, "events", h.dir, h.environment(), binary(t, "turnctl"), "events", "1", "--follow")
	programs := startProcess(t, "events as JSON", h.dir, h.environment(), binary(t, "turnctl"), "events", "1", "--follow", "-o", "json")
	pipe.await("line 3 of what")
	programs.await("line 3 of what")
	first.kill()
	h.startWorker("--takeover-after", silence)
	h.awaitClosed(message)
	h.replied(h.turnOf(message), long)

	for _, p := range []*process{pipe, programs} {
		if code := p.wait(); code != 0 {
			t.Errorf("%s ended with %d", p.name, code)
		}
	}
	before, after, found := strings.Cut(pipe.said.String(), "↶ round 1 is taken back: what it said above is void")
	if !found || !strings.Contains(before, "line 3 of what") || strings.Count(after, long) != 1 || strings.Contains(after, "reply\n") {
		t.Errorf("in a pipe it says\n%s", pipe.said)
	}
	if strings.ContainsRune(pipe.said.String(), '\x1b') {
		t.Error("there are escape sequences in a pipe")
	}
	stands, next := "", int64(1)
	for line := range strings.Lines(programs.said.String()) {
		var e watched
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != next {
			t.Fatalf("event %d is %s, %v", next, line, err)
		}
		next++
		switch e.Type {
		case "round_start", "round_rollback":
			stands = ""
		case "block_delta":
			stands += e.Data.Text
		}
	}
	if stands != long {
		t.Errorf("by the events %d bytes stand, the reply has %d", len(stands), len(long))
	}
	x.shows("ended:0")
	history := x.tmux("capture-pane", "-p", "-J", "-S", "-")
	before, after, found = strings.Cut(history, "↶ round 1 is taken back: what it said above is void")
	if !found || !strings.Contains(before, "line 3 of what") || !strings.Contains(after, long) {
		t.Errorf("on the terminal it says\n%s", history)
	}
}
