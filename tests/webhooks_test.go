package tests_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hookSecret is what the webhooks of the tests sign with.
const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// A push is one request that a receiver got.
type push struct {
	id, body string
	header   http.Header
}

// A receiver is a program that a webhook posts to. It answers by what the test has it do, and
// keeps what it was sent.
type receiver struct {
	t      testing.TB
	server *httptest.Server
	url    string
	answer func(w http.ResponseWriter, r *http.Request, p push)

	mu     sync.Mutex
	pushes []push
}

// newReceiver answers 204 where answer is nil.
func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, p push)) *receiver {
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request, _ push) { w.WriteHeader(http.StatusNoContent) }
	}
	r := &receiver{t: t, answer: answer}
	r.server = httptest.NewServer(r)
	r.url = r.server.URL
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // broken off before it was whole
	}
	p := push{req.Header.Get("webhook-id"), string(body), req.Header}
	if err := verify(hookSecret, p); err != nil {
		r.t.Errorf("a request to %s: %v", req.URL, err)
	}
	r.mu.Lock()
	r.pushes = append(r.pushes, p)
	r.mu.Unlock()
	r.answer(w, req, p)
}

// verify is what docs/webhooks.md tells receivers to do.
func verify(secret string, p push) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	sent, err := strconv.ParseInt(p.header.Get("webhook-timestamp"), 10, 64)
	if age := time.Since(time.Unix(sent, 0)); err != nil || age > 5*time.Minute || age < -5*time.Minute {
		return fmt.Errorf("the timestamp is %q", p.header.Get("webhook-timestamp"))
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", p.id, sent, p.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if !slices.Contains(strings.Fields(p.header.Get("webhook-signature")), want) {
		return fmt.Errorf("the signature is %q, not %s", p.header.Get("webhook-signature"), want)
	}
	return nil
}

// all is what came so far, by id.
func (r *receiver) all() map[string][]push {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]push{}
	for _, p := range r.pushes {
		all[p.id] = append(all[p.id], p)
	}
	return all
}

// same fails the test where a reply came with different bodies.
func (r *receiver) same() {
	r.t.Helper()
	for id, pushes := range r.all() {
		for _, p := range pushes {
			if p.body != pushes[0].body {
				r.t.Errorf("%s came as %s and as %s", id, pushes[0].body, p.body)
			}
		}
	}
}

// webhook adds a webhook to the settings of every worker that starts from now on.
func (h *house) webhook(name, url string, settings ...string) {
	h.t.Helper()
	h.env["HOOK_SECRET"] = hookSecret
	if !strings.Contains(h.read("turnkeeper.yaml"), "webhooks:") {
		h.write("turnkeeper.yaml", h.read("turnkeeper.yaml")+"webhooks:\n")
	}
	lines := append([]string{"url: " + url, "secret_env: HOOK_SECRET", "allow_private: true"}, settings...)
	h.write("turnkeeper.yaml", h.read("turnkeeper.yaml")+"  "+name+":\n    "+strings.Join(lines, "\n    ")+"\n")
}

// awaitDeliveries returns when so many deliveries to a webhook are in the state.
func (h *house) awaitDeliveries(webhook, state string, n int) {
	h.t.Helper()
	h.await(fmt.Sprintf("%d deliveries to %s are %s", n, webhook, state),
		"select count(*) = $3 from webhook_deliveries where webhook = $1 and state = $2", webhook, state, n)
}

// Each reply is pushed, signed, with the fields of the outbox; a webhook that comes later starts
// with the replies from then on.
func TestWebhook(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.agent("desk")
	h.model.Then(func(r recorded) reply { return text("Done: <" + newest(r) + "> & ✓") })
	early := h.startWorker()
	before := h.send("clerk", "before")
	h.awaitClosed(before)
	if code := early.terminate(); code != 0 {
		t.Fatalf("the worker ended with %d", code)
	}

	every, some := newReceiver(t, nil), newReceiver(t, nil)
	h.webhook("every", every.url+"/hook?token=canary-7f3a")
	h.webhook("some", some.url, "agents: [desk]")
	w := h.startWorker("--log-level", "debug")
	h.awaitClosed(h.send("clerk", "first"), h.send("desk", "second"))
	h.awaitDeliveries("every", "delivered", 2)
	h.awaitDeliveries("some", "delivered", 1)
	if n := len(every.all()); n != 2 {
		t.Errorf("%d replies came: the one before the webhook is not among them", n)
	}

	type reply struct {
		ID      int64
		Agent   string
		Body    string
		Outcome string
	}
	outbox := turnctl[[]map[string]any](h, "outbox")
	for _, r := range outbox {
		id := fmt.Sprintf("reply_%v", r["id"])
		pushes := every.all()[id]
		if r["message_id"] == float64(before) {
			continue
		}
		if len(pushes) != 1 {
			t.Fatalf("%s came %d times", id, len(pushes))
		}
		var body struct {
			Type      string
			Timestamp time.Time
			Data      map[string]any
		}
		if err := json.Unmarshal([]byte(pushes[0].body), &body); err != nil {
			t.Fatal(err)
		}
		for _, fields := range []map[string]any{r, body.Data} { // one moment, in two zones
			at, err := time.Parse(time.RFC3339Nano, fields["created_at"].(string))
			if err != nil {
				t.Fatal(err)
			}
			fields["created_at"] = at.UTC().Format(time.RFC3339Nano)
		}
		if diff := cmp.Diff(r, body.Data); diff != "" || body.Type != "reply.created" {
			t.Errorf("%s is not what the outbox has:\n%s", body.Type, diff)
		}
	}
	for id, p := range some.all() {
		var body struct{ Data reply }
		if err := json.Unmarshal([]byte(p[0].body), &body); err != nil || body.Data.Agent != "desk" {
			t.Errorf("%s for the agent desk is %s", id, p[0].body)
		}
	}
	for _, secret := range []string{hookSecret, "canary-7f3a"} {
		if strings.Contains(w.said.String(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}
