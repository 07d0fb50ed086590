package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// Each reply is delivered, signed, with the fields of the outbox. A webhook that is added later gets only
// later replies.
func TestWebhook(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.WriteAgent("desk")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Text("Done: <" + env.NewestMessage(r) + "> & ✓")
	})
	early := e.StartWorker()
	before := e.Send("clerk", "before")
	e.AwaitClosed(before)
	if code := early.Terminate(); code != 0 {
		t.Fatalf("the worker ended with %d", code)
	}

	every, some := env.NewWebhookReceiver(t, nil), env.NewWebhookReceiver(t, nil)
	every.Secrets = append(every.Secrets, env.OldWebhookSecret)
	e.AddWebhook("every", every.URL+"/hook?token=canary-7f3a", "old_secret_env: OLD_HOOK_SECRET")
	e.AddWebhook("some", some.URL, "agents: [desk]")
	w := e.StartWorker("--log-level", "debug")
	e.AwaitClosed(e.Send("clerk", "first"), e.Send("desk", "second"))
	e.AwaitDeliveries("every", "delivered", 2)
	e.AwaitDeliveries("some", "delivered", 1)
	if n := len(every.Deliveries()); n != 2 {
		t.Errorf("%d replies were delivered, want those after the webhook", n)
	}

	type reply struct {
		ID      int64
		Agent   string
		Body    string
		Outcome string
	}
	outbox := env.Turnctl[[]map[string]any](e, "outbox")
	for _, r := range outbox {
		id := fmt.Sprintf("reply_%v", r["id"])
		pushes := every.Deliveries()[id]
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
		if err := json.Unmarshal([]byte(pushes[0].Body), &body); err != nil {
			t.Fatal(err)
		}
		for _, fields := range []map[string]any{r, body.Data} { // the same time in two zones
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
	for id, p := range some.Deliveries() {
		var body struct{ Data reply }
		if err := json.Unmarshal([]byte(p[0].Body), &body); err != nil || body.Data.Agent != "desk" {
			t.Errorf("%s for the agent desk is %s", id, p[0].Body)
		}
	}
	wantNoSecrets(e, env.WebhookSecret, env.OldWebhookSecret, "canary-7f3a")
	if code := w.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	for _, secret := range []string{env.WebhookSecret, env.OldWebhookSecret, "canary-7f3a"} {
		if strings.Contains(w.Output.String(), secret) {
			t.Errorf("%s is in the log", secret)
		}
	}
}

// A hook is a webhook in the output of turnctl.
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

// Replies of sub-agents are delivered to the webhooks that ask for them. The outbox has all replies, with
// their parents.
func TestRepliesOfSubAgents(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":  env.ReportResult(env.Spawn("scout find it")),
		"scout": env.Rounds(inferencetest.Text("under the stone")),
	}))
	shop, audit := env.NewWebhookReceiver(t, nil), env.NewWebhookReceiver(t, nil)
	e.AddWebhook("shop", shop.URL)
	e.AddWebhook("audit", audit.URL, "sub_agents: true")
	w := e.StartWorker()
	message := e.Enqueue("boss", "Get it done.")
	turn := e.TurnOf(message)
	e.AwaitDeliveries("audit", "delivered", 2)
	e.AwaitDeliveries("shop", "delivered", 1)
	type data struct {
		ID     int64
		Agent  string
		Parent *int64 `json:"parent_turn_id"`
	}
	pushed := func(r *env.WebhookReceiver) (replies []string) {
		for _, pushes := range r.Deliveries() {
			var body struct{ Data data }
			if err := json.Unmarshal([]byte(pushes[0].Body), &body); err != nil {
				t.Fatal(err)
			}
			one := body.Data.Agent
			if p := body.Data.Parent; p != nil {
				one += fmt.Sprintf(" for %d", *p)
			}
			replies = append(replies, one)
		}
		slices.Sort(replies)
		return replies
	}
	if got := pushed(shop); !slices.Equal(got, []string{"boss"}) {
		t.Errorf("the shop got %q", got)
	}
	if got, want := pushed(audit), []string{"boss", fmt.Sprintf("scout for %d", turn.ID)}; !slices.Equal(got, want) {
		t.Errorf("the audit got %q, not %q", got, want)
	}
	if n := env.Query[int](e, "select count(*) from webhook_deliveries"); n != 3 {
		t.Errorf("there are %d deliveries", n)
	}

	all, top := env.Turnctl[[]data](e, "outbox"), env.Turnctl[[]data](e, "outbox", "--sub-agents=false")
	if len(all) != 2 || len(top) != 1 || top[0].Agent != "boss" || top[0].Parent != nil {
		t.Errorf("the outbox has %+v, and without sub-agents %+v", all, top)
	}
	if in := env.Turnctl[[]data](e, "outbox", "--after", "0", "--sub-agents=false"); len(in) != 1 ||
		in[0].Agent != "boss" {
		t.Errorf("in order, without sub-agents: %+v", in)
	}
	i := slices.IndexFunc(all, func(d data) bool { return d.Agent == "scout" })
	if i < 0 || all[i].Parent == nil || *all[i].Parent != turn.ID {
		t.Fatalf("the outbox has %+v", all)
	}
	r := e.Turnctl("outbox")
	if r.Code != 0 || !strings.Contains(r.Stdout, fmt.Sprintf("2 for %d", turn.ID)) {
		t.Errorf("turnctl outbox prints\n%s%s", r.Stdout, r.Stderr)
	}
	for path, want := range map[string]string{"?sub_agents=false": "boss", "?sub_agents=true": "scout boss",
		"": "scout boss"} {
		var page struct{ Items []data }
		status := getJSON(e, w, "/v1/outbox"+path, &page)
		var agents []string
		for _, d := range page.Items {
			agents = append(agents, d.Agent)
		}
		if got := strings.Join(agents, " "); status != http.StatusOK || got != want {
			t.Errorf("%q gives %d, %q", path, status, got)
		}
	}
	if status := getJSON(e, w, "/v1/outbox?sub_agents=some", nil); status != http.StatusBadRequest {
		t.Errorf("a bad flag is answered with %d", status)
	}

	// A single reply can be redelivered.
	if r := e.Turnctl("webhooks", "redeliver", "shop", fmt.Sprint(all[i].ID)); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	e.AwaitDeliveries("shop", "delivered", 2)
	if got, want := pushed(shop), pushed(audit); !slices.Equal(got, want) {
		t.Errorf("the shop got %q, the audit got %q", got, want)
	}
	shop.WantSameBodies()
	audit.WantSameBodies()
}

// getJSON gets an object from a worker's API and returns the status code.
func getJSON(e *env.Env, w *env.Process, path string, into any) int {
	e.T.Helper()
	res, err := http.Get(w.APIURL() + path)
	if err != nil {
		e.T.Fatal(err)
	}
	defer res.Body.Close()
	if into != nil {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			e.T.Fatal(err)
		}
	}
	return res.StatusCode
}

// A delivery that keeps failing is given up after its attempts, shown, and retried when an operator says so,
// with the same id and body. Turns and other webhooks are not delayed.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("Done: "))
	early := e.StartWorker()
	before := e.Send("clerk", "before")
	e.AwaitClosed(before)
	early.Terminate()

	var well sync.Map
	broken := env.NewWebhookReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ env.Delivery) {
		if _, yes := well.Load("well"); yes {
			w.WriteHeader(http.StatusOK)
			return
		}
		http.Error(w, "no room for "+env.WebhookSecret, http.StatusInternalServerError)
	})
	sound := env.NewWebhookReceiver(t, nil)
	e.AddWebhook("broken", broken.URL, "max_attempts: 2")
	e.AddWebhook("sound", sound.URL)
	w := e.StartWorker()
	e.AwaitClosed(e.Send("clerk", "first"), e.Send("clerk", "second"))
	e.AwaitDeliveries("sound", "delivered", 2)
	e.AwaitDeliveries("broken", "dead", 2)
	seen := env.Turnctl[hook](e, "webhooks", "show", "broken", "--state", "dead")
	if len(seen.Deliveries) != 2 || seen.Dead != 2 || seen.Pending != 0 || !seen.Served {
		t.Fatalf("turnctl shows %+v", seen)
	}
	for _, d := range seen.Deliveries {
		if d.Attempts != 2 || *d.Status != 500 || d.Error != "HTTP 500 Internal Server Error: no room for [redacted]" ||
			len(broken.Deliveries()[d.WebhookID]) != 2 {
			t.Errorf("turnctl shows the delivery %+v", d)
		}
	}
	attempts := env.Scrape(t, w.APIURL())
	for outcome, want := range map[string]float64{"failed": 2, "dead": 2, "delivered": 0} {
		if n := env.Sum(attempts, "turnkeeper_webhook_attempt_duration_seconds", "webhook", "broken", "outcome",
			outcome); n != want {
			t.Errorf("by the metrics %v attempts %s", n, outcome)
		}
	}
	if found := e.Turnctl("doctor"); !strings.Contains(found.Stdout, "redeliver broken --dead") {
		t.Errorf("the doctor prints\n%s", found.Stdout)
	}

	well.Store("well", true)
	env.Turnctl[map[string]int](e, "webhooks", "redeliver", "broken", "--dead")
	e.AwaitDeliveries("broken", "delivered", 2)
	first := env.Query[int64](e, "select id from replies where message_id = $1", before)
	env.Turnctl[map[string]int](e, "webhooks", "redeliver", "broken", fmt.Sprint(first), fmt.Sprint(first+1))
	e.AwaitDeliveries("broken", "delivered", 3)
	e.Poll("the second delivery of a delivered reply", func() bool {
		return len(broken.Deliveries()[fmt.Sprintf("reply_%d", first+1)]) == 4
	})
	broken.WantSameBodies()
	for _, args := range [][]string{{"redeliver", "broken", "999"}, {"redeliver", "none", "1"}, {"show", "none"},
		{"resume", "none"}, {"remove", "none"}, {"pause", "none", "why"}} {
		if r := e.Turnctl(append([]string{"webhooks"}, args...)...); r.Code != 3 {
			t.Errorf("turnctl webhooks %v ended with %d: %s", args, r.Code, r.Stderr)
		}
	}
	for _, args := range [][]string{{"redeliver", "broken"}, {"redeliver", "broken", "1", "--dead"},
		{"redeliver", "broken", "x"}, {"pause", "broken", " "}, {"show", "broken", "--state", "lost"}} {
		if r := e.Turnctl(append([]string{"webhooks"}, args...)...); r.Code != 2 {
			t.Errorf("turnctl webhooks %v ended with %d: %s", args, r.Code, r.Stderr)
		}
	}

	// It can be removed once no worker has it.
	if r := e.Turnctl("webhooks", "remove", "broken"); r.Code != 6 {
		t.Errorf("removing a webhook that a worker has ended with %d: %s", r.Code, r.Stderr)
	}
	w.Terminate()
	e.Exec("update webhooks set seen_at = seen_at - interval '1 minute'")
	env.Turnctl[map[string]string](e, "webhooks", "remove", "broken")
	if n := env.Query[int](e, "select count(*) from webhook_deliveries where webhook = 'broken'"); n != 0 {
		t.Errorf("%d deliveries remain of a removed webhook", n)
	}
}

// An endpoint that answers 410 gets no more requests, and its replies are kept.
func TestAnEndpointThatIsGone(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("Done: "))
	var back sync.Map
	r := env.NewWebhookReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ env.Delivery) {
		if _, yes := back.Load("back"); !yes {
			w.WriteHeader(http.StatusGone)
		}
	})
	e.AddWebhook("shop", r.URL)
	e.StartWorker()
	e.AwaitClosed(e.Send("clerk", "first"))
	e.Await("the webhook is paused", "select paused_at is not null from webhooks")
	e.AwaitClosed(e.Send("clerk", "second"))
	e.AwaitDeliveries("shop", "pending", 2)
	if seen := env.Turnctl[[]hook](e, "webhooks")[0]; seen.PausedReason != "the endpoint answered 410 Gone" ||
		seen.Pending != 2 {
		t.Errorf("turnctl shows %+v", seen)
	}
	if n := len(r.Deliveries()); n != 1 {
		t.Errorf("%d replies were sent to an endpoint that is gone", n)
	}
	back.Store("back", true)
	env.Turnctl[map[string]string](e, "webhooks", "resume", "shop")
	e.AwaitDeliveries("shop", "delivered", 2)
	env.Turnctl[map[string]string](e, "webhooks", "pause", "shop", "they move house")
	e.AwaitClosed(e.Send("clerk", "third"))
	env.Turnctl[map[string]string](e, "webhooks", "resume", "shop")
	e.AwaitDeliveries("shop", "delivered", 3)
}

// Several workers deliver to endpoints that fail and cut connections, and are killed meanwhile. Each endpoint
// gets each reply at least once, always with the same body.
func TestWebhooksOverKilledWorkers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "lane: conversation")
	e.Model.Then(env.Echo("Done: "))
	moody := func(w http.ResponseWriter, _ *http.Request, p env.Delivery) {
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
	receivers := map[string]*env.WebhookReceiver{"one": env.NewWebhookReceiver(t, moody),
		"two": env.NewWebhookReceiver(t, moody)}
	for name, r := range receivers {
		e.AddWebhook(name, r.URL, "concurrency: 2")
	}
	// Retry at once: this test is not about backoffs.
	e.Exec(`create function no_wait() returns trigger language plpgsql as $$ begin
		if new.state = 'pending' and new.claim is null then new.due_at := clock_timestamp(); end if; return new; end $$`)
	e.Exec("create trigger no_wait before update on webhook_deliveries for each row execute function no_wait()")
	const messages = 60
	workers := []*env.Process{e.StartWorker(), e.StartWorker(), e.StartWorker()}
	var ids []int64
	for n := range messages {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', $1, $2)", fmt.Sprint("message ", n),
			fmt.Sprint("c", n%10)))
	}
	for killed, share := range []int{messages / 4, messages} {
		e.Await("deliveries are made", "select count(*) > $1 from webhook_deliveries where state = 'delivered'", share)
		e.Kill(workers[killed])
	}
	e.AwaitClosed(ids...)
	for name, r := range receivers {
		e.AwaitDeliveries(name, "delivered", messages)
		all := r.Deliveries()
		// A killed worker's batch leaves a gap in the ids.
		for _, id := range env.Query[[]int64](e, "select array_agg(id) from replies") {
			if len(all[fmt.Sprintf("reply_%d", id)]) == 0 {
				t.Errorf("reply %d did not come to %s", id, name)
			}
		}
		r.WantSameBodies()
	}
}

// A delivery that failed in the database and was set aside is tried again when its pause ends: no poll and no doorbell
// is needed.
func TestADeliveryThatWasSetAside(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("Done: "))
	shop := env.NewWebhookReceiver(t, nil)
	e.AddWebhook("shop", shop.URL)
	e.Exec("create sequence claims")
	e.Exec(`create function fail_once() returns trigger language plpgsql as $$ begin
		if new.claim is not null and nextval('claims') = 1 then raise deadlock_detected; end if; return new; end $$`)
	e.Exec("create trigger fail_once before update on webhook_deliveries for each row execute function fail_once()")
	e.StartWorker()
	e.AwaitClosed(e.Send("clerk", "first"))
	e.Await("the delivery is set aside", "select exists (select from set_aside where kind = 'delivery')")
	e.AwaitDeliveries("shop", "delivered", 1)
	if n := len(shop.Deliveries()); n != 1 {
		t.Errorf("%d deliveries came", n)
	}
}

var receiverLine = regexp.MustCompile(`(?m)^listening at (http://\S+)$`)

// The example receiver of the documentation accepts a worker's deliveries once, and nothing else.
func TestTheReceiverOfTheDocumentation(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Echo("Done: "))
	e.Vars["WEBHOOK_SECRET"] = env.WebhookSecret
	shop := env.StartProcess(t, "receiver", e.Dir, e.Environ(), env.Binary(t, "webhook-receiver"), "-listen",
		"127.0.0.1:0")
	shop.Await("listening at ")
	url := receiverLine.FindStringSubmatch(shop.Output.String())[1]
	e.AddWebhook("shop", url)
	e.StartWorker()
	e.AwaitClosed(e.Send("clerk", "first"))
	shop.Await("reply_1: succeeded of clerk: \"Done: first\"\n")
	e.Await("it is recorded as delivered", "select state = 'delivered' from webhook_deliveries")
	env.Turnctl[map[string]int](e, "webhooks", "redeliver", "shop", "1")
	e.Await("it was sent again", "select redelivered = 1 and state = 'delivered' from webhook_deliveries")
	e.AwaitClosed(e.Send("clerk", "second"))
	shop.Await("reply_2: ")
	if n := strings.Count(shop.Output.String(), "reply_1: "); n != 1 {
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
	shop.Kill()
}

// The README of the example, as it is printed: only the port, and the folder of the programs, are others.
func TestTheReceiversREADME(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{Name: "ask_person",
		Arguments: `{"question":"Which?"}`}), inferencetest.Text("Done.")))
	e.WriteAgent("demo", "tools: [ask_person]")
	text, err := os.ReadFile(env.Path("examples/webhook-receiver/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s) {3}```(sh|yaml)\n(.*?) {3}```").FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = append(blocks[m[1]], strings.ReplaceAll("\n"+m[2], "\n   ", "\n"))
	}
	if len(blocks["sh"]) != 4 || len(blocks["yaml"]) != 1 {
		t.Fatalf("the README has the blocks %q", blocks)
	}
	programs := strings.NewReplacer("make build\n", "", "bin/", env.BinaryDir(t)+"/",
		"go run ./examples/webhook-receiver", "exec "+env.Binary(t, "webhook-receiver")+" -listen 127.0.0.1:0")
	shell := func(name, block string) *env.Process {
		return env.StartProcess(t, name, e.Dir, e.Environ(), "/bin/sh", "-ec", programs.Replace(block))
	}
	if secret := shell("turnctl", blocks["sh"][0]); secret.Wait() != 0 {
		t.Fatal(secret.Output.Tail())
	}
	shop := shell("receiver", blocks["sh"][1])
	shop.Await("listening at ")
	url := receiverLine.FindStringSubmatch(shop.Output.String())[1]
	e.WriteFile("turnkeeper.yaml", e.ReadFile("turnkeeper.yaml")+strings.Replace(blocks["yaml"][0],
		"http://127.0.0.1:9000", url, 1))
	worker := shell("worker", "exec "+strings.TrimSpace(blocks["sh"][2]))
	worker.Await("worker ready")
	if sent := shell("enqueue", blocks["sh"][3]); sent.Wait() != 0 {
		t.Fatal(sent.Output.Tail())
	}
	shop.Await(`ask_1: demo asks (question ask_person): "Which?"; answer at /asks/1` + "\n")
	if answered := e.Turnctl("asks", "answer", "1", "this one"); answered.Code != 0 {
		t.Fatal(answered.Stderr)
	}
	shop.Await(`reply_1: succeeded of demo: "Done."` + "\n")
	shop.Kill()
}

// wantNoSecrets fails the test if a row of a table contains a secret.
func wantNoSecrets(e *env.Env, secrets ...string) {
	e.T.Helper()
	for table, rows := range e.Rows() {
		for _, secret := range secrets {
			if strings.Contains(rows, secret) {
				e.T.Errorf("%s holds %s", table, secret)
			}
		}
	}
}

// An ask is delivered, signed, to the webhooks that get asks, and repeated with the same id and body. A program answers
// it over HTTP with what the delivery has. An ask that is closed before it is delivered is not delivered.
func TestAsksArePushed(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, `approve: {mark_once: 'ask("marks cost money")'}`)
	e.WriteAgent("desk", "tools: [ask_person]")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"clerk": env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("Marked.")),
		"desk": env.Rounds(inferencetest.Calls(inferencetest.Call{Name: "ask_person",
			Arguments: `{"question":"Which?"}`}), inferencetest.Text("Asked.")),
	}))
	var failed atomic.Bool
	office := env.NewWebhookReceiver(t, func(w http.ResponseWriter, _ *http.Request, p env.Delivery) {
		if strings.HasPrefix(p.ID, "ask_") && failed.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	shop, away := env.NewWebhookReceiver(t, nil), env.NewWebhookReceiver(t, nil)
	e.AddWebhook("office", office.URL, "asks: true", "agents: [clerk]")
	e.AddWebhook("shop", shop.URL)
	e.AddWebhook("away", away.URL, "asks: true", "agents: [desk]")
	turnctl := func(args ...string) {
		t.Helper()
		if r := e.Turnctl(args...); r.Code != 0 {
			t.Fatalf("turnctl %v ended with %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	w := e.StartWorker()
	turnctl("webhooks", "pause", "away", "a holiday")
	marked := e.Enqueue("clerk", "Mark it.")
	e.Await("the first attempt failed",
		"select attempts = 1 and claim is null from webhook_deliveries where ask_id is not null")
	e.Exec("update webhook_deliveries set due_at = clock_timestamp() where ask_id is not null")
	e.AwaitDeliveries("office", "delivered", 1)
	e.Ledger.WantRuns("a", 0)
	office.WantSameBodies()
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			ID                                                  int64
			Kind, Agent, Conversation, Tool, Reason, Path, Hash string
			TurnID                                              int64 `json:"turn_id"`
			Arguments                                           map[string]any
			ExpiresAt                                           time.Time `json:"expires_at"`
		}
	}
	sent := office.Deliveries()["ask_1"]
	if len(sent) != 2 {
		t.Fatalf("the ask came %d times: %+v", len(sent), office.Deliveries())
	}
	if err := json.Unmarshal([]byte(sent[0].Body), &body); err != nil {
		t.Fatal(err)
	}
	d := body.Data
	if body.Type != "ask.opened" || body.Timestamp.IsZero() || d.ID != 1 || d.Kind != "approve" || d.Agent != "clerk" ||
		d.Conversation != "main" || d.Tool != "mark_once" ||
		d.Reason != "marks cost money" || d.Path != "/asks/1" || d.TurnID != 1 || d.Arguments["label"] != "a" ||
		time.Until(d.ExpiresAt) < time.Hour {
		t.Errorf("pushed was %s", sent[0].Body)
	}
	answer, err := http.Post(fmt.Sprintf("%s/v1/asks/%d/answer", w.APIURL(), d.ID), "application/json",
		strings.NewReader(fmt.Sprintf(`{"decision":"approved","hash":%q,"answered_by":"ann"}`, d.Hash)))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the answer is answered %s", answer.Status)
	}
	e.WantReply(e.TurnOf(marked), "Marked.")
	e.Ledger.WantRuns("a", 1)
	e.AwaitDeliveries("shop", "delivered", 1)
	e.AwaitDeliveries("office", "delivered", 2)

	asked := e.Enqueue("desk", "Ask.")
	e.Await("the ask waits for the webhook",
		"select count(*) = 1 from webhook_deliveries where webhook = 'away' and state = 'pending'")
	turnctl("asks", "deny", "2", "--as", "ann")
	e.TurnOf(asked)
	turnctl("webhooks", "resume", "away")
	e.AwaitDeliveries("away", "delivered", 1)
	for id := range away.Deliveries() {
		if strings.HasPrefix(id, "ask_") {
			t.Errorf("%s was delivered after it was closed", id)
		}
	}
	if n := env.Query[int](e, "select count(*) from webhook_deliveries where ask_id = 2"); n != 0 {
		t.Errorf("%d deliveries of the closed ask remain", n)
	}
	if ids := slices.Sorted(maps.Keys(shop.Deliveries())); slices.ContainsFunc(ids, func(id string) bool {
		return strings.HasPrefix(id, "ask_")
	}) {
		t.Errorf("the webhook without asks got %v", ids)
	}
	// Purging a message removes the deliveries of its asks.
	turnctl("purge", "--agent", "clerk")
	if n := env.Query[int](e, "select count(*) from webhook_deliveries where ask_id is not null") + env.Query[int](e,
		"select count(*) from asks where id = 1"); n != 0 {
		t.Errorf("%d rows of the purged ask remain", n)
	}
}
