package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/client"
)

// An api answers the requests of a watch one after the other, without a network.
type api struct {
	answers []*http.Response
	asked   []string // Last-Event-ID and Authorization of each request
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, r.URL.String()+" "+r.Header.Get("Last-Event-ID")+" "+r.Header.Get("Authorization"))
	if len(a.answers) == 0 {
		return nil, errors.New("nobody listens")
	}
	next := a.answers[0]
	a.answers = a.answers[1:]
	return next, nil
}

func says(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Body: io.NopCloser(strings.NewReader(body))}
}

func streams(events ...string) *http.Response {
	return says(200, "retry: 1000\n\n: still here\n\n"+strings.Join(events, ""))
}

const (
	waits  = "event: message_waiting\ndata: {\"type\":\"message_waiting\",\"data\":{}}\n\n"
	delta  = "id: 7.2\nevent: block_delta\ndata: {\"turn_id\":7,\"seq\":2,\"type\":\"block_delta\",\"block\":1,\"data\":{\"text\":\"Hel\"}}\n\n"
	args   = "id: 7.3\nevent: block_delta\ndata: {\"turn_id\":7,\"seq\":3,\"type\":\"block_delta\",\"block\":2,\"data\":{\"arguments\":\"{}\"}}\n\n"
	closed = "id: end\nevent: message_closed\ndata: {\"type\":\"message_closed\",\"data\":{\"outcome\":\"succeeded\",\"reply\":{\"id\":3,\"message_id\":1," +
		"\"outcome\":\"succeeded\",\"body\":\"Hello\",\"parent_turn_id\":null,\"calls\":[{\"ordinal\":1,\"id\":\"round-1-tool-2\",\"name\":\"look\",\"state\":\"succeeded\"}]}}}\n\n"
)

func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		answers []*http.Response
		want    string // types of events, and their texts
		err     string
		after   []string // Last-Event-ID of each request
	}{
		"one stream": {[]*http.Response{streams(waits, delta, args, closed)},
			"message_waiting, block_delta Hel, block_delta, message_closed Hello", "", []string{""}},
		"it breaks off": {[]*http.Response{streams(waits, delta), streams(args), streams(closed)},
			"message_waiting, block_delta Hel, block_delta, message_closed Hello", "", []string{"", "7.2", "7.3"}},
		"it breaks off after an event without an id": {[]*http.Response{streams(delta, waits), streams(closed)},
			"block_delta Hel, message_waiting, message_closed Hello", "", []string{"", "7.2"}},
		"too many requests": {[]*http.Response{says(429, ""), says(503, ""), streams(closed)},
			"message_closed Hello", "", []string{"", "", ""}},
		"an event that is cut": {[]*http.Response{streams(delta, args[:30]), streams(args, closed)},
			"block_delta Hel, block_delta, message_closed Hello", "", []string{"", "7.2"}},
		"nothing follows": {[]*http.Response{streams(delta), says(204, "")}, "block_delta Hel", "",
			[]string{"", "7.2"}},
		"no such message": {[]*http.Response{says(404, `{"detail":"there is no message 1"}`)}, "",
			"there is no message 1", []string{""}},
		"a wrong token": {[]*http.Response{says(401, `nonsense`)}, "", "the API answered 401 Unauthorized",
			[]string{""}},
		"an event that is none": {[]*http.Response{streams("id: 1\ndata: {\n\n")}, "", "decode an event",
			[]string{""}},
		"nobody answers any more": {[]*http.Response{streams(delta)}, "block_delta Hel", "nobody listens", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &api{answers: c.answers}
				watched := client.Server{URL: "http://api.example/", Token: "tk_x",
					HTTP: &http.Client{Transport: server}}
				var got []string
				var last error
				for e, err := range watched.Watch(t.Context(), 1, "") {
					if last = err; err != nil {
						break
					}
					text := strings.TrimSpace(string(e.Type) + " " + e.Text())
					if e.Reply != nil {
						text += " " + e.Reply.Body
						if len(e.Reply.Calls) != 1 || e.Reply.Calls[0].Key.Ordinal != 2 {
							t.Errorf("the reply is %+v", e.Reply)
						}
					}
					got = append(got, text)
				}
				if strings.Join(got, ", ") != c.want || (last == nil) != (c.err == "") || last != nil &&
					!strings.Contains(last.Error(), c.err) {
					t.Errorf("it got %q, %v, want %q, %q", got, last, c.want, c.err)
				}
				if errors.Is(last, turnkeeper.ErrNotFound) != strings.HasPrefix(c.err, "there is no") {
					t.Errorf("the error is %v", last)
				}
				var want []string
				for _, after := range c.after {
					want = append(want, "http://api.example/v1/messages/1/events "+after+" Bearer tk_x")
				}
				if diff := cmp.Diff(want, server.asked); c.after != nil && diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		for _, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: &api{}}}).Watch(ctx,
			1, "") {
			if !errors.Is(err, enough) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}

// An away API answers only from time to time.
type away struct {
	began time.Time
	asked []time.Duration
	says  func(after time.Duration) *http.Response // nil: nobody listens
}

func (a *away) RoundTrip(*http.Request) (*http.Response, error) {
	a.asked = append(a.asked, time.Since(a.began))
	if answer := a.says(time.Since(a.began)); answer != nil {
		return answer, nil
	}
	return nil, errors.New("nobody listens")
}

// TestHowLongAWatchReconnects checks that a watch tries again twice a second, and ends half a minute after the last
// answer.
func TestHowLongAWatchReconnects(t *testing.T) {
	watch := func(t *testing.T, says func(time.Duration) *http.Response) (a *away, last error) {
		a = &away{began: time.Now(), says: says}
		for e, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: a}}).Watch(
			t.Context(), 1, "") {
			if last = err; e.Type == client.EventMessageClosed {
				break
			}
		}
		return a, last
	}
	synctest.Test(t, func(t *testing.T) {
		a, err := watch(t, func(time.Duration) *http.Response { return nil })
		if err == nil || len(a.asked) != 61 || a.asked[1] != 500*time.Millisecond || a.asked[60] != 30*time.Second {
			t.Errorf("%d attempts, the last ones at %v: %v", len(a.asked), a.asked[max(0, len(a.asked)-2):], err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // an outage that ends in time
		a, err := watch(t, func(after time.Duration) *http.Response {
			switch {
			case after == 29*time.Second:
				return streams(delta)
			case after >= 58*time.Second:
				return streams(closed)
			}
			return nil
		})
		if err != nil || a.asked[len(a.asked)-1] != 58*time.Second {
			t.Errorf("%v, %v", a.asked, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a refusal is no answer
		a, err := watch(t, func(time.Duration) *http.Response {
			return says(http.StatusServiceUnavailable, `{"detail":"stopping"}`)
		})
		if err == nil || err.Error() != "stopping" || a.asked[len(a.asked)-1] != 30*time.Second {
			t.Errorf("%v, %v", a.asked, err)
		}
	})
}

// A slow body begins to send after an hour.
type slow struct {
	io.Reader
	waited bool
}

func (s *slow) Read(p []byte) (int, error) {
	if !s.waited {
		s.waited = true
		time.Sleep(time.Hour)
	}
	return s.Reader.Read(p)
}

// TestAWatchReconnectsAfterALongStream checks that the half minute begins with the last event, not with the connection.
func TestAWatchReconnectsAfterALongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		a := &away{began: time.Now(), says: func(after time.Duration) *http.Response {
			switch {
			case first:
				first = false
				answer := streams(delta)
				answer.Body = io.NopCloser(&slow{Reader: answer.Body})
				return answer
			case after < time.Hour+29*time.Second:
				return nil
			}
			return streams(closed)
		}}
		for e, err := range (client.Server{URL: "http://api.example", HTTP: &http.Client{Transport: a}}).Watch(
			t.Context(), 1, "") {
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
			if e.Type == client.EventMessageClosed {
				break
			}
		}
	})
}
