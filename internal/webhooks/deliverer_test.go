package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/webhooks"
)

// patience is the timeout of every wait for an event.
const patience = time.Minute

// A ledger stores deliveries in memory. Retries are due at once.
type ledger struct {
	mu      sync.Mutex
	pending map[string][]outbox.DeliveryClaim // by webhook
	flying  map[string]int
	most    int // the most concurrent deliveries of one webhook
	ended   chan ending
	rings   []chan struct{} // one for each endpoint
	failing int             // number of EndDelivery calls that fail next
}

type ending struct {
	outbox.DeliveryClaim
	outbox.DeliveryEnd
}

func newLedger() *ledger {
	return &ledger{pending: map[string][]outbox.DeliveryClaim{}, flying: map[string]int{},
		ended: make(chan ending, 1000)}
}

func (l *ledger) put(webhook string, ids ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.pending[webhook] = append(l.pending[webhook], outbox.DeliveryClaim{Webhook: webhook, Reply: turnkeeper.Reply{
			ID: turnkeeper.ReplyID(id), Agent: "clerk", Outcome: turnkeeper.TurnSucceeded, Body: fmt.Sprint("reply ",
				id), CreatedAt: time.Unix(1e9, 0),
		}})
	}
	for _, ring := range l.rings {
		select {
		case ring <- struct{}{}:
		default:
		}
	}
}

func (l *ledger) subscribe() (<-chan struct{}, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ring := make(chan struct{}, 1)
	l.rings = append(l.rings, ring)
	return ring, func() {}
}

func (l *ledger) RegisterWebhook(context.Context, outbox.Webhook) error { return nil }

func (l *ledger) SeeWebhooks(_ context.Context, names []string) ([]string, error) { return names, nil }

func (l *ledger) ClaimDeliveries(_ context.Context, webhook string, _ turnkeeper.WorkerID, slots, limit int,
	_ time.Duration) ([]outbox.DeliveryClaim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := max(min(slots-l.flying[webhook], limit, len(l.pending[webhook])), 0)
	claims := slices.Clone(l.pending[webhook][:n])
	for i := range claims {
		claims[i].Attempt++
	}
	l.pending[webhook] = l.pending[webhook][n:]
	l.flying[webhook] += n
	l.most = max(l.most, l.flying[webhook])
	return claims, nil
}

var errAway = errors.New("the database is away")

func (l *ledger) EndDelivery(_ context.Context, c outbox.DeliveryClaim, end outbox.DeliveryEnd) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing > 0 {
		l.failing--
		return false, errAway
	}
	l.flying[c.Webhook]--
	if end.State == outbox.DeliveryPending && !end.Gone && !end.Uncounted {
		l.pending[c.Webhook] = append(l.pending[c.Webhook], c)
	}
	l.ended <- ending{c, end}
	return true, nil
}

func (l *ledger) NextDelivery(_ context.Context, webhook string) (time.Duration, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 0, len(l.pending[webhook]) > 0, nil
}

// await returns the next attempt that ended.
func (l *ledger) await(t *testing.T) ending {
	t.Helper()
	select {
	case e := <-l.ended:
		return e
	case <-time.After(patience):
		t.Fatal("no attempt ended")
		return ending{}
	}
}

// endpoint returns an endpoint that allows private addresses.
func endpoint(name, url string) webhooks.Endpoint {
	return webhooks.Endpoint{
		Name: name, URL: url, Keys: [][]byte{make([]byte, 24)}, AllowPrivate: true, Timeout: patience, Concurrency: 2,
		MaxAttempts: 3, MaxAge: time.Hour,
	}
}

// A running is a started Deliverer with its ledger.
type running struct {
	*ledger
	stop, hard context.CancelFunc
	done       chan struct{}
}

func deliver(t *testing.T, endpoints ...webhooks.Endpoint) *running {
	t.Helper()
	r := &running{ledger: newLedger(), done: make(chan struct{})}
	var ctx, hard context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	hard, r.hard = context.WithCancel(t.Context())
	d := webhooks.New(webhooks.Config{
		Store: r, Endpoints: endpoints, WorkerID: "w", PollInterval: time.Minute, Grace: time.Minute, Log: zap.NewNop(),
		Rings: r.subscribe,
		Mask:  func(text string) string { return strings.ReplaceAll(text, "canary", "[redacted]") },
		View:  func(r turnkeeper.Reply) any { return map[string]any{"id": r.ID, "body": r.Body} },
	})
	go func() {
		defer close(r.done)
		d.Run(ctx, hard)
	}()
	t.Cleanup(func() {
		r.hard()
		r.stop()
		<-r.done
	})
	return r
}

// serve starts a local server with handler and returns its URL.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// TestAnswers checks how each response ends a delivery.
func TestAnswers(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    outbox.DeliveryEnd
	}{
		"200": {status(200), outbox.DeliveryEnd{State: "delivered", Status: 200}},
		"299": {status(299), outbox.DeliveryEnd{State: "delivered", Status: 299}},
		"400": {status(400), outbox.DeliveryEnd{State: "pending", Status: 400,
			Error: "HTTP 400 Bad Request"}},
		"410": {status(410), outbox.DeliveryEnd{State: "pending", Status: 410,
			Error: "HTTP 410 Gone", Gone: true}},
		"an odd status": {status(799), outbox.DeliveryEnd{State: "pending", Status: 799, Error: "HTTP 799"}},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusFound)
		}, outbox.DeliveryEnd{State: "pending", Status: 302, Error: "HTTP 302 Found: redirects are not followed"}},
		"says why": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the canary\nis dead", http.StatusInternalServerError)
		}, outbox.DeliveryEnd{State: "pending", Status: 500,
			Error: "HTTP 500 Internal Server Error: the [redacted] is dead"}},
		"asks to wait": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, outbox.DeliveryEnd{State: "pending", Status: 503, Error: "HTTP 503 Service Unavailable", Wait: time.Hour,
			Rest: time.Hour}},
		"asks for a row": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusConflict)
		}, outbox.DeliveryEnd{State: "pending", Status: 409, Error: "HTTP 409 Conflict", Wait: time.Hour}},
		"a body without end": {func(w http.ResponseWriter, r *http.Request) {
			for block := make([]byte, 1<<16); r.Context().Err() == nil; {
				_, _ = w.Write(block)
			}
		}, outbox.DeliveryEnd{State: "delivered", Status: 200}},
		"a body that drips": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "wait for it")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, outbox.DeliveryEnd{State: "pending", Status: 500, Error: "HTTP 500 Internal Server Error: wait for it"}},
		"headers without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("a", 1<<20))
		}, outbox.DeliveryEnd{State: "pending",
			Error: "net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted"}},
		"a reset": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}, outbox.DeliveryEnd{State: "pending", Error: "read: connection reset by peer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := deliver(t, endpoint("shop", serve(t, c.handler)))
			r.put("shop", 17)
			got := r.await(t).DeliveryEnd
			if c.want.State == "pending" && !c.want.Gone && c.want.Wait == 0 &&
				(got.Wait < webhooks.FirstWait*3/4 || got.Wait > webhooks.FirstWait*5/4) {
				t.Errorf("the wait is %s", got.Wait)
			}
			if c.want.Wait == 0 {
				got.Wait = 0
			}
			got.Duration = 0
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestAddressesAreChecked checks that a connection to a private address needs permission, under any host name that
// resolves to it.
func TestAddressesAreChecked(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a private address was called") })
	for _, url := range []string{url, strings.Replace(url, "127.0.0.1", "localhost", 1)} {
		e := endpoint("shop", url)
		e.AllowPrivate = false
		r := deliver(t, e)
		r.put("shop", 1)
		if got := r.await(t); !strings.Contains(got.Error, "at a loopback address; set allow_private") ||
			strings.Contains(got.Error, "127.0.0.1") {
			t.Errorf("%s: %+v", url, got.DeliveryEnd)
		}
	}
	// Every connection is checked: a name may resolve to a public address first and to a private one later.
	var calls atomic.Int64
	open := endpoint("open", serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	open.AllowPrivate = false
	r := deliver(t, webhooks.RefuseBy(open, func(string) string {
		if calls.Add(1) > 1 {
			return "private"
		}
		return ""
	}))
	r.put("open", 1)
	if got := r.await(t); got.State != outbox.DeliveryDelivered {
		t.Fatalf("%+v", got.DeliveryEnd)
	}
	r.put("open", 2)
	if got := r.await(t); !strings.Contains(got.Error, "at a private address") {
		t.Fatalf("%+v", got.DeliveryEnd)
	}
}

// TestFailuresDoNotRepeatTheAddress checks that stored errors contain no part of the address.
func TestFailuresDoNotRepeatTheAddress(t *testing.T) {
	t.Parallel()
	closed := testrun.ClosedAddress(t)
	for url, want := range map[string]string{
		"http://" + closed + "/?token=t0psecret": "connect: connection refused",
		"http://t0psecret.invalid/":              "DNS lookup failed: ",
		"https://" + closed + "/t0psecret":       "connect: connection refused",
		strings.Replace(serve(t, status(200)), "http", "https", 1) +
			"/t0psecret": "http: server gave HTTP response to HTTPS client",
	} {
		r := deliver(t, endpoint("shop", url))
		r.put("shop", 1)
		got := r.await(t)
		if !strings.HasPrefix(got.Error, want) || strings.Contains(got.Error, "t0psecret") ||
			got.State != outbox.DeliveryPending {
			t.Errorf("%s: %+v", url, got.DeliveryEnd)
		}
	}
}

// TestAnEndpointThatHangsHoldsUpNoOther checks that a hanging endpoint does not delay others.
func TestAnEndpointThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	url, arrived := hanging(t)
	slow := endpoint("slow", url)
	slow.Timeout = time.Hour
	r := deliver(t, slow, endpoint("quick", serve(t, status(204))))
	r.put("slow", 1, 2, 3)
	for range slow.Concurrency {
		<-arrived
	}
	r.put("quick", 1, 2, 3, 4, 5, 6, 7, 8)
	for range 8 {
		if got := r.await(t); got.Webhook != "quick" || got.State != outbox.DeliveryDelivered {
			t.Fatalf("%s: %+v", got.Webhook, got.DeliveryEnd)
		}
	}
}

// hanging returns the URL of an endpoint that never answers, and a channel that receives a value for each request.
func hanging(t *testing.T) (url string, arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 100)
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}), arrived
}

// TestAnEndpointThatHangs checks that a delivery to a hanging endpoint times out.
func TestAnEndpointThatHangs(t *testing.T) {
	t.Parallel()
	url, _ := hanging(t)
	slow := endpoint("slow", url)
	slow.Timeout, slow.MaxAttempts = 200*time.Millisecond, 1
	r := deliver(t, slow)
	r.put("slow", 1, 2, 3)
	dead := 0
	for dead < 3 {
		got := r.await(t)
		if got.Error != "no answer within 200ms" ||
			(got.State == outbox.DeliveryDead) != (got.Attempt == slow.MaxAttempts) {
			t.Errorf("%s, attempt %d: %+v", got.Webhook, got.Attempt, got.DeliveryEnd)
		}
		if got.State == outbox.DeliveryDead {
			dead++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most != slow.Concurrency {
		t.Errorf("%d attempts were under way at once", r.most)
	}
}

// TestTheAgeOfADelivery checks that a delivery also ends at its maximum age since the first attempt.
func TestTheAgeOfADelivery(t *testing.T) {
	t.Parallel()
	r := deliver(t, endpoint("shop", serve(t, status(500))))
	r.mu.Lock()
	r.pending["shop"] = []outbox.DeliveryClaim{{Webhook: "shop", Tried: time.Hour}}
	r.mu.Unlock()
	r.put("shop")
	if got := r.await(t); got.State != outbox.DeliveryDead || got.Attempt != 1 {
		t.Errorf("%+v", got)
	}
}

// TestTheDatabaseIsAwayWhenAnAnswerComes checks that a result that could not be stored is stored once the database is
// back, without sending the reply again.
func TestTheDatabaseIsAwayWhenAnAnswerComes(t *testing.T) {
	t.Parallel()
	var got []string
	r := deliver(t, endpoint("shop", serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("webhook-id"))
	})))
	r.failing = 2
	r.put("shop", 5)
	if end := r.await(t); end.State != outbox.DeliveryDelivered || !slices.Equal(got, []string{"reply_5"}) {
		t.Errorf("%+v, sent %v", end, got)
	}
}

// TestStopping checks that a stopping Deliverer claims nothing more and lets running deliveries end, and that a second
// stop aborts them without counting the attempt.
func TestStopping(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}, 10), make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	soft := deliver(t, endpoint("shop", url))
	soft.put("shop", 1)
	<-arrived
	soft.stop()
	soft.put("shop", 2)
	answer <- struct{}{}
	<-soft.done
	if got := soft.await(t); got.State != outbox.DeliveryDelivered || len(soft.ended) != 0 {
		t.Errorf("%+v, and %d more", got, len(soft.ended))
	}

	hard := deliver(t, endpoint("shop", url))
	hard.put("shop", 1)
	<-arrived
	hard.stop()
	hard.hard()
	<-hard.done
	if got := hard.await(t).DeliveryEnd; got != (outbox.DeliveryEnd{State: outbox.DeliveryPending, Uncounted: true}) {
		t.Errorf("%+v", got)
	}
}
