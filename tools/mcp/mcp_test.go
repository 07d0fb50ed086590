package mcp_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/mcp"
)

func TestResults(t *testing.T) {
	t.Parallel()
	dot, err := base64.StdEncoding.DecodeString(png)
	if err != nil {
		t.Fatal(err)
	}
	image := tools.Attachment{Name: "image", MediaType: "image/png", Bytes: dot}
	cases := map[string]struct {
		want    tools.Result
		outcome tools.Outcome
	}{
		"echo":       {want: tools.Result{Text: `{"text":"é"}`}},
		"image":      {want: tools.Result{Bytes: dot, MediaType: "image/png"}},
		"mixed":      {want: tools.Result{Text: "a picture:\n\n[link to the resource file:///x, x]", Attached: []tools.Attachment{image, {Name: "audio", MediaType: "audio/wav", Bytes: []byte{0, 1, 2}}}}},
		"resource":   {want: tools.Result{Text: "[resource file:///a.txt]\nthe text of a", Attached: []tools.Attachment{{Name: "resource file:///b.bin", MediaType: "application/x-b", Bytes: []byte{0, 1, 2}}}}},
		"structured": {want: tools.Result{Text: `{"b":[1,2],"a":1}`}},
		"numbers":    {want: tools.Result{Text: `{"degrees": 20.0, "id": 9007199254740993}`}},
		"empty":      {want: tools.Result{Text: "The server answered with nothing."}},
		"rubbish":    {want: tools.Result{Text: "after rubbish"}},
		"fail":       {want: tools.Result{Text: "it went wrong", IsError: true}, outcome: tools.Failed},
		"protocol_error": {
			want:    tools.Result{Text: `tool error: the MCP server "h" answered with an error of the protocol: no such thing (code -32602). Nothing was run`, IsError: true},
			outcome: tools.Failed,
		},
		"name.with/dots": {want: tools.Result{Text: `{"text":"é"}`}},
		"nothing_such":   {want: tools.Result{Text: `denied: the MCP server "h" has no tool "nothing_such". Nothing was run.`, IsError: true}, outcome: tools.Failed},
	}
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "banner")
		for name, c := range cases {
			got := b.call(name, `{"text":"é"}`)
			if c.outcome == "" {
				c.outcome = tools.Succeeded
			}
			if diff := cmp.Diff(c.want, got.Result); diff != "" || got.Outcome != c.outcome {
				t.Errorf("%s: %s (-want +got):\n%s", name, got.Outcome, diff)
			}
		}
	})
}

// A call that was sent but not answered is in doubt; the next call works.
func TestACrashIsOneFailedCall(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		b.answers("echo", "{}")
		got := b.call("crash_once", `{}`)
		if got.Outcome != tools.InDoubt || !errors.Is(got.Err, tools.ErrInDoubt) || !strings.Contains(got.Result.Text, "may or may not have happened") {
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
			if got := b.call("crash", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "did not answer") {
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

// An answer that is too large fails only its own call.
func TestAGiantAnswer(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		other := make(chan tools.Ending, 1)
		go func() { other <- b.callAs(context.Background(), tools.Call{Lane: "other"}, "slow", `{}`, patience) }()
		await(t, "the other call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"slow"}) })
		giants := []string{"giant", "giant_last"}
		if transport == overHTTP {
			giants = append(giants, "giant_json")
		}
		for _, giant := range giants {
			if got, want := b.call(giant, `{}`), `tool error: the MCP server "h" answered with more than 16 MiB, and so much is not taken. The call was made; what came of it is lost`; got.Outcome != tools.Failed || got.Result.Text != want {
				t.Errorf("%s: %s: %.300q", giant, got.Outcome, got.Result.Text)
			}
		}
		if got := <-other; got.Outcome != tools.Succeeded {
			t.Errorf("the other call: %s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
		if transport == overStdio && len(marksIn(b.dir, "starts")) != 1 || transport == overHTTP && b.http.sessionsMade() != 1 {
			t.Error("another session was made")
		}
	})
}

// The replacement of a large message is found wherever its id is.
func TestWhoseAnswerIsTooLarge(t *testing.T) {
	t.Parallel()
	instead := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-31616,"message":"the answer is too large"}}`
	}
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{}}`:                                 instead("7"),
		`{"result":{"id":1,"a":[{"id":2}]},"jsonrpc":"2.0", "id" : "x\"},y" }`: instead(`"x\"},y"`),
		`{"result":"\",\"id\":1,\\","error":null,"id":3}` + "\n":               instead("3"),
		`{"id":4,"result":[[{"method":"m"}]]}`:                                 instead("4"),
		`{"id":5,"method":"m","params":{}}`:                                    "",
		`{"method":"m","params":{"id":6}}`:                                     "",
		`{"id":null,"error":{}}`:                                               "",
		`{"id":8,"result":{}`:                                                  "",
		`[{"id":9,"result":{}}]`:                                               "",
		`{"id":"` + strings.Repeat("x", 300) + `","result":{}}`:                "",
		strings.Repeat("x", 100):                                               "",
	} {
		for _, n := range []int{1, 3, 1000} {
			if got := mcp.Replacement(message, n); got != want {
				t.Errorf("%s, in pieces of %d: %s", message, n, got)
			}
		}
	}
}

// Events that are not too large pass unchanged, also before and after one that
// is too large.
func TestLargeEvents(t *testing.T) {
	t.Parallel()
	const small = ": hello\nevent: message\r\ndata: {\"id\":1}\r\n\r\nid: a\nretry: 1\ndata:\n\n\n"
	large := "id: b\nevent: message\ndata: {\"result\":\"" + strings.Repeat("x", 300) + "\",\ndata: \"id\":2}\nid: c\n\n"
	const replaced = "id: b\nevent: message\nid: c\ndata:" + `{"jsonrpc":"2.0","id":2,"error":{"code":-31616,"message":"the answer is too large"}}` + "\n\n"
	notice := "data: {\"method\":\"m\",\"params\":\"" + strings.Repeat("x", 300) + "\"}\n\n"
	tooLarge := "it sent a message of more than 16 MiB"
	for name, c := range map[string]struct{ stream, want, err string }{
		"small":      {small, small, ""},
		"cut":        {small + "data: {", small + "data: {", ""},
		"large":      {small + large + small, small + replaced + small, ""},
		"large, cut": {small + large[:200], small, ""},
		"no answer":  {small + notice + small, small, tooLarge},
		"endless":    {"data: " + strings.Repeat("x", 5000), "", tooLarge},
	} {
		for _, stream := range []io.Reader{strings.NewReader(c.stream), iotest.OneByteReader(strings.NewReader(c.stream))} {
			got, err := mcp.Events(stream, mcp.Limits{Frame: 100, Drop: 1000})
			if name == "large, cut" { // the rest of the event is not used
				got = got[:min(len(got), len(c.want))]
			}
			if got != c.want || fmt.Sprint(err) != map[bool]string{true: "<nil>", false: c.err}[c.err == ""] {
				t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
			}
		}
	}
}

// A message without an end ends the session.
func TestAMessageWithoutEnd(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		if got := b.call("huge", `{}`); got.Outcome != tools.InDoubt || transport == overStdio && !strings.Contains(got.Result.Text, "it sent a message of more than") {
			t.Errorf("%s: %.300q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
	})
}

// An answer that cannot be read fails only its own call.
func TestNonsenseForAResult(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		other := make(chan tools.Ending, 1)
		go func() { other <- b.callAs(context.Background(), tools.Call{Lane: "other"}, "slow", `{}`, patience) }()
		await(t, "the other call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"slow"}) })
		if got := b.call("nonsense", `{}`); got.Outcome != tools.InDoubt || !strings.Contains(got.Result.Text, "not a list") {
			t.Errorf("%s: %.200q", got.Outcome, got.Result.Text)
		}
		if got := <-other; got.Outcome != tools.Succeeded {
			t.Errorf("the other call: %s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("echo", "{}")
		if transport == overStdio && len(marksIn(b.dir, "starts")) != 1 {
			t.Errorf("it was started %d times", len(marksIn(b.dir, "starts")))
		}
	})
}

// A line that is meant as an answer but cannot be read fails the call at once,
// before its timeout.
func TestAnAnswerThatIsNoMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "")
	got := b.call("no_message", `{}`)
	if got.Outcome != tools.InDoubt || !strings.Contains(got.Result.Text, "it sent an answer that cannot be read") {
		t.Errorf("%s: %.300q", got.Outcome, got.Result.Text)
	}
	b.answers("echo", "{}")
}

func TestPausesGrow(t *testing.T) {
	t.Parallel()
	b := newBenchWithin(t, func(l *mcp.Limits) { l.FirstPause, l.LastPause = time.Hour, time.Hour }, overStdio, "dead")
	got := b.call("echo", `{}`)
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, `the MCP server "h" cannot be reached: its program ended with exit code 3; it is tried again in`) ||
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
		if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "refused the call with HTTP status 404") || !strings.Contains(got.Result.Text, "Nothing was run") {
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
		if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "refused the call with HTTP status 400") || !strings.Contains(got.Result.Text, "Nothing was run") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		b.answers("count", "2 key")
	})
}

// TestASessionThatIsForgottenInAnyWay lets a server refuse a session that it does not know. A call of effect once fails and is not
// sent again; the next call opens a new session. Other calls are sent again at once.
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
				if got := b.call("echo", `{"n":1}`); e == turnkeeper.EffectOnce && way.status != http.StatusNotFound && got.Outcome == tools.Succeeded {
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

// TestAFailedCallInAKnownSession checks that calls which fail keep the session, if the server lists its tools after them.
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
		if got := b.call("refuse", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "400 (Bad Request): no such thing. Nothing was run") {
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
		http.StatusUnauthorized: tools.Failed, http.StatusTooManyRequests: tools.Failed, http.StatusServiceUnavailable: tools.Failed,
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
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", r.Header.Get("Last-Event-ID"))
			},
			want: tools.Succeeded,
		},
		"it is not known any more": {
			resumed: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such stream", http.StatusNotFound) },
			want:    tools.InDoubt,
		},
		"not now": {
			resumed: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not now", http.StatusServiceUnavailable) },
			want:    tools.InDoubt,
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
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "Nothing was run") || strings.Contains(got.Result.Text, "/mcp") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
}

func TestRedirectsToAnotherOriginAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "", func(s *mcp.Server) {
		s.URL = strings.TrimSuffix(s.URL, "/mcp") + "/elsewhere"
		s.Headers = map[string]string{"X-Secret": "s"}
	})
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "redirect refused: it leads to another origin") {
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
		ended := make(chan tools.Ending, 1)
		go func() { ended <- b.callAs(ctx, tools.Call{}, "hang", `{}`, 0) }()
		await(t, "the call", func() bool { return cmp.Equal(marksIn(b.dir, "calls"), []string{"hang"}) })
		cancel(errors.New("enough"))
		if got := <-ended; got.Outcome != tools.Cancelled || !strings.Contains(got.Result.Text, "enough") {
			t.Errorf("%s: %q", got.Outcome, got.Result.Text)
		}
		await(t, "the cancellation", func() bool { return strings.Contains(marksIn(b.dir, "cancelled")[0], "requestId") })
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
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "it did not answer in time") {
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

func TestProgress(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		for _, tool := range []string{"progress", "late_progress"} {
			told := make(chan string, 10)
			if got := b.callAs(t.Context(), tools.Call{Progress: func(s string) { told <- s }}, tool, `{}`, patience); got.Result.Text != "done" {
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
			`{"code":-1,"message":"sampling is declined: the operator's policy does not allow it"}`, `{"code":-1,"message":"sampling is declined: the operator's policy does not allow it"}`,
		},
		"roots": {`{"roots":[]}`, `{"roots":[{"name":"/srv/a b","uri":"file:///srv/a%20b"}]}`},
	}
	both(t, func(t *testing.T, transport string) {
		declining := newBench(t, transport, "")
		allowing := newBench(t, transport, "", func(s *mcp.Server) { s.AcceptDefaults, s.Roots = true, []string{"/srv/a b"} })
		for tool, want := range cases {
			declining.answers(tool, want.declined)
			allowing.answers(tool, want.allowed)
		}
	})
}

func TestTheListChanges(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		if got := b.call("added", `{}`); got.Outcome != tools.Failed {
			t.Errorf("%q", got.Result.Text)
		}
		b.answers("add", "added")
		await(t, "the new tool", func() bool { return b.Tool("h", "added").Spec().Description == "New." })
		b.answers("added", "{}")
	})
}

// TestAServerThatReportsAChangeAtEachList checks that its tools are read less and less often, and again at once after a quiet time.
func TestAServerThatReportsAChangeAtEachList(t *testing.T) {
	t.Parallel()
	const first = 10 * time.Millisecond
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Relist, l.LastRelist = first, 8*first }, overHTTP, "restless")
	b.http.mode = "restless"
	b.answers("echo", "{}")
	const reads = 9
	await(t, "reads", func() bool { return len(marksIn(b.dir, "lists")) >= reads })
	var at [reads]int
	for i, when := range marksIn(b.dir, "lists")[:reads] {
		at[i], _ = strconv.Atoi(when)
	}
	for i := 3; i < reads; i++ { // the first report may come while the session is made
		if least := int(min(first<<(i-3), 8*first).Milliseconds()) - 2; at[i]-at[i-1] < least {
			t.Errorf("read %d came %d ms after the one before, want at least %d", i+1, at[i]-at[i-1], least)
		}
	}
	b.answers("add", "added") // a change of a restless server is seen in the end
	await(t, "the new tool", func() bool { return b.Tool("h", "added").Spec().Description == "New." })
}

// A list of tools that changes with each read is read only at intervals.
func TestAListThatNeverStopsChanging(t *testing.T) {
	t.Parallel()
	const pause = 200 * time.Millisecond
	b := newBenchWithin(t, func(l *mcp.Limits) { l.Relist = pause }, overStdio, "restless")
	b.answers("echo", "{}")
	await(t, "three looks", func() bool { return len(marksIn(b.dir, "lists")) >= 3 })
	var at [3]int
	for i, when := range marksIn(b.dir, "lists")[:3] {
		at[i], _ = strconv.Atoi(when)
	}
	if at[2]-at[1] < int(pause.Milliseconds())-1 {
		t.Errorf("it was looked at again after %d ms", at[2]-at[1])
	}
	b.answers("echo", "{}")
}

// The total size of a list of tools is limited.
func TestAListThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const long = 6 * patience // 16 MiB pass through two processes
	b := newBench(t, overStdio, "hoarder", func(s *mcp.Server) { s.ConnectTimeout = long })
	got := b.callAs(t.Context(), tools.Call{Lane: "lane"}, "echo", `{}`, long)
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "its list of tools is too large") {
		t.Errorf("%s: %q", got.Outcome, got.Result.Text)
	}
	if pages := len(marksIn(b.dir, "lists")); pages > 20 {
		t.Errorf("%d pages were read", pages)
	}
}

// A tool whose description or schema is too large is omitted, and the others
// remain.
func TestADefinitionThatIsTooLarge(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	b := newBenchWithin(t, func(*mcp.Limits) {}, overStdio, "talkative")
	b.Close()
	b.Client = mcp.NewLimited(mcp.Config{Servers: []mcp.Server{b.declared}, Store: b.store, Log: zap.New(core)}, forTests)
	b.answers("echo", "{}")
	b.answers("echo", "{}")
	for _, name := range []string{"add", "fail"} {
		if tool := b.Tool("h", name); tool != nil {
			t.Errorf("%s is offered: %.100q", name, tool.Spec().Description)
		}
	}
	var told []string
	for _, entry := range logs.FilterMessage("an MCP server's tool is left out").All() {
		told = append(told, fmt.Sprint(entry.ContextMap()["tool"], ": ", entry.ContextMap()["why"]))
	}
	slices.Sort(told)
	want := []string{
		"add: its description has 102400 bytes; at most 16384 are taken",
		"fail: its schema has 102434 bytes; at most 65536 are taken",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestAChangedDefinition(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run("refuse "+strconv.FormatBool(refuse), func(t *testing.T) {
			both(t, func(t *testing.T, transport string) {
				b := newBench(t, transport, "", func(s *mcp.Server) { s.RefuseChange = refuse })
				b.answers("echo", "{}")
				before := b.Tool("h", "echo")
				b.answers("change", "changed")
				await(t, "the change", func() bool {
					if refuse {
						return b.call("echo", `{"more":1}`).Outcome == tools.Failed
					}
					return b.Tool("h", "echo").Spec().Description != before.Spec().Description
				})
				spec, ending := b.Tool("h", "echo").Spec(), b.call("echo", `{"more":1}`)
				if !refuse {
					if !strings.HasPrefix(spec.Description, "Ignore") || ending.Outcome != tools.Succeeded {
						t.Errorf("%q, %q", spec.Description, ending.Result.Text)
					}
					// A tool that a turn was offered before has other arguments.
					old := tools.Execute(t.Context(), before, tools.Call{Arguments: []byte(`{}`)}, tools.ExecuteOptions{})
					if old.Outcome != tools.Failed || !strings.Contains(old.Result.Text, `missing "more"`) {
						t.Errorf("%s: %q", old.Outcome, old.Result.Text)
					}
					return
				}
				if spec.Description != "Does echo." || ending.Outcome != tools.Failed || !strings.Contains(ending.Result.Text, "turnctl mcp pin") {
					t.Errorf("%q, %q", spec.Description, ending.Result.Text)
				}
				b.store.pin("h")
				await(t, "the new pin", func() bool { return b.call("echo", `{"more":1}`).Outcome == tools.Succeeded })
			})
		})
	}
}

// The tools of a server that is down are known from their stored definitions.
func TestKeptDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, overStdio, "")
	if spec := b.Tool("h", "echo").Spec(); !strings.Contains(spec.Description, "is not known") || string(spec.Parameters) != `{"properties":{},"type":"object"}` {
		t.Errorf("before: %+v", spec)
	}
	b.answers("echo", "{}")
	down := mcp.New(mcp.Config{Servers: []mcp.Server{{Name: "h", Command: []string{"/nowhere"}}}, Store: b.store})
	defer down.Close()
	if err := down.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if spec := down.Tool("h", "echo").Spec(); spec.Description != "Does echo." || !strings.Contains(string(spec.Parameters), `"text"`) {
		t.Errorf("after: %+v", spec)
	}
	got := tools.Execute(t.Context(), down.Tool("h", "echo"), tools.Call{}, tools.ExecuteOptions{})
	if !strings.Contains(got.Result.Text, `the MCP server "h" cannot be reached: the program /nowhere cannot be run`) {
		t.Errorf("%q", got.Result.Text)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		set  func(*mcp.Server)
		want map[string]turnkeeper.Effect
	}{
		"nobody says anything": {func(*mcp.Server) {}, map[string]turnkeeper.Effect{"echo": turnkeeper.EffectOnce, "fail": turnkeeper.EffectOnce}},
		"the hints are believed": {func(s *mcp.Server) { s.TrustHints = true },
			map[string]turnkeeper.Effect{"echo": turnkeeper.EffectNone, "fail": turnkeeper.EffectOnce}},
		"the operator says more than hints": {func(s *mcp.Server) {
			s.TrustHints, s.Effect = true, turnkeeper.EffectKeyed
			s.Tools = map[string]mcp.ToolSettings{"fail": {Effect: turnkeeper.EffectNone, Timeout: time.Minute}}
		}, map[string]turnkeeper.Effect{"echo": turnkeeper.EffectKeyed, "fail": turnkeeper.EffectNone}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, overHTTP, "", c.set)
			b.answers("echo", "{}")
			for tool, want := range c.want {
				if got := b.Tool("h", tool).Spec().Effect; got != want {
					t.Errorf("%s: %s, want %s", tool, got, want)
				}
			}
		})
	}
}

// The definitions of a labelled server have its labels, whatever the labels of a tool's results.
func TestLabelsOfDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, overHTTP, "", func(s *mcp.Server) {
		s.Flow.Labels = []policy.Label{policy.Untrusted}
		s.Tools = map[string]mcp.ToolSettings{"fail": {Flow: policy.Flow{Labels: []policy.Label{}}}}
	})
	b.answers("echo", "{}")
	for tool, results := range map[string]int{"echo": 1, "fail": 0} {
		spec := b.Tool("h", tool).Spec()
		if len(spec.DefinitionLabels) != 1 || spec.DefinitionLabels[0] != policy.Untrusted || len(spec.Flow.Labels) != results {
			t.Errorf("%s: labels of the definition %v, of results %v", tool, spec.DefinitionLabels, spec.Flow.Labels)
		}
	}
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
	if got := b.call("echo", `{}`); got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, "this worker is stopping") {
		t.Errorf("after the end: %q", got.Result.Text)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		found, err := mcp.Probe(t.Context(), b.declared, mcp.Access{}, nil)
		if err != nil || len(found) != len(toolNames) || found[0].Name != "add" || len(found[0].Seen.Hash) != 64 {
			t.Errorf("%d tools, error %v", len(found), err)
		}
	})
	b := newBench(t, overStdio, "dead")
	if _, err := mcp.Probe(t.Context(), b.declared, mcp.Access{}, nil); err == nil || err.Error() != "its program ended with exit code 3" {
		t.Errorf("error %v", err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, transport string) {
		b := newBench(t, transport, "")
		ended := make(chan tools.Ending)
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
