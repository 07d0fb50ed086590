package mcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

func TestRedirectsToAnotherOriginAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "", func(s *mcp.Server) {
		s.URL = strings.TrimSuffix(s.URL, "/mcp") + "/elsewhere"
		s.Headers = map[string]string{"X-Secret": "s"}
	})
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
		"redirect refused: it leads to another origin") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "", func(s *mcp.Server) { s.Headers = map[string]string{"Authorization": "Bearer abc"} })
	b.answers("echo", "{}")
	b.http.mu.Lock()
	defer b.http.mu.Unlock()
	if got := b.http.headers.Get("Authorization"); got != "Bearer abc" {
		t.Errorf("Authorization: %q", got)
	}
}

func TestCancellationIsSentOn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan tools.RunResult, 1)
		go func() { ended <- b.callAs(ctx, tools.Call{}, "hang", `{}`, 0) }()
		await(t, "the call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"hang"}) })
		cancel(errors.New("enough"))
		if got := <-ended; got.Outcome != tools.Cancelled || !strings.Contains(got.Result.Text, "enough") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		await(t, "the cancellation", func() bool {
			return strings.Contains(marksIn(b.dir, "cancelled")[0], "requestId")
		})
		b.answers("echo", "{}")
	})
}

func TestAHangIsATimeout(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		b.answers("echo", "{}")
		got := b.callAs(t.Context(), tools.Call{}, "hang", `{}`, 50*time.Millisecond)
		if got.Outcome != tools.TimedOut || got.Result.Text != "tool error: 'h__hang' timed out after 0.05 s" {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		for _, tool := range []string{"progress", "late_progress"} {
			told := make(chan string, 10)
			if got := b.callAs(t.Context(), tools.Call{Progress: func(s string) { told <- s }}, tool, `{}`,
				patience); got.Result.Text != "done" {
				t.Errorf("%q", got.Result.Text)
			}
			await(t, "the first step", func() bool {
				select {
				case text := <-told:
					return text == "1 of 3: step 1" // progress on another stream may come first
				default:
					return false
				}
			})
		}
	})
}

func TestWhatAServerAsksFor(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ declined, allowed string }{
		"elicit":          {`{"action":"decline"}`, `{"action":"accept","content":{"name":"Ada"}}`},
		"elicit_required": {`{"action":"decline"}`, `{"action":"decline"}`},
		"sample": {
			`{"code":-1,"message":"sampling is declined: the operator's policy does not allow it"}`,
			`{"code":-1,"message":"sampling is declined: the operator's policy does not allow it"}`,
		},
		"roots": {`{"roots":[]}`, `{"roots":[{"name":"/srv/a b","uri":"file:///srv/a%20b"}]}`},
	}
	both(t, func(t *testing.T, transport string) {
		declining := newBench(t, transport, "")
		allowing := newBench(t, transport, "", func(s *mcp.Server) {
			s.AcceptDefaults, s.Roots = true, []string{"/srv/a b"}
		})
		for tool, want := range cases {
			declining.answers(tool, want.declined)
			allowing.answers(tool, want.allowed)
		}
	})
}

func TestTheEnvironmentIsWhatIsDeclared(t *testing.T) {
	t.Setenv("WORKERS_SECRET", "leaked")
	b := newBench(t, overStdio, "", func(s *mcp.Server) { s.Env = append(s.Env, "MINE=1") })
	got := b.call("env", `{}`)
	var names []string
	for line := range strings.SplitSeq(got.Result.Text, "\n") {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	if want := []string{hostileVariable, "MINE", "TURNKEEPER_PROGRAM_FAMILY"}; !cmp.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		ended := make(chan tools.RunResult)
		for range 20 {
			go func() { ended <- b.call("slow", `{}`) }()
		}
		for range 20 {
			if got := <-ended; got.Outcome != tools.Succeeded {
				t.Errorf("%s: %q", got.Outcome, got.Result.Text)
			}
		}
		if transport == overStdio && len(marksIn(b.dir, "starts")) != 1 {
			t.Error("there was more than one process")
		}
	})
}
