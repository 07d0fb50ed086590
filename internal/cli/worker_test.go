package cli_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/cli/worker"
)

// startWorker runs the worker program until the test ends.
func startWorker(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	log, output := io.Pipe()
	var running sync.WaitGroup
	running.Go(func() {
		code := worker.Program().Run(ctx, context.WithoutCancel(ctx), shell.Environment{
			Args: args, Stderr: output, Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
		if code != 0 {
			t.Errorf("the worker ended with exit code %d", code)
		}
		output.Close()
	})
	lines := bufio.NewScanner(log)
	var before strings.Builder
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "worker ready") {
		before.WriteString(lines.Text() + "\n")
	}
	running.Go(func() { _, _ = io.Copy(io.Discard, log) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	if !strings.HasPrefix(lines.Text(), "worker ready") {
		t.Fatalf("the worker was not ready:\n%s", before.String())
	}
}

func TestMessageToReply(t *testing.T) {
	env, _ := somewhere(t)
	startWorker(t, env, "--log-level", "warn")

	got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--wait", "--verbose", "What time is it?")
	if got.code != 0 || !strings.Contains(got.stdout, "What time is it?") || strings.Contains(got.stdout, "accepted") {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"message 1 accepted", "round 1 of 3", "clock", "succeeded after 2 rounds"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("the progress lacks %q:\n%s", want, got.stderr)
		}
	}
	type waited struct {
		State, Outcome, Reply string
		TurnID                int64 `json:"turn_id"`
	}
	second := decode[waited](t, run(t, enqueue.Program(), env, "", "--agent", "echo", "--wait", "--json", "And now?"))
	if second.State != "succeeded" || second.Outcome != "succeeded" || !strings.Contains(second.Reply, "And now?") {
		t.Errorf("%+v", second)
	}

	type whole struct {
		ID     int64
		State  string
		Rounds int    `json:"inference_round_count"`
		Stop   string `json:"continuation_stop_reason"`
		Log    []struct {
			ToolCalls []struct{ Name, State string } `json:"tool_calls"`
		} `json:"rounds"`
		Reply struct{ Body string }
	}
	turn := decode[whole](t, run(t, turnctl.Program(), env, "", "show", "latest", "-o", "json"))
	if turn.ID != second.TurnID || turn.State != "succeeded" || turn.Stop != "none" || turn.Rounds != len(turn.Log) ||
		turn.Reply.Body != second.Reply || turn.Log[0].ToolCalls[0].Name != "clock" {
		t.Errorf("%+v", turn)
	}
	page := run(t, turnctl.Program(), env, "", "show", "1")
	for _, want := range []string{"Turn 1  ✓ succeeded", "Asked", "Answered", "Rounds", "clock", "Dispatches"} {
		if !strings.Contains(page.stdout, want) {
			t.Errorf("the page lacks %q:\n%s", want, page.stdout)
		}
	}
	if workers := run(t, turnctl.Program(), env, "", "workers"); !strings.Contains(workers.stdout, "alive") {
		t.Errorf("%+v", workers)
	}
}

func TestOutboxIsFollowed(t *testing.T) {
	env, _ := somewhere(t)
	startWorker(t, env, "--log-level", "warn")
	if got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--wait", "first"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	output, stdout := io.Pipe()
	var code int
	var following sync.WaitGroup
	following.Go(func() {
		code = turnctl.Program().Run(ctx, t.Context(), shell.Environment{
			Args: []string{"outbox", "--follow", "--after", "0", "-o", "json"}, Stdout: stdout,
			Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		})
		stdout.Close()
	})
	lines := bufio.NewScanner(output)
	for _, want := range []string{"first", "second"} {
		if want == "second" {
			if got := run(t, enqueue.Program(), env, "", "--agent", "echo", "second"); got.code != 0 {
				t.Fatalf("%+v", got)
			}
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Errorf("line %q, want the reply to %q", lines.Text(), want)
		}
	}
	type reply struct{ ID int64 }
	for _, order := range []struct {
		args []string
		want []reply
	}{
		{nil, []reply{{2}, {1}}},
		{[]string{"--before", "2"}, []reply{{1}}},
		{[]string{"--after", "0"}, []reply{{1}, {2}}},
		{[]string{"--after", "1"}, []reply{{2}}},
	} {
		got := decode[[]reply](t, run(t, turnctl.Program(), env, "", append([]string{"outbox", "-o", "json"},
			order.args...)...))
		if diff := cmp.Diff(order.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", order.args, diff)
		}
	}
	stop()
	following.Wait()
	if code != 0 {
		t.Errorf("exit code %d, want 0: it was asked to end", code)
	}
}
