package tests_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// hookSecret is what the webhooks of the tests sign with, and oldHookSecret what they
// signed with before.
const (
	hookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldHookSecret = "whsec_b2xkIHNlY3JldCBvZiB0aGUgd2ViaG9va3M="
)

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

	secrets []string // each of which must have signed

	mu     sync.Mutex
	pushes []push
}

// newReceiver answers 204 where answer is nil.
func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, p push)) *receiver {
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request, _ push) { w.WriteHeader(http.StatusNoContent) }
	}
	r := &receiver{t: t, answer: answer, secrets: []string{hookSecret}}
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
	for _, secret := range r.secrets {
		if err := verify(secret, p); err != nil {
			r.t.Errorf("a request to %s: %v", req.URL, err)
		}
	}
	r.mu.Lock()
	r.pushes = append(r.pushes, p)
	r.mu.Unlock()
	r.answer(w, req, p)
}

// verify checks a request as the library of Standard Webhooks does.
func verify(secret string, p push) error {
	by, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return by.Verify([]byte(p.body), p.header)
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
	h.env["HOOK_SECRET"], h.env["OLD_HOOK_SECRET"] = hookSecret, oldHookSecret
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
	every.secrets = append(every.secrets, oldHookSecret)
	h.webhook("every", every.url+"/hook?token=canary-7f3a", "old_secret_env: OLD_HOOK_SECRET")
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
	h.holdsNone(hookSecret, oldHookSecret, "canary-7f3a")
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	for _, secret := range []string{hookSecret, oldHookSecret, "canary-7f3a"} {
		if strings.Contains(w.said.String(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// A hook is what turnctl says of a webhook, as far as tests look.
type hook struct {
	Served        bool
	PausedReason  string `json:"paused_reason"`
	Pending, Dead int
	LastError     string `json:"last_error"`
	Deliveries    []struct {
		ReplyID     int64  `json:"reply_id"`
		WebhookID   string `json:"webhook_id"`
		State       string
		Attempts    int
		Status      *int
		Error       string
		Redelivered int
	}
}

// Replies that agents write for other agents are pushed to the webhooks that want them.
// The outbox has them all, and says whose they are.
func TestRepliesOfSubAgents(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.team()
	h.model.Then(staff(map[string]func(recorded) reply{
		"boss":  tells(spawns("scout find it")),
		"scout": rounds(text("under the stone")),
	}))
	shop, audit := newReceiver(t, nil), newReceiver(t, nil)
	h.webhook("shop", shop.url)
	h.webhook("audit", audit.url, "sub_agents: true")
	w := h.startWorker()
	message := h.enqueue("boss", "Get it done.")
	turn := h.turnOf(message)
	h.awaitDeliveries("audit", "delivered", 2)
	h.awaitDeliveries("shop", "delivered", 1)
	type data struct {
		ID     int64
		Agent  string
		Parent *int64 `json:"parent_turn_id"`
	}
	pushed := func(r *receiver) (told []string) {
		for _, pushes := range r.all() {
			var body struct{ Data data }
			if err := json.Unmarshal([]byte(pushes[0].body), &body); err != nil {
				t.Fatal(err)
			}
			one := body.Data.Agent
			if p := body.Data.Parent; p != nil {
				one += fmt.Sprintf(" for %d", *p)
			}
			told = append(told, one)
		}
		slices.Sort(told)
		return told
	}
	if got := pushed(shop); !slices.Equal(got, []string{"boss"}) {
		t.Errorf("the shop was told of %q", got)
	}
	if got, want := pushed(audit), []string{"boss", fmt.Sprintf("scout for %d", turn.ID)}; !slices.Equal(got, want) {
		t.Errorf("the audit was told of %q, not %q", got, want)
	}
	if n := query[int](h, "select count(*) from webhook_deliveries"); n != 3 {
		t.Errorf("there are %d deliveries", n)
	}

	all, top := turnctl[[]data](h, "outbox"), turnctl[[]data](h, "outbox", "--sub-agents=false")
	if len(all) != 2 || len(top) != 1 || top[0].Agent != "boss" || top[0].Parent != nil {
		t.Errorf("the outbox has %+v, and without sub-agents %+v", all, top)
	}
	if in := turnctl[[]data](h, "outbox", "--after", "0", "--sub-agents=false"); len(in) != 1 || in[0].Agent != "boss" {
		t.Errorf("in order, without sub-agents: %+v", in)
	}
	i := slices.IndexFunc(all, func(d data) bool { return d.Agent == "scout" })
	if i < 0 || all[i].Parent == nil || *all[i].Parent != turn.ID {
		t.Fatalf("the outbox has %+v", all)
	}
	r := h.run("", "turnctl", "outbox")
	if r.code != 0 || !strings.Contains(r.stdout, fmt.Sprintf("2 for %d", turn.ID)) {
		t.Errorf("turnctl outbox says\n%s%s", r.stdout, r.stderr)
	}
	for path, want := range map[string]string{"?sub_agents=false": "boss", "?sub_agents=true": "scout boss", "": "scout boss"} {
		var page struct{ Items []data }
		status := h.get(w, "/v1/outbox"+path, &page)
		var agents []string
		for _, d := range page.Items {
			agents = append(agents, d.Agent)
		}
		if got := strings.Join(agents, " "); status != http.StatusOK || got != want {
			t.Errorf("%q gives %d, %q", path, status, got)
		}
	}
	if status := h.get(w, "/v1/outbox?sub_agents=some", nil); status != http.StatusBadRequest {
		t.Errorf("a bad flag is answered with %d", status)
	}

	// Who asks for one gets it.
	if r := h.run("", "turnctl", "webhooks", "redeliver", "shop", fmt.Sprint(all[i].ID)); r.code != 0 {
		t.Fatal(r.stderr)
	}
	h.awaitDeliveries("shop", "delivered", 2)
	if got, want := pushed(shop), pushed(audit); !slices.Equal(got, want) {
		t.Errorf("the shop was told of %q, the audit of %q", got, want)
	}
	shop.same()
	audit.same()
}

// get asks a worker's API for an object, and is the status of the answer.
func (h *house) get(w *process, path string, into any) int {
	h.t.Helper()
	res, err := http.Get(w.api() + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	if into != nil {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			h.t.Fatal(err)
		}
	}
	return res.StatusCode
}

// What cannot be delivered is given up after its attempts, seen, and delivered when an operator
// says so: under the same id, with the same body. Meanwhile turns go on, and so do other webhooks.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(func(r recorded) reply { return text("Done: " + newest(r)) })
	early := h.startWorker()
	before := h.send("clerk", "before")
	h.awaitClosed(before)
	early.terminate()

	var well sync.Map
	broken := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ push) {
		if _, yes := well.Load("well"); yes {
			w.WriteHeader(http.StatusOK)
			return
		}
		http.Error(w, "no room for "+hookSecret, http.StatusInternalServerError)
	})
	sound := newReceiver(t, nil)
	h.webhook("broken", broken.url, "max_attempts: 2")
	h.webhook("sound", sound.url)
	w := h.startWorker()
	h.awaitClosed(h.send("clerk", "first"), h.send("clerk", "second"))
	h.awaitDeliveries("sound", "delivered", 2)
	h.awaitDeliveries("broken", "dead", 2)
	seen := turnctl[hook](h, "webhooks", "show", "broken", "--state", "dead")
	if len(seen.Deliveries) != 2 || seen.Dead != 2 || seen.Pending != 0 || !seen.Served {
		t.Fatalf("turnctl shows %+v", seen)
	}
	for _, d := range seen.Deliveries {
		if d.Attempts != 2 || *d.Status != 500 || d.Error != "HTTP 500 Internal Server Error: no room for [redacted]" || len(broken.all()[d.WebhookID]) != 2 {
			t.Errorf("turnctl shows the delivery %+v", d)
		}
	}
	attempts := scrape(t, w.api())
	for outcome, want := range map[string]float64{"failed": 2, "dead": 2, "delivered": 0} {
		if n := sum(attempts, "turnkeeper_webhook_attempt_duration_seconds", "webhook", "broken", "outcome", outcome); n != want {
			t.Errorf("by the metrics %v attempts %s", n, outcome)
		}
	}
	if found := h.run("", "turnctl", "doctor"); !strings.Contains(found.stdout, "redeliver broken --dead") {
		t.Errorf("the doctor says\n%s", found.stdout)
	}

	well.Store("well", true)
	turnctl[map[string]int](h, "webhooks", "redeliver", "broken", "--dead")
	h.awaitDeliveries("broken", "delivered", 2)
	first := query[int64](h, "select id from replies where message_id = $1", before)
	turnctl[map[string]int](h, "webhooks", "redeliver", "broken", fmt.Sprint(first), fmt.Sprint(first+1))
	h.awaitDeliveries("broken", "delivered", 3)
	h.poll("the second delivery of a delivered reply", func() bool { return len(broken.all()[fmt.Sprintf("reply_%d", first+1)]) == 4 })
	broken.same()
	for _, args := range [][]string{{"redeliver", "broken", "999"}, {"redeliver", "none", "1"}, {"show", "none"}, {"resume", "none"}, {"remove", "none"}, {"pause", "none", "why"}} {
		if r := h.run("", "turnctl", append([]string{"webhooks"}, args...)...); r.code != 3 {
			t.Errorf("turnctl webhooks %v ended with %d: %s", args, r.code, r.stderr)
		}
	}
	for _, args := range [][]string{{"redeliver", "broken"}, {"redeliver", "broken", "1", "--dead"}, {"redeliver", "broken", "x"}, {"pause", "broken", " "}, {"show", "broken", "--state", "lost"}} {
		if r := h.run("", "turnctl", append([]string{"webhooks"}, args...)...); r.code != 2 {
			t.Errorf("turnctl webhooks %v ended with %d: %s", args, r.code, r.stderr)
		}
	}

	// It is forgotten when no worker has it any more.
	if r := h.run("", "turnctl", "webhooks", "remove", "broken"); r.code != 6 {
		t.Errorf("removing a webhook that a worker has ended with %d: %s", r.code, r.stderr)
	}
	w.terminate()
	h.exec("update webhooks set seen_at = seen_at - interval '1 minute'")
	turnctl[map[string]string](h, "webhooks", "remove", "broken")
	if n := query[int](h, "select count(*) from webhook_deliveries where webhook = 'broken'"); n != 0 {
		t.Errorf("%d deliveries are left of a removed webhook", n)
	}
}

// An endpoint that says 410 is left alone, and its replies are kept for it.
func TestAnEndpointThatIsGone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(func(r recorded) reply { return text("Done: " + newest(r)) })
	var back sync.Map
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ push) {
		if _, yes := back.Load("back"); !yes {
			w.WriteHeader(http.StatusGone)
		}
	})
	h.webhook("shop", r.url)
	h.startWorker()
	h.awaitClosed(h.send("clerk", "first"))
	h.await("the webhook is paused", "select paused_at is not null from webhooks")
	h.awaitClosed(h.send("clerk", "second"))
	h.awaitDeliveries("shop", "pending", 2)
	if seen := turnctl[[]hook](h, "webhooks")[0]; seen.PausedReason != "the endpoint answered 410 Gone" || seen.Pending != 2 {
		t.Errorf("turnctl shows %+v", seen)
	}
	if n := len(r.all()); n != 1 {
		t.Errorf("%d replies were sent to an endpoint that is gone", n)
	}
	back.Store("back", true)
	turnctl[map[string]string](h, "webhooks", "resume", "shop")
	h.awaitDeliveries("shop", "delivered", 2)
	turnctl[map[string]string](h, "webhooks", "pause", "shop", "they move house")
	h.awaitClosed(h.send("clerk", "third"))
	turnctl[map[string]string](h, "webhooks", "resume", "shop")
	h.awaitDeliveries("shop", "delivered", 3)
}

// Several workers deliver to endpoints that fail and break off, and are killed meanwhile: each
// reply comes at least once to each endpoint, always the same.
func TestWebhooksOverKilledWorkers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "lane: conversation")
	h.model.Then(func(r recorded) reply { return text("Done: " + newest(r)) })
	moody := func(w http.ResponseWriter, _ *http.Request, p push) {
		switch rand.IntN(5) {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}
	receivers := map[string]*receiver{"one": newReceiver(t, moody), "two": newReceiver(t, moody)}
	for name, r := range receivers {
		h.webhook(name, r.url, "concurrency: 2")
	}
	// What fails is due at once: the test is not about waiting.
	h.exec(`create function no_wait() returns trigger language plpgsql as $$ begin
		if new.state = 'pending' and new.claim is null then new.due_at := clock_timestamp(); end if; return new; end $$`)
	h.exec("create trigger no_wait before update on webhook_deliveries for each row execute function no_wait()")
	const messages = 60
	workers := []*process{h.startWorker("--takeover-after", silence), h.startWorker("--takeover-after", silence), h.startWorker("--takeover-after", silence)}
	var ids []int64
	for n := range messages {
		ids = append(ids, query[int64](h, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("message ", n), fmt.Sprint("c", n%10)))
	}
	for killed, share := range []int{messages / 4, messages} {
		h.await("deliveries are made", "select count(*) > $1 from webhook_deliveries where state = 'delivered'", share)
		workers[killed].kill()
	}
	h.awaitClosed(ids...)
	for name, r := range receivers {
		h.awaitDeliveries(name, "delivered", messages)
		all := r.all()
		for id := range query[int64](h, "select max(id) from replies") {
			if len(all[fmt.Sprintf("reply_%d", id+1)]) == 0 {
				t.Errorf("reply %d did not come to %s", id+1, name)
			}
		}
		r.same()
	}
}

var receiverLine = regexp.MustCompile(`(?m)^listening at (http://\S+)$`)

// The receiver of the documentation takes what a worker sends, once, and nothing else.
func TestTheReceiverOfTheDocumentation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(func(r recorded) reply { return text("Done: " + newest(r)) })
	h.env["WEBHOOK_SECRET"] = hookSecret
	shop := startProcess(t, "receiver", h.dir, h.environment(), binary(t, "webhook-receiver"), "-listen", "127.0.0.1:0")
	shop.await("listening at ")
	url := receiverLine.FindStringSubmatch(shop.said.String())[1]
	h.webhook("shop", url)
	h.startWorker()
	h.awaitClosed(h.send("clerk", "first"))
	shop.await("reply_1: succeeded of clerk: \"Done: first\"\n")
	turnctl[map[string]int](h, "webhooks", "redeliver", "shop", "1")
	h.await("it was sent again", "select redelivered = 1 and state = 'delivered' from webhook_deliveries")
	h.awaitClosed(h.send("clerk", "second"))
	shop.await("reply_2: ")
	if n := strings.Count(shop.said.String(), "reply_1: "); n != 1 {
		t.Errorf("the work for a reply that came twice was done %d times", n)
	}
	forged, err := http.Post(url, "application/json", strings.NewReader(`{"type":"reply.created"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = forged.Body.Close()
	if forged.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request that nobody signed is answered %s", forged.Status)
	}
	shop.kill()
}

// holdsNone fails the test where a secret is in a row of a table.
func (h *house) holdsNone(secrets ...string) {
	h.t.Helper()
	for table, rows := range h.everyRow() {
		for _, secret := range secrets {
			if strings.Contains(rows, secret) {
				h.t.Errorf("%s holds %s", table, secret)
			}
		}
	}
}
