package env

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// WebhookSecret signs the webhooks of the tests. OldWebhookSecret is the secret before it.
const (
	WebhookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	OldWebhookSecret = "whsec_b2xkIHNlY3JldCBvZiB0aGUgd2ViaG9va3M="
)

// A Delivery is one request that a receiver got.
type Delivery struct {
	ID, Body string
	Header   http.Header
}

// A WebhookReceiver is a server that webhooks post to. It answers with the function of the test and
// records the deliveries.
type WebhookReceiver struct {
	t      testing.TB
	URL    string
	answer func(w http.ResponseWriter, r *http.Request, p Delivery)

	Secrets []string // each of them must have signed every delivery

	mu         sync.Mutex
	deliveries []Delivery
}

// NewWebhookReceiver starts a receiver that is closed when the test ends. If answer is nil, it answers
// 204.
func NewWebhookReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request,
	p Delivery)) *WebhookReceiver {
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request, _ Delivery) { w.WriteHeader(http.StatusNoContent) }
	}
	r := &WebhookReceiver{t: t, answer: answer, Secrets: []string{WebhookSecret}}
	r.URL = serve(t, r)
	return r
}

func (r *WebhookReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the request was cut off
	}
	p := Delivery{req.Header.Get("webhook-id"), string(body), req.Header}
	for _, secret := range r.Secrets {
		if err := verifySignature(secret, p); err != nil {
			r.t.Errorf("a request to %s: %v", req.URL, err)
		}
	}
	r.mu.Lock()
	r.deliveries = append(r.deliveries, p)
	r.mu.Unlock()
	r.answer(w, req, p)
}

// verifySignature checks a request as the library of Standard Webhooks does.
func verifySignature(secret string, p Delivery) error {
	by, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return by.Verify([]byte(p.Body), p.Header)
}

// Deliveries returns the deliveries so far, by ID.
func (r *WebhookReceiver) Deliveries() map[string][]Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]Delivery{}
	for _, p := range r.deliveries {
		all[p.ID] = append(all[p.ID], p)
	}
	return all
}

// WantSameBodies fails the test if deliveries with the same ID have different bodies.
func (r *WebhookReceiver) WantSameBodies() {
	r.t.Helper()
	for id, deliveries := range r.Deliveries() {
		for _, p := range deliveries {
			if p.Body != deliveries[0].Body {
				r.t.Errorf("%s was delivered as %s and as %s", id, deliveries[0].Body, p.Body)
			}
		}
	}
}

// AddWebhook adds a webhook to the settings. Workers that start later use it.
func (e *Env) AddWebhook(name, url string, settings ...string) {
	e.T.Helper()
	e.Vars["HOOK_SECRET"], e.Vars["OLD_HOOK_SECRET"] = WebhookSecret, OldWebhookSecret
	if !strings.Contains(e.ReadFile("turnkeeper.yaml"), "webhooks:") {
		e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+"webhooks:\n")
	}
	lines := append([]string{"url: " + url, "secret_env: HOOK_SECRET", "allow_private: true"}, settings...)
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+"  "+name+":\n    "+strings.Join(lines, "\n    ")+"\n")
}

// AwaitDeliveries waits until n deliveries of a webhook are in the state.
func (e *Env) AwaitDeliveries(webhook, state string, n int) {
	e.T.Helper()
	e.Await(fmt.Sprintf("%d deliveries to %s are %s", n, webhook, state),
		"select count(*) = $3 from webhook_deliveries where webhook = $1 and state = $2", webhook, state, n)
}
