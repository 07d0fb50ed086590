package mcp_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	b := newBenchWithin(t, func(l *mcp.Limits) { l.FirstPause, l.LastPause = time.Hour, time.Hour }, overStdio, "dead")
	got := b.call("echo", `{}`)
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		`the MCP server "h" cannot be reached: its program ended with exit code 3; it is tried again in`) ||
		!strings.Contains(got.Result.Text, "Nothing was run") {
		t.Errorf("%q", got.Result.Text)
	}
	for range 20 {
		b.call("echo", `{}`)
	}
	if starts := len(marksIn(b.dir, "starts")); starts > 1 {
		t.Errorf("it was started %d times at once", starts)
	}
}

// A server that is down at first is connected to later, in the background.
func TestUseKeepsTrying(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "die-once")
	b.Use("h", "h", "unknown")
	await(t, "its tools", func() bool { return b.Tool("h", "echo").Spec().Description == "Does echo." })
	b.answers("echo", "{}")
}

// A server that does not answer a ping after a timeout is restarted.
func TestAFrozenServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Ping = 50 * time.Millisecond }, overStdio, "frozen")
	b.answers("echo", "{}")
	b.callAs(t.Context(), tools.Call{}, "hang", `{}`, 50*time.Millisecond)
	b.Use("h")
	await(t, "another start", func() bool { return len(marksIn(b.dir, "starts")) == 2 })
	b.answers("echo", "{}")
}

func TestAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "mute", func(s *mcp.Server) { s.ConnectTimeout = 100 * time.Millisecond })
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		"it did not answer in time") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
}

// Some servers do not answer unknown requests.
func TestAServerThatIgnoresTheNewestProtocol(t *testing.T) {
	t.Parallel()
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Newest = 100 * time.Millisecond }, overStdio, "silent-discover")
	b.answers("echo", "{}")
	named := newBench(t, overStdio, "silent-discover", func(s *mcp.Server) { s.Protocol = "2025-11-25" })
	named.answers("echo", "{}")
	if starts := len(marksIn(named.dir, "starts")); starts != 1 {
		t.Errorf("%d starts", starts)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	for _, perLane := range []bool{false, true} {
		t.Run(strconv.FormatBool(perLane), func(t *testing.T) {
			b := newBench(t, overStdio, "", func(s *mcp.Server) { s.SessionPerLane = perLane })
			for _, lane := range []turnkeeper.Lane{"a", "b", "a"} {
				for _, user := range []string{"", "anna", "bert", "anna"} {
					b.callAs(t.Context(), tools.Call{Lane: lane, User: user}, "echo", `{}`, patience)
				}
			}
			want := map[bool]int{false: 1, true: 6}[perLane]
			if starts := len(marksIn(b.dir, "starts")); starts != want {
				t.Errorf("%d processes, want %d", starts, want)
			}
		})
	}
}

func TestALaneThatIsIdleEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "", func(s *mcp.Server) { s.SessionPerLane, s.IdleTimeout = true, 50*time.Millisecond })
	b.answers("echo", "{}")
	pid := marksIn(b.dir, "starts")[0]
	await(t, "its end", func() bool { return !alive(pid) })
	b.answers("echo", "{}")
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && syscall.Kill(n, 0) == nil
}

// No process of a server outlives the client, even if it ignores signals or is
// in another session.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	b := newBenchWithin(t, func(l *mcp.Limits) { l.End = 50 * time.Millisecond }, overStdio, "deaf")
	b.answers("fork", "forked")
	processes := append(marksIn(b.dir, "starts"), marksIn(b.dir, "children")...)
	if len(processes) != 2 || !alive(processes[0]) || !alive(processes[1]) {
		t.Fatalf("%q do not all run", processes)
	}
	b.Close()
	for _, pid := range processes {
		if alive(pid) {
			t.Errorf("process %s lives on", pid)
		}
	}
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		"this worker is stopping") {
		t.Errorf("after the end: %q", got.Result.Text)
	}
}
