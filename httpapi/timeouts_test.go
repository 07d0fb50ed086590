package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

// pipes is a listener with in-memory connections, as a synctest bubble needs.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inBubble serves an API in a synctest bubble; send sends a raw request to it.
func inBubble(t *testing.T, store httpapi.Store, test func(t *testing.T, send func(string) *bufio.Reader)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn), make(chan struct{})}
		s := httpapi.Serve(httpapi.New(httpapi.Config{Store: store}), p, 10)
		test(t, func(text string) *bufio.Reader {
			client, server := net.Pipe()
			p.conns <- server
			t.Cleanup(func() { _ = client.Close() })
			go func() { _, _ = io.WriteString(client, text) }()
			return bufio.NewReader(client)
		})
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestABodyThatDoesNotCome checks that every route closes the connection after a timeout if the body does not arrive,
// with or without a token.
func TestABodyThatDoesNotCome(t *testing.T) {
	for name, request := range map[string]string{
		"that nobody reads":           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"of nobody that is known":     "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nVia: proxy\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{",
		"to a host of another name":   "POST /v1/messages HTTP/1.1\r\nHost: other\r\nContent-Length: 10\r\n\r\n",
		"from a page of elsewhere":    "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nOrigin: https://other\r\nContent-Length: 10\r\n\r\n",
		"to a path that there is not": "POST /no HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, send func(string) *bufio.Reader) {
				began := time.Now()
				rest, err := io.ReadAll(send(request))
				if took := time.Since(began); err != nil || took > 30*time.Second || !strings.HasPrefix(string(rest),
					"HTTP/1.1 ") {
					t.Errorf("after %s: %q, %v", took, rest, err)
				}
			})
		})
	}
}

// pinged is a store that counts pings and answers each with the next value of answer.
type pinged struct {
	httpapi.Store
	asked  atomic.Int64
	answer chan error
}

func (p *pinged) Ping(context.Context) error {
	p.asked.Add(1)
	return <-p.answer
}

// TestManyAskWhetherItIsReady checks that concurrent readiness probes use one database connection.
func TestManyAskWhetherItIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &pinged{answer: make(chan error)}
		handler := httpapi.New(httpapi.Config{Store: store}).Handler()
		for _, round := range []struct {
			err    error
			status int
		}{{nil, 200}, {errors.New("away"), 503}, {nil, 200}} {
			answers := make(chan int, 20)
			for range cap(answers) {
				go func() {
					w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet,
						"/readyz", nil)
					r.Host = "localhost"
					handler.ServeHTTP(w, r)
					answers <- w.Code
				}()
			}
			synctest.Wait()
			if n := store.asked.Swap(0); n != 1 {
				t.Errorf("the database was asked %d times at once", n)
			}
			store.answer <- round.err
			for range cap(answers) {
				if status := <-answers; status != round.status {
					t.Errorf("answered %d, want %d", status, round.status)
				}
			}
		}
	})
}

// still is a store with one turn that has no events until it ends.
type still struct {
	httpapi.Store
	ends time.Time
}

func (still) WhoseTurn(context.Context, turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	return turnkeeper.ConversationKey{Agent: "clerk"}, nil
}

func (s still) Events(_ context.Context, turn turnkeeper.TurnID, after int64, _ int) ([]turnkeeper.Event, error) {
	if after > 0 || time.Now().Before(s.ends) {
		return nil, nil
	}
	return []turnkeeper.Event{{TurnID: turn, Seq: 1, Type: turnkeeper.EventTurnComplete}}, nil
}

// TestAStreamOutlivesTheTimeOfABody checks that the timeout for reading a body does not end the stream sent in
// response.
func TestAStreamOutlivesTheTimeOfABody(t *testing.T) {
	for name, body := range map[string]string{"with a body": "Content-Length: 2\r\n\r\n{}", "without": "\r\n"} {
		t.Run(name, func(t *testing.T) {
			// a bubble starts at 2000-01-01 00:00 UTC
			store := &still{ends: time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)}
			inBubble(t, store, func(t *testing.T, send func(string) *bufio.Reader) {
				resp, err := http.ReadResponse(send(
					"GET /v1/turns/1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"+body), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				if err != nil || !strings.Contains(string(text), fmt.Sprint("event: ", turnkeeper.EventTurnComplete)) {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}

// purged is a store whose one turn and response are purged when the last event would be sent.
type purged struct{ still }

func (p purged) gone() bool { return time.Now().After(p.ends) }

func (p purged) WhoseTurn(context.Context, turnkeeper.TurnID) (turnkeeper.ConversationKey, error) {
	if p.gone() {
		return turnkeeper.ConversationKey{}, turnkeeper.ErrNotFound
	}
	return turnkeeper.ConversationKey{Agent: "clerk"}, nil
}

func (p purged) Events(context.Context, turnkeeper.TurnID, int64, int) ([]turnkeeper.Event, error) {
	return nil, nil
}

func (p purged) Response(context.Context, turnkeeper.MessageID) (operate.Response, error) {
	if p.gone() {
		return operate.Response{}, turnkeeper.ErrNotFound
	}
	return operate.Response{Message: turnkeeper.Message{ID: 1, Agent: "clerk", Attempts: 1}}, nil
}

// TestStreamsOfWhatIsPurged checks that a stream ends when its turn or response is purged, as it gets no last event.
func TestStreamsOfWhatIsPurged(t *testing.T) {
	for path, want := range map[string]error{"/v1/turns/1/events": nil,
		"/v1/responses/resp_1?stream=true": io.ErrUnexpectedEOF} {
		t.Run(path, func(t *testing.T) {
			store := &purged{still{ends: time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)}}
			inBubble(t, store, func(t *testing.T, send func(string) *bufio.Reader) {
				resp, err := http.ReadResponse(send(
					"GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				read := make(chan error, 1)
				go func() {
					_, err := io.Copy(io.Discard, resp.Body)
					read <- err
				}()
				select {
				case err := <-read:
					if !errors.Is(err, want) || time.Now().Before(store.ends) {
						t.Errorf("it ended with %v", err)
					}
				case <-time.After(10 * time.Minute):
					t.Error("it goes on for ever")
				}
			})
		})
	}
}
