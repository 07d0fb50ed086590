package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
)

// TestWhatBecomesOfADelivery checks each field of what is recorded after an attempt, for each answer, and at the limits
// of the attempts and of the age.
func TestWhatBecomesOfADelivery(t *testing.T) {
	t.Parallel()
	const took = 3 * time.Second
	e := &endpoint{Endpoint: Endpoint{MaxAttempts: 5, MaxAge: time.Hour}}
	const pending, dead = outbox.DeliveryPending, outbox.DeliveryDead
	for name, c := range map[string]struct {
		answer  attempt
		after   string // Retry-After
		attempt int
		tried   time.Duration
		want    outbox.DeliveryEnd
		wait    time.Duration // about; with Retry-After exactly
	}{
		"delivered": {attempt{status: 204}, "9", 9, time.Hour,
			outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 204}, 0},
		"gone": {attempt{status: 410}, "", 9, time.Hour, outbox.DeliveryEnd{State: pending,
			Gone: true, Status: 410, Error: "HTTP 410 Gone"}, 0},
		"refused": {attempt{status: 500, text: "no"}, "", 1, 0, outbox.DeliveryEnd{State: pending,
			Status: 500, Error: "HTTP 500 Internal Server Error: no"}, 5 * time.Second},
		"refused again": {attempt{status: 599}, "", 3, time.Minute, outbox.DeliveryEnd{State: pending,
			Status: 599, Error: "HTTP 599"}, 45 * time.Second},
		"redirected": {attempt{status: 302, text: "x"}, "", 1, 0, outbox.DeliveryEnd{State: pending,
			Status: 302, Error: "HTTP 302 Found: redirects are not followed"}, 5 * time.Second},
		"no answer": {attempt{err: errors.New("away")}, "", 2, 0, outbox.DeliveryEnd{State: pending,
			Error: "away"}, 15 * time.Second},
		"the last but one": {attempt{status: 404}, "", 4, 0, outbox.DeliveryEnd{State: pending, Status: 404,
			Error: "HTTP 404 Not Found"}, 135 * time.Second},
		"the last": {attempt{status: 404}, "", 5, 0, outbox.DeliveryEnd{State: dead, Status: 404,
			Error: "HTTP 404 Not Found"}, 0},
		"almost too old": {attempt{status: 404}, "", 1, time.Hour - took - 1, outbox.DeliveryEnd{State: pending,
			Status: 404, Error: "HTTP 404 Not Found"}, 5 * time.Second},
		"too old": {attempt{status: 404}, "", 1, time.Hour - took, outbox.DeliveryEnd{State: dead,
			Status: 404, Error: "HTTP 404 Not Found"}, 0},
		"asked to wait": {attempt{status: 500}, "600", 1, 0, outbox.DeliveryEnd{State: pending, Status: 500,
			Error: "HTTP 500 Internal Server Error"}, 10 * time.Minute},
		"too many": {attempt{status: 429}, "600", 1, 0, outbox.DeliveryEnd{State: pending, Status: 429,
			Error: "HTTP 429 Too Many Requests", Rest: 10 * time.Minute}, 10 * time.Minute},
		"not now": {attempt{status: 503}, "60", 1, 0, outbox.DeliveryEnd{State: pending, Status: 503,
			Error: "HTTP 503 Service Unavailable", Rest: time.Minute}, time.Minute},
		"not now, without a time": {attempt{status: 503}, "", 1, 0, outbox.DeliveryEnd{State: pending, Status: 503,
			Error: "HTTP 503 Service Unavailable"}, 5 * time.Second},
		"not now, the last": {attempt{status: 503}, "60", 5, 0, outbox.DeliveryEnd{State: dead, Status: 503,
			Error: "HTTP 503 Service Unavailable", Rest: time.Minute}, 0},
	} {
		c.answer.header = http.Header{"Retry-After": {c.after}}
		got := e.judge(outbox.DeliveryClaim{Attempt: c.attempt, Tried: c.tried}, c.answer, took)
		if c.after == "" && (got.Wait < c.wait*3/4 || got.Wait > c.wait*5/4) || c.after != "" && got.Wait != c.wait {
			t.Errorf("%s: the next attempt is in %s, want %s", name, got.Wait, c.wait)
		}
		got.Wait, c.want.Duration = 0, took
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhatOperatorsRead checks the log line and the count of each result of an attempt, of a reply and of an ask.
func TestWhatOperatorsRead(t *testing.T) {
	t.Parallel()
	reply := outbox.DeliveryClaim{Attempt: 4, Reply: turnkeeper.Reply{ID: 7, TurnID: 8}}
	ask := outbox.DeliveryClaim{Attempt: 4, Ask: outbox.OpenedAsk{Ask: asks.Ask{ID: 9, Turn: 10}}}
	var got []string
	for _, c := range []struct {
		claim outbox.DeliveryClaim
		end   outbox.DeliveryEnd
		held  bool
		err   error
	}{
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200}, true, nil},
		{ask, outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 204}, true, nil},
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryPending, Error: "no", Wait: time.Minute}, true, nil},
		{ask, outbox.DeliveryEnd{State: outbox.DeliveryDead, Error: "no"}, true, nil},
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryPending, Gone: true, Error: "HTTP 410 Gone"}, true, nil},
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryPending, Uncounted: true}, true, nil},
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryDelivered}, false, nil},
		{reply, outbox.DeliveryEnd{State: outbox.DeliveryDelivered}, true, errors.New("no database")},
	} {
		core, logs := observer.New(zap.DebugLevel)
		counted := ""
		d := &Deliverer{Config: Config{Log: zap.New(core), Observe: func(webhook, result string, took time.Duration) {
			counted += fmt.Sprintf(", counted: %s %s %s", webhook, result, took)
		}}}
		e := &endpoint{Endpoint: Endpoint{Name: "shop"}, Deliverer: d}
		c.end.Duration = time.Second
		e.tell(c.claim, c.end, c.held, c.err)
		d.Observe = nil
		e.tell(c.claim, c.end, c.held, c.err)
		for _, entry := range logs.All()[:1] {
			fields, _ := json.Marshal(entry.ContextMap())
			got = append(got, fmt.Sprintf("%s: %s %s%s", entry.Level, entry.Message, fields, counted))
		}
	}
	want := []string{
		`debug: delivered {"attempt":4,"reply":7,"status":200,"took":1000000000,"turn":8,"webhook":"shop"}, counted: shop delivered 1s`,
		`debug: delivered {"ask":9,"attempt":4,"status":204,"took":1000000000,"turn":10,"webhook":"shop"}, counted: shop delivered 1s`,
		`warn: a delivery failed; it will be retried {"attempt":4,"error":"no","reply":7,"took":1000000000,"turn":8,"wait":60000000000,"webhook":"shop"}, counted: shop failed 1s`,
		`error: a delivery was given up; retry it with "turnctl webhooks redeliver" {"ask":9,"attempt":4,"error":"no","took":1000000000,"turn":10,"webhook":"shop"}, counted: shop dead 1s`,
		`warn: the webhook is paused: its endpoint answered 410 Gone {"attempt":4,"error":"HTTP 410 Gone","reply":7,"took":1000000000,"turn":8,"webhook":"shop"}, counted: shop gone 1s`,
		`info: a delivery was aborted; it will be retried {"attempt":4,"reply":7,"took":1000000000,"turn":8,"webhook":"shop"}`,
		`info: a delivery ended after its claim had expired {"attempt":4,"reply":7,"took":1000000000,"turn":8,"webhook":"shop"}, counted: shop delivered 1s`,
		`warn: could not record the result of a delivery; it will be repeated {"attempt":4,"error":"no database","reply":7,"took":1000000000,"turn":8,"webhook":"shop"}, counted: shop delivered 1s`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBodies checks the whole body of a delivery of a reply and of an ask, with times in UTC.
func TestBodies(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	d := &Deliverer{Config: Config{
		View: func(r turnkeeper.Reply) any { return map[string]any{"<reply>": r.ID, "at": r.CreatedAt} },
		ViewAsk: func(a outbox.OpenedAsk) any {
			return map[string]any{"ask": a.ID, "at": a.OpenedAt, "until": a.ExpiresAt}
		},
	}}
	ask := outbox.OpenedAsk{Ask: asks.Ask{ID: 9, OpenedAt: at, ExpiresAt: at.Add(time.Hour)}}
	for want, c := range map[string]outbox.DeliveryClaim{
		`{"type":"reply.created","timestamp":"2026-01-02T02:04:05Z","data":{"<reply>":7,"at":"2026-01-02T02:04:05Z"}}`:                         {Reply: turnkeeper.Reply{ID: 7, CreatedAt: at}},
		`{"type":"ask.opened","timestamp":"2026-01-02T02:04:05Z","data":{"ask":9,"at":"2026-01-02T02:04:05Z","until":"2026-01-02T03:04:05Z"}}`: {Ask: ask},
	} {
		if got, err := d.bodyOf(c); err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}

// A registry is a Store without deliveries that records the calls about webhooks.
type registry struct {
	mu    sync.Mutex
	told  []string
	fails bool
}

func (r *registry) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, text)
}

func (r *registry) RegisterWebhook(_ context.Context, w outbox.Webhook) error {
	text, _ := json.Marshal(w)
	r.note(string(text))
	if r.fails {
		return errors.New("no database")
	}
	return nil
}

func (r *registry) SeeWebhooks(_ context.Context, names []string) ([]string, error) {
	r.note("see " + strings.Join(names, " "))
	return names, nil
}

func (r *registry) ClaimDeliveries(_ context.Context, webhook string, worker turnkeeper.WorkerID, slots, limit int,
	hold time.Duration) ([]outbox.DeliveryClaim, error) {
	r.note(fmt.Sprintf("claim %s %v %d of %d for %s", webhook, worker, limit, slots, hold))
	return nil, nil
}

func (r *registry) EndDelivery(context.Context, outbox.DeliveryClaim, outbox.DeliveryEnd) (bool, error) {
	return true, nil
}

func (r *registry) NextDelivery(context.Context, string) (time.Duration, bool, error) {
	return 0, false, nil
}

// TestWhatTheStoreIsTold checks what a Deliverer says of its endpoints, which bells it listens to, and that it stops to
// listen.
func TestWhatTheStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &registry{}
		bells := map[string]int{}
		rings := map[string]chan struct{}{}
		listen := func(bell string) func() (<-chan struct{}, func()) {
			return func() (<-chan struct{}, func()) {
				bells[bell]++
				rings[bell] = make(chan struct{})
				return rings[bell], func() { bells[bell]-- }
			}
		}
		d := New(Config{
			Store: store, WorkerID: turnkeeper.WorkerID("w"), PollInterval: time.Hour, Log: zap.NewNop(),
			Rings: listen("replies"), AskRings: listen("asks"),
			Endpoints: []Endpoint{
				{Name: "shop", URL: "https://h/secret", Origin: "https://h", Agents: []string{"a"}, SubAgents: true,
					Asks: true, Timeout: 7 * time.Second, Concurrency: 3},
			},
		})
		if err := d.Register(t.Context()); err != nil {
			t.Error(err)
		}
		var w outbox.Webhook
		if err := json.Unmarshal([]byte(store.told[0]), &w); err != nil ||
			!cmp.Equal(w, outbox.Webhook{Name: "shop", Origin: "https://h", Agents: []string{"a"}, SubAgents: true,
				Asks: true}) {
			t.Errorf("registered: %+v, %v", w, err)
		}
		store.told = nil
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			d.Run(ctx, t.Context())
			close(ended)
		}()
		for _, bell := range []string{"replies", "asks"} {
			time.Sleep(time.Second)
			synctest.Wait()
			if bells[bell] != 1 {
				t.Errorf("it listens to the bell of %s %d times", bell, bells[bell])
			}
			rings[bell] <- struct{}{}
		}
		time.Sleep(time.Second)
		stop()
		<-ended
		slices.Sort(store.told)
		const claim = "claim shop w 3 of 3 for 37s"
		if diff := cmp.Diff([]string{claim, claim, claim, "see shop"}, store.told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if bells["replies"] != 0 || bells["asks"] != 0 {
			t.Errorf("it still listens: %v", bells)
		}
		store.fails = true
		if err := d.Register(t.Context()); err == nil ||
			err.Error() != "could not register the webhook shop: no database" {
			t.Errorf("without a database: %v", err)
		}
		New(Config{}).Run(t.Context(), t.Context()) // without endpoints there is nothing to do
	})
}
