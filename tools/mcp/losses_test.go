package mcp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

// A call that was sent but not answered is in doubt; the next call works.
func TestACrashIsOneFailedCall(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		b.answers("echo", "{}")
		got := b.call("crash_once", `{}`)
		if got.Outcome != tools.InDoubt || !errors.Is(got.Err, tools.ErrInDoubt) || !strings.Contains(got.Result.Text,
			"may or may not have happened") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		if transport == overStdio && !strings.Contains(got.Result.Text, "its program ended with exit code 7") {
			t.Errorf("it does not say how: %q", got.Result.Text)
		}
		b.answers("crash_once", "alive")
	})
}

// A repeatable call is sent once more.
func TestARepeatableCallIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, e := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed} {
		both(t, func(t *testing.T, transport string) {
			b := newBench(t, transport, "", effect(e))
			b.answers("crash_once", "alive")
			if got := b.call("crash", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
				"did not answer") {
				t.Errorf("%s: %q", got.Outcome, got.Result.Text)
			}
			calls := marksIn(b.dir, "calls")
			if want := []string{"crash_once", "crash_once", "crash", "crash"}; !cmp.Equal(calls, want) {
				t.Errorf("%q were called", calls)
			}
		})
	}
}

// A call with effect once reaches the server only once.
func TestOnceIsSentOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		for range 3 {
			b.call("crash", `{}`)
		}
		if calls := marksIn(b.dir, "calls"); len(calls) > 3 {
			t.Errorf("three calls were sent %d times", len(calls))
		}
	})
}

func TestAnHTTPServerThatForgotTheSession(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run("in the way of the Python SDK, "+strconv.Itoa(status), func(t *testing.T) {
			b := newBench(t, overHTTP, "", effect(turnkeeper.EffectNone))
			b.answers("echo", "{}")
			b.http.forgetAs(status, `"server-error"`)
			b.answers("echo", "{}")
		})
		t.Run("of effect none, "+strconv.Itoa(status), func(t *testing.T) {
			b := newBench(t, overHTTP, "", effect(turnkeeper.EffectNone))
			b.answers("echo", "{}")
			b.http.forget(status)
			b.answers("echo", "{}")
		})
	}
}

// A call in an unknown session (404) was not run, so a call with effect once is
// sent once more, but not again. Other refusals are reported to the model.
func TestOnceAndAForgottenSession(t *testing.T) {
	t.Parallel()
	t.Run("404", func(t *testing.T) {
		b := newBench(t, overHTTP, "")
		b.answers("echo", "{}")
		b.http.forget(http.StatusNotFound)
		b.answers("count", "2 key") // and the first call, of echo
		if n := b.http.sessionsMade(); n != 2 {
			t.Errorf("%d sessions were made", n)
		}
	})
	t.Run("404 again", func(t *testing.T) {
		b := newBench(t, overHTTP, "")
		b.answers("echo", "{}")
		b.http.answerCallsWith(http.StatusNotFound)
		got := b.call("count", `{}`)
		if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "refused the call with HTTP status 404") ||
			!strings.Contains(got.Result.Text, "Nothing was run") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		if n := b.http.callsRefused(); n != 2 {
			t.Errorf("it was sent %d times", n)
		}
	})
	t.Run("400", func(t *testing.T) {
		b := newBench(t, overHTTP, "")
		b.answers("echo", "{}")
		b.http.forget(http.StatusBadRequest)
		got := b.call("count", `{}`)
		if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "refused the call with HTTP status 400") ||
			!strings.Contains(got.Result.Text, "Nothing was run") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("count", "2 key")
	})
}

// TestASessionThatIsForgottenInAnyWay lets a server refuse a session that it does not know. A call of effect once fails
// and is not sent again; the next call opens a new session. Other calls are sent again at once.
func TestASessionThatIsForgottenInAnyWay(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		status int
		id     string
		mode   string
	}{
		"404":                               {http.StatusNotFound, "null", "http"},
		"400":                               {http.StatusBadRequest, "null", "http"},
		"400 with the request's id":         {http.StatusBadRequest, "own", "http"},
		"400 with the id, and pings answer": {http.StatusBadRequest, "own", "pings"},
		"422 with the request's id":         {http.StatusUnprocessableEntity, "own", "http"},
		"500":                               {http.StatusInternalServerError, "null", "http"},
		"502":                               {http.StatusBadGateway, "own", "http"},
		"503":                               {http.StatusServiceUnavailable, "null", "http"},
		"503 with the request's id":         {http.StatusServiceUnavailable, "own", "http"},
		"200 with an error":                 {http.StatusOK, "own", "http"},
		"200 with an error, and pings":      {http.StatusOK, "own", "pings"},
	} {
		for _, e := range []turnkeeper.Effect{turnkeeper.EffectOnce, turnkeeper.EffectKeyed} {
			t.Run(name+", "+string(e), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, overHTTP, "", effect(e))
				b.http.mode = way.mode
				b.answers("echo", "{}")
				b.http.forgetAs(way.status, way.id)
				if got := b.call("echo", `{"n":1}`); e == turnkeeper.EffectOnce && way.status != http.StatusNotFound &&
					got.Outcome == tools.Succeeded {
					t.Errorf("the call after the loss: %s: %q", got.Outcome, got.Result.Text)
				}
				b.answers("echo", "{}")
				b.answers("echo", "{}")
				if n := b.http.sessionsMade(); n != 2 {
					t.Errorf("%d sessions were made", n)
				}
				if sent := len(b.http.marks("calls")); sent > 4 {
					t.Errorf("%d calls were run", sent)
				}
			})
		}
	}
}

// TestAFailedCallInAKnownSession checks that calls which fail keep the session, if the server lists its tools after
// them.
func TestAFailedCallInAKnownSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "")
	for range 3 {
		for _, name := range []string{"protocol_error", "refuse"} {
			if got := b.call(name, `{}`); got.Outcome != tools.Failed {
				t.Errorf("%s: %q", got.Outcome, got.Result.Text)
			}
		}
	}
	b.http.answerCallsWith(http.StatusServiceUnavailable)
	for range 3 {
		if got := b.call("count", `{}`); got.Outcome != tools.Failed {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
	}
	if n := b.http.callsRefused(); n != 3 {
		t.Errorf("calls of effect once were sent %d times", n)
	}
	b.http.answerCallsWith(http.StatusTooManyRequests)
	b.call("count", `{}`)
	b.http.answerCallsWith(0)
	b.answers("echo", "{}")
	if n := b.http.sessionsMade(); n != 1 {
		t.Errorf("%d sessions were made", n)
	}
}

// A server that answers a request with both an error and an HTTP error status
// still knows the session, so no other call needs a new one.
func TestARefusalIsNoLostSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "")
	for range 3 {
		if got := b.call("refuse", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text,
			"400 (Bad Request): no such thing. Nothing was run") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
	}
	b.answers("echo", "{}")
	if n := b.http.sessionsMade(); n != 1 {
		t.Errorf("%d sessions were made", n)
	}
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	cases := map[int]tools.Outcome{
		http.StatusUnauthorized: tools.Failed, http.StatusTooManyRequests: tools.Failed,
		http.StatusServiceUnavailable:  tools.Failed,
		http.StatusInternalServerError: tools.InDoubt, http.StatusBadGateway: tools.InDoubt,
	}
	for status, want := range cases {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			b := newBench(t, overHTTP, "")
			b.http.answerCallsWith(status)
			if got := b.call("echo", `{}`); got.Outcome != want {
				t.Errorf("%s: %q", got.Outcome, got.Result.Text)
			}
			b.http.answerCallsWith(0)
			b.answers("echo", "{}")
		})
	}
}

// The stream of an answer is resumed after it is cut. If that fails, the call
// may have been run all the same: it was accepted when the stream began.
func TestAStreamThatIsCut(t *testing.T) {
	t.Parallel()
	away := func(b *bench) { _ = b.http.Listener.Close() }
	cases := map[string]struct {
		resume  int // attempts to resume; 0: the default
		resumed http.HandlerFunc
		cut     func(*bench)
		want    tools.Outcome
	}{
		"it goes on": {
			resumed: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n",
					r.Header.Get("Last-Event-ID"))
			},
			want: tools.Succeeded,
		},
		"it is not known any more": {
			resumed: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no such stream", http.StatusNotFound)
			},
			want: tools.InDoubt,
		},
		"not now": {
			resumed: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "not now", http.StatusServiceUnavailable)
			},
			want: tools.InDoubt,
		},
		"the server is away": {
			resumed: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			resume:  1, // later attempts come after long pauses
			cut:     away, want: tools.InDoubt,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWithin(t, func(l *mcp.Limits) {
				if c.resume > 0 {
					l.Resume = c.resume
				}
			}, overHTTP, "")
			b.http.resumed = func(w http.ResponseWriter, r *http.Request) {
				if c.cut != nil {
					c.cut(b)
				}
				c.resumed(w, r)
			}
			b.answers("echo", "{}")
			got := b.call("cut_stream", `{}`)
			if got.Outcome != c.want || strings.Contains(got.Result.Text, "Nothing was run") {
				t.Errorf("%s, want %s: %q", got.Outcome, c.want, got.Result.Text)
			}
			if calls := marksIn(b.dir, "calls"); !cmp.Equal(calls, []string{"echo", "cut_stream"}) {
				t.Errorf("%q were called", calls)
			}
		})
	}
}

// A call whose server has asked for more input was run in part, even if the
// server refuses that input.
func TestACallThatHasBegunIsInDoubt(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "")
	got := b.call("begin_and_ask", `{}`)
	if got.Outcome != tools.InDoubt || strings.Contains(got.Result.Text, "Nothing was run") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	if calls := marksIn(b.dir, "calls"); !cmp.Equal(calls, []string{"begin_and_ask"}) {
		t.Errorf("%q were called", calls)
	}
}

func TestAServerThatIsDownCertainlyRanNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "")
	b.answers("echo", "{}")
	b.http.CloseClientConnections()
	b.http.Close()
	b.call("echo", `{}`) // may use a connection that the server has just closed
	got := b.call("echo", `{}`)
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "Nothing was run") ||
		strings.Contains(got.Result.Text, "/mcp") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
}
