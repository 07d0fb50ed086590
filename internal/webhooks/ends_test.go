package webhooks_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/endtest"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/webhooks"
)

// TestADeliveryEndsWithTheWorker checks that an attempt ends at once when the worker must stop, and that its delivery
// is for another one.
func TestADeliveryEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	endtest.Each(t, func(t *testing.T, h *endtest.Hang) {
		server := httptest.NewServer(h)
		defer server.Close()
		l := newLedger()
		l.put("w", 1)
		d := webhooks.New(webhooks.Config{
			Store: l, Endpoints: []webhooks.Endpoint{endpoint("w", server.URL)}, PollInterval: time.Minute,
			Grace: patience, Log: zap.NewNop(),
			Rings: l.subscribe, Mask: func(text string) string {
				return text
			}, View: func(turnkeeper.Reply) any { return nil },
		})
		_ = h.Check(t, func(ctx context.Context) error {
			d.Run(ctx, ctx)
			return errors.New("it has stopped")
		})
		if end := l.await(t); end.Status == 0 && (!end.Uncounted || end.State != outbox.DeliveryPending) {
			t.Errorf("the delivery is %+v", end.DeliveryEnd)
		}
	})
}

// A silentStore does not answer one of its methods before the caller's context ends.
type silentStore struct {
	*ledger
	method string
	asked  chan struct{} // closed when the method was called
}

func (s *silentStore) answer(ctx context.Context, method string) {
	if s.method == method {
		select {
		case <-s.asked:
		default:
			close(s.asked)
		}
		<-ctx.Done()
	}
}

func (s *silentStore) ClaimDeliveries(ctx context.Context, webhook string, worker turnkeeper.WorkerID,
	slots, limit int, hold time.Duration) ([]outbox.DeliveryClaim, error) {
	s.answer(ctx, "ClaimDeliveries")
	return s.ledger.ClaimDeliveries(ctx, webhook, worker, slots, limit, hold)
}

func (s *silentStore) NextDelivery(ctx context.Context, webhook string) (time.Duration, bool, error) {
	s.answer(ctx, "NextDelivery")
	return s.ledger.NextDelivery(ctx, webhook)
}

func (s *silentStore) SeeWebhooks(ctx context.Context, names []string) ([]string, error) {
	s.answer(ctx, "SeeWebhooks")
	return s.ledger.SeeWebhooks(ctx, names)
}

// TestTheWorkerDoesNotWaitForTheStore stops a worker while the store does not answer.
func TestTheWorkerDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"ClaimDeliveries", "NextDelivery", "SeeWebhooks"} {
		t.Run(method, func(t *testing.T) {
			s := &silentStore{newLedger(), method, make(chan struct{})}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				webhooks.New(webhooks.Config{Store: s, Endpoints: []webhooks.Endpoint{endpoint("w",
					"https://hook.example")}, PollInterval: time.Minute, Log: zap.NewNop(),
					Rings: s.subscribe}).Run(ctx, t.Context())
			}()
			await := func(event <-chan struct{}, otherwise string) {
				t.Helper()
				select {
				case <-event:
				case <-time.After(patience):
					t.Fatal(otherwise)
				}
			}
			await(s.asked, "the store is not asked")
			stop()
			await(stopped, "the worker waits for the store")
		})
	}
}

// TestAnAttemptHasATimeout checks that an attempt without an answer ends after the endpoint's timeout.
func TestAnAttemptHasATimeout(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&endtest.Hang{})
	defer server.Close()
	silent := endpoint("w", server.URL)
	silent.Timeout = 50 * time.Millisecond
	r := deliver(t, silent)
	r.put("w", 1)
	if end := r.await(t); end.Error != "no answer within 50ms" || end.Duration < silent.Timeout {
		t.Errorf("the attempt ended with %+v", end.DeliveryEnd)
	}
}

// TestNoErrorShowsASecret checks for each kind of error that a server can cause that it shows neither a secret that the
// worker knows, nor a part of the endpoint's address.
func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	const path, secret = "Xy12345678", "canary"
	for name, answer := range map[string]string{
		"a body": "HTTP/1.1 500 no\r\nContent-Length: 40\r\n\r\nno /hooks/" + path + " with the " +
			secret + " here...",
		"a malformed status": "HTTP/1.1 " + path + secret + " no\r\n\r\n",
		"no protocol":        path + " " + secret + "\r\n\r\n",
		"a malformed header": "HTTP/1.1 200 OK\r\n" + path + secret + "\r\n\r\n",
		"a malformed length": "HTTP/1.1 200 OK\r\nContent-Length: " + path + secret + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := deliver(t, endpoint("w", "http://"+raw(t, answer)+"/hooks/"+path))
			r.put("w", 1)
			end := r.await(t)
			if end.Error == "" || !strings.Contains(end.Error, "[redacted]") || strings.Contains(end.Error, path) ||
				strings.Contains(end.Error, secret) {
				t.Errorf("the error is %q", end.Error)
			}
		})
	}
}

// raw starts a server that gives each connection the same answer, and returns its address.
func raw(t *testing.T, answer string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 64<<10))
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}
