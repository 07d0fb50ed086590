package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// turnctl events --follow, on a terminal and in pipes, while the worker is killed during a round and another
// repeats it: the output says what was rolled back, and ends with the text of the reply.
func TestFollowOverALostWorker(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	var lines []string
	for n := range 120 {
		lines = append(lines,
			fmt.Sprintf("line %d of what the model says, which is long enough to be streamed in pieces", n))
	}
	long := strings.Join(lines, "\n")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		if len(e.Model.Requests()) == 1 {
			return env.HangHalfway(long)
		}
		return inferencetest.Text(long)
	})
	first := e.StartWorker()
	message := e.Send("clerk", "Talk.")
	e.Await("the turn streams", "select exists (select from turn_events where type = 'block_delta')")

	x := newTerminal(t, e, 110, 200)
	x.line("turnctl events latest --follow; echo ended:$?")
	x.shows("line 30 of what")
	pipe := env.StartProcess(t, "events", e.Dir, e.Environ(), env.Binary(t, "turnctl"), "events", "1", "--follow")
	programs := env.StartProcess(t, "events as JSON", e.Dir, e.Environ(), env.Binary(t, "turnctl"), "events", "1",
		"--follow", "-o", "json")
	pipe.Await("line 3 of what")
	programs.Await("line 3 of what")
	e.Kill(first)
	e.StartWorker()
	e.AwaitClosed(message)
	e.WantReply(e.TurnOf(message), long)

	for _, p := range []*env.Process{pipe, programs} {
		if code := p.Wait(); code != 0 {
			t.Errorf("%s ended with %d", p.Name, code)
		}
	}
	before, after, found := strings.Cut(pipe.Output.String(), "↶ round 1 is discarded: its text above is void")
	if !found || !strings.Contains(before, "line 3 of what") || strings.Count(after, long) != 1 ||
		strings.Contains(after, "reply\n") {
		t.Errorf("in a pipe it says\n%s", pipe.Output)
	}
	if strings.ContainsRune(pipe.Output.String(), '\x1b') {
		t.Error("there are escape sequences in a pipe")
	}
	stands, next := "", int64(1)
	for line := range strings.Lines(programs.Output.String()) {
		var event env.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Seq != next {
			t.Fatalf("event %d is %s, %v", next, line, err)
		}
		next++
		switch event.Type {
		case "round_start", "round_rollback":
			stands = ""
		case "block_delta":
			stands += event.Data.Text
		}
	}
	if stands != long {
		t.Errorf("the events have %d bytes, the reply has %d", len(stands), len(long))
	}
	x.shows("ended:0")
	history := x.tmux("capture-pane", "-p", "-J", "-S", "-")
	before, after, found = strings.Cut(history, "↶ round 1 is discarded: its text above is void")
	if !found || !strings.Contains(before, "line 3 of what") || !strings.Contains(after, long) {
		t.Errorf("on the terminal it says\n%s", history)
	}
}
