package core_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// An outage makes the model server fail until it is over.
type outage struct {
	over   atomic.Bool
	failed atomic.Int64 // failed requests
}

func (o *outage) until(fault inferencetest.Reply, then func(inferencetest.Recorded) inferencetest.Reply) func(
	inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		if o.over.Load() {
			return then(r)
		}
		o.failed.Add(1)
		return fault
	}
}

// end ends the outage, and clears backoffs until a model call has succeeded: a probe that began before the end
// fails after it, and delays the next one by minutes. A message must wait for the model.
func (o *outage) end(e *env.Env) {
	e.T.Helper()
	o.over.Store(true)
	e.Poll("no model is down", func() bool {
		probeNow(e)
		return !env.Query[bool](e, "select exists (select from model_health where down_since is not null)")
	})
}

// probeNow clears every backoff of models and lanes.
func probeNow(e *env.Env) {
	e.T.Helper()
	e.Exec("update model_health set until = clock_timestamp() where down_since is not null")
	e.Exec("update leases set not_before = clock_timestamp() where not_before is not null")
	e.Exec("notify turnkeeper_inbox")
}

// awaitFailures waits until n turns have failed. It clears every backoff, so retries start at once.
func awaitFailures(e *env.Env, n int) {
	e.T.Helper()
	e.Poll(fmt.Sprintf("%d turns have failed", n), func() bool {
		probeNow(e)
		return env.Query[int](e, "select count(*) from turns where state = 'failed'") >= n
	})
}

var (
	serviceAway = inferencetest.Fault(http.StatusServiceUnavailable, "unavailable", "the service is away",
		"Retry-After-Ms", "1")
	wrongKey = inferencetest.Fault(http.StatusUnauthorized, "invalid_api_key", "who are you?")
)

func fine(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("Fine.") }

// sendTo sends a message to each of n agents, so no message waits for another.
func sendTo(e *env.Env, n int, settings ...string) (ids []int64) {
	e.T.Helper()
	for i := range n {
		e.WriteAgent(fmt.Sprintf("clerk%d", i), settings...)
	}
	e.StartWorker()
	for i := range n {
		ids = append(ids, e.Send(fmt.Sprintf("clerk%d", i), "Hello"))
	}
	return ids
}

func wantAllSucceeded(e *env.Env, ids []int64) {
	e.T.Helper()
	e.AwaitClosed(ids...)
	if got := env.Query[int](e, "select count(*) from replies where outcome = 'succeeded' and message_id = any($1)",
		ids); got != len(ids) {
		e.T.Errorf("%d of %d messages have a reply that succeeded", got, len(ids))
	}
	if got := env.Query[int](e, "select count(*) from replies"); got != len(ids) {
		e.T.Errorf("%d replies were written for %d messages", got, len(ids))
	}
}

// No message fails while the service fails, however many turns fail: because it is overloaded, the key is
// wrong, the credit is used up or the model is unknown.
func TestAServiceThatIsAwayFailsNoMessage(t *testing.T) {
	t.Parallel()
	faults := map[string]inferencetest.Reply{
		"503": serviceAway,
		"401": wrongKey,
		"402": inferencetest.Fault(http.StatusPaymentRequired, "insufficient_credits", "pay first"),
		"403": inferencetest.Fault(http.StatusForbidden, "forbidden", "not for you"),
		"404": inferencetest.Fault(http.StatusNotFound, "model_not_found", "no such model"),
	}
	for _, name := range testrun.Sample(slices.Sorted(maps.Keys(faults)), 3) {
		fault := faults[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			hook := env.NewWebhookReceiver(t, nil)
			e.AddWebhook("every", hook.URL)
			var away outage
			e.Model.Then(away.until(fault, fine))
			ids := sendTo(e, 10)
			awaitFailures(e, 3*len(ids)+1) // more than the attempts of all messages
			if n := env.Query[int](e, "select count(*) from messages where state in ('waiting', 'running')"); n != len(
				ids) {
				t.Errorf("%d of %d messages are left in the inbox", n, len(ids))
			}
			away.end(e)
			wantAllSucceeded(e, ids)
			e.AwaitDeliveries("every", "delivered", len(ids))
			for _, pushes := range hook.Deliveries() {
				if !strings.Contains(pushes[0].Body, `"succeeded"`) {
					t.Errorf("a webhook got %s", pushes[0].Body)
				}
			}
			if n := env.Query[int](e, "select count(*) from model_health where down_since is not null"); n != 0 {
				t.Errorf("%d models still count as down", n)
			}
		})
	}
}

// The first success ends every backoff, whenever the other messages are due.
func TestTheFirstSuccessEndsBackoffs(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var away outage
	e.Model.Then(away.until(serviceAway, fine))
	ids := sendTo(e, 10)
	e.Await("the model is down", "select exists (select from model_health where down_since is not null)")
	awaitFailures(e, 12)
	away.over.Store(true)
	// all lanes wait for a minute; the model itself is due
	e.Exec("update leases set not_before = clock_timestamp() + interval '1 minute' where not_before is not null")
	e.Poll("no model is down", func() bool { // a probe that began before the end of the outage delays the next one
		e.Exec(
			"update leases set not_before = clock_timestamp() where lane = (select lane from messages order by id limit 1)")
		e.Exec("update model_health set until = clock_timestamp() where down_since is not null")
		e.Exec("notify turnkeeper_inbox")
		return !env.Query[bool](e, "select exists (select from model_health where down_since is not null)")
	})
	wantAllSucceeded(e, ids)
	if n := env.Query[int](e, "select count(*) from leases where not_before > clock_timestamp()"); n != 0 {
		t.Errorf("%d lanes still wait", n)
	}
}

// While all models of the chain are down, one message at a time probes them; the others make no requests.
func TestOnlyProbesAskAModelThatIsDown(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var away outage
	e.Model.Then(away.until(serviceAway, fine))
	e.WriteAgent("clerk", "lane: conversation")
	e.Vars["TURNKEEPER_WORKER_SLOTS"] = "5"
	e.StartWorker()
	e.StartWorker()
	var ids []int64
	send := func(i int) {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Hello', $1)", fmt.Sprintf("c%d", i)))
	}
	send(0)
	e.Await("the model is down", "select exists (select from model_health where down_since is not null)")
	const hour = "update model_health set until = clock_timestamp() + interval '1 hour'"
	e.Exec(hour)
	e.Await("nothing runs", "select not exists (select from turns where state in ('running', 'queued'))")
	asked := away.failed.Load()
	for i := 1; i < 50; i++ {
		send(i)
	}
	const probes = 5
	for i := range probes {
		before := env.Query[int](e, "select failures from model_health")
		probeNow(e)
		e.Await("a probe has failed", "select failures > $1 from model_health", before)
		if i == probes-1 {
			e.Exec(hour)
		}
	}
	e.Await("nothing runs", "select not exists (select from turns where state in ('running', 'queued'))")
	// Each probe makes one request. Probes may start on their own between two queries of this test; each of
	// them is a recorded failure.
	failures := env.Query[int](e, "select failures from model_health")
	if got := int(away.failed.Load() - asked); got > failures {
		t.Errorf("%d requests were made by %d probes, while %d messages waited", got, failures, len(ids))
	}
	if at := e.Model.MaxInFlight(); at > 1 {
		t.Errorf("%d requests were under way at once", at)
	}
	away.end(e)
	wantAllSucceeded(e, ids)
}

// A probe ends when its worker dies.
func TestAProbeWhoseWorkerDies(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var hang, away atomic.Bool
	away.Store(true)
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply {
		switch {
		case hang.Load():
			return inferencetest.Hang()
		case away.Load():
			return serviceAway
		}
		return inferencetest.Text("Fine.")
	})
	e.WriteAgent("clerk", "lane: conversation")
	w := e.StartWorker()
	var ids []int64
	for i := range 3 {
		ids = append(ids, env.Query[int64](e, "select turnkeeper.enqueue('clerk', 'Hello', $1)", fmt.Sprintf("c%d", i)))
	}
	e.Await("the model is down", "select exists (select from model_health where down_since is not null)")
	e.Await("nothing runs", "select not exists (select from turns where state in ('running', 'queued'))")
	hang.Store(true)
	asked := len(e.Model.Requests())
	e.Poll("a probe is under way", func() bool {
		probeNow(e)
		return len(e.Model.Requests()) > asked
	})
	e.Kill(w)
	hang.Store(false)
	away.Store(false)
	e.StartWorker()
	wantAllSucceeded(e, ids)
}

// The failure of a model does not affect agents with another model or a working fallback.
func TestOneModelsFaultIsNotAnothers(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("down", "model: test/broken")
	e.WriteAgent("up", "model: test/sound")
	e.WriteAgent("both", "model: test/broken", "fallback_models: [test/sound]")
	var broken atomic.Int64
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Model == "broken" {
			broken.Add(1)
			return wrongKey
		}
		return inferencetest.Text("Fine.")
	})
	e.StartWorker()
	stuck := e.Send("down", "Hello")
	e.Await("the model is down",
		"select exists (select from model_health where model = 'test/broken' and down_since is not null)")
	e.Await("nothing runs", "select not exists (select from turns where state in ('running', 'queued'))")
	e.Exec("update model_health set until = clock_timestamp() + interval '1 hour'")
	asked := broken.Load()
	ids := []int64{e.Send("up", "Hello"), e.Send("both", "Hello")}
	e.AwaitClosed(ids...)
	for _, id := range ids {
		e.WantReply(e.TurnOf(id), "Fine.")
	}
	if broken.Load() != asked {
		t.Error("a model that is down was asked before the one that is up")
	}
	if state := env.Query[string](e, "select state from messages where id = $1", stuck); state != "waiting" {
		t.Errorf("the message is %s", state)
	}

	type model struct {
		Model     string     `json:"model"`
		State     string     `json:"state"`
		DownSince *time.Time `json:"down_since"`
		Until     *time.Time `json:"next_try_at"`
		Class     string     `json:"error_class"`
		Error     string     `json:"error"`
		Agents    []string   `json:"agents"`
	}
	models := map[string]model{}
	for _, m := range env.Turnctl[[]model](e, "models") {
		models[m.Model] = m
	}
	if m := models["test/broken"]; m.State != "down" || m.DownSince == nil || m.Until == nil || m.Class != "auth" ||
		!strings.Contains(m.Error, "who are you?") || len(m.Agents) != 2 {
		t.Errorf("the model that is down is %+v", m)
	}
	if m := models["test/sound"]; m.State != "up" || m.DownSince != nil {
		t.Errorf("the model that is up is %+v", m)
	}
	if r := e.Turnctl("doctor"); !strings.Contains(r.Stdout, "model test/broken") ||
		!strings.Contains(r.Stdout, "auth") {
		t.Errorf("doctor prints\n%s", r.Stdout)
	}
	inbox := env.Turnctl[[]struct {
		ID       int64    `json:"id"`
		WaitsFor []string `json:"waits_for_models"`
	}](e, "inbox", "--state", "waiting")
	if len(inbox) != 1 || len(inbox[0].WaitsFor) != 1 || inbox[0].WaitsFor[0] != "test/broken" {
		t.Errorf("the inbox is %+v", inbox)
	}
}

// An agent with a changed model does not wait for the old one.
func TestANewChainIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: test/broken")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if r.Chat().Model == "broken" {
			return wrongKey
		}
		return inferencetest.Text("Fine.")
	})
	w := e.StartWorker()
	id := e.Send("clerk", "Hello")
	e.Await("the model is down",
		"select exists (select from model_health where model = 'test/broken' and down_since is not null)")
	e.Exec("update model_health set until = clock_timestamp() + interval '1 hour'")
	e.WriteAgent("clerk", "model: test/sound")
	w.Signal(syscall.SIGHUP)
	wantAllSucceeded(e, []int64{id})
}

// A gate forwards to the model server and can refuse connections.
type gate struct {
	mu     sync.Mutex
	addr   string
	target *url.URL
	server *http.Server
}

func newGate(t *testing.T, target string) *gate {
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: "127.0.0.1:0", target: u}
	g.open(t)
	t.Cleanup(g.close)
	return g
}

func (g *gate) open(t *testing.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		t.Errorf("the gate cannot listen again: %v", err)
		return
	}
	g.addr = l.Addr().String()
	base := *g.target
	base.Path = ""
	g.server = &http.Server{Handler: httputil.NewSingleHostReverseProxy(&base), ReadHeaderTimeout: env.Patience}
	go func() { _ = g.server.Serve(l) }()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.server.Close()
}

// After an effect, the turn keeps retrying, far beyond its four attempts.
func TestAfterEffectsATurnGoesOnTrying(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	g := newGate(t, e.ModelURL)
	e.WriteFile("turnkeeper.yaml", strings.Replace(e.ReadFile("turnkeeper.yaml"), g.target.Host, g.addr, 1))
	e.WriteAgent("clerk", env.MarkerTools)
	e.Ledger.Hold("a")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("All done.")))
	w := e.StartWorker()
	id := e.Send("clerk", "Make a mark.")
	e.Ledger.Await("a", 1)
	g.close()
	e.Ledger.Release()
	for attempt := 1; attempt <= 8; attempt++ {
		w.Await(fmt.Sprintf(`"attempt": %d,`, attempt))
	}
	g.open(t)
	turn := e.TurnOf(id)
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "All done.")
	e.Ledger.WantRuns("a", 1)
}

// After reads only, the turn starts from the beginning and reads again.
func TestReadsRunAgainAfterAFaultOfTheService(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	var away outage
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), inferencetest.By(away.until(serviceAway, fine))))
	e.StartWorker()
	id := e.Send("clerk", "Look.")
	awaitFailures(e, 4)
	away.end(e)
	wantAllSucceeded(e, []int64{id})
	if n := len(e.Ledger.Runs("a")); n < 2 {
		t.Errorf("the read ran %d times", n)
	}
}

// If the provider refuses the message itself, the message fails at once, with a plain reply.
func TestARefusedMessageFailsAtOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]inferencetest.Reply{
		"400": inferencetest.Fault(http.StatusBadRequest, "invalid_request_error", "no such parameter"),
		"422": inferencetest.Fault(http.StatusUnprocessableEntity, "invalid_request_error", "no such shape"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk")
			e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return fault })
			e.StartWorker()
			turn := e.TurnOf(e.Send("clerk", "Hello"))
			e.WantEnd(turn, "failed", "inference_error", 0)
			if turn.Message.Attempts != 1 || turn.Reply == nil || turn.Reply.Outcome != "failed" ||
				strings.Contains(turn.Reply.Body, "no such") {
				t.Errorf("the message is %+v, its reply %+v", turn.Message, turn.Reply)
			}
			e.WantRequests(1)
			if n := env.Query[int](e, "select count(*) from model_health where down_since is not null"); n != 0 {
				t.Error("a fault of the message counts as one of the model")
			}
		})
	}
}

// Unusable answers count as attempts: there are three.
func TestUnusableAnswersCount(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Text("") })
	e.StartWorker()
	id := e.Send("clerk", "Hello")
	awaitFailures(e, 3)
	turn := e.TurnOf(id)
	e.WantEnd(turn, "failed", "inference_error", 0)
	if turn.Message.Attempts != 3 || turn.ErrorClass != "bad_output" {
		t.Errorf("the turn is %+v", turn)
	}
}

// A model that is always too slow gets three requests.
func TestASlowModelIsGivenUp(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "max_duration: 2s")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return inferencetest.Hang() })
	e.StartWorker()
	id := e.Send("clerk", "Hello")
	awaitFailures(e, 3)
	turn := e.TurnOf(id)
	e.WantEnd(turn, "failed", "max_duration", 0)
	if turn.Message.Attempts != 3 || turn.Reply == nil || strings.HasPrefix(turn.Reply.Body, "Tool results") {
		t.Errorf("the message is %+v, its reply %+v", turn.Message, turn.Reply)
	}
}

// give_up_after ends the wait with a plain reply, also for messages that never had a turn.
func TestGiveUpAfter(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("hasty", "give_up_after: 1h")
	e.WriteAgent("patient")
	e.Model.Then(func(inferencetest.Recorded) inferencetest.Reply { return wrongKey })
	e.StartWorker()
	first, other := e.Send("hasty", "Hello"), e.Send("patient", "Hello")
	e.Await("both failed", "select count(distinct message_id) >= 1 from turns where state = 'failed'")
	e.Exec("update model_health set until = clock_timestamp() + interval '1 hour'")
	second := e.Send("hasty", "Hello again")
	// One message failed an hour ago; the other has had no turn, and its whole chain is down for an hour.
	e.Exec(
		"update messages set accepted_at = accepted_at - interval '1 hour', due_at = due_at - interval '1 hour', failing_since = failing_since - interval '1 hour'")
	e.Exec("update model_health set down_since = down_since - interval '1 hour'")
	e.Exec("update leases set not_before = null where not_before is not null")
	e.Exec("notify turnkeeper_inbox")
	e.AwaitClosed(first, second)
	for _, id := range []int64{first, second} {
		turn := e.TurnOf(id)
		e.WantEnd(turn, "failed", "inference_error", 0)
		if turn.ErrorClass != "auth" || turn.Reply == nil || strings.Contains(turn.Reply.Body, "who are you") {
			t.Errorf("message %d ended with class %s and reply %+v", id, turn.ErrorClass, turn.Reply)
		}
	}
	// The end of its pause may have brought it another turn.
	e.Await("the message of the patient agent waits", "select state = 'waiting' from messages where id = $1", other)
}

// One command or request retries all failed messages.
func TestRetryOfAllThatFailed(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("one", "give_up_after: 0s")
	e.WriteAgent("two", "give_up_after: 0s")
	e.WriteAgent("three")
	var away outage
	e.Model.Then(away.until(wrongKey, fine))
	w := e.StartWorker()
	ids := []int64{e.Send("one", "a"), e.Send("one", "b"), e.Send("two", "c")}
	e.AwaitClosed(ids...)
	last := e.Send("three", "d")
	away.end(e)
	e.AwaitClosed(last) // the model is up, so the others would not wait for it

	type retried struct {
		Retried []struct {
			MessageID int64 `json:"message_id"`
		} `json:"retried"`
	}
	for _, nothing := range [][]string{
		{"retry", "--failed", "--error-class", "overloaded"}, {"retry", "--failed", "--agent", "one",
			"--error-class", "quota"},
	} {
		if r := env.Turnctl[retried](e, nothing...); len(r.Retried) != 0 {
			t.Errorf("%v retried %+v", nothing, r)
		}
	}
	if r := env.Turnctl[retried](e, "retry", "--failed", "--since", "1h", "--agent", "two", "--error-class",
		"auth"); len(r.Retried) != 1 {
		t.Errorf("one message of the agent was to be retried: %+v", r)
	}
	res, err := http.Post(w.APIURL()+"/v1/messages/retry", "application/json",
		strings.NewReader(`{"state":"failed","error_class":"auth"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var r retried
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil || res.StatusCode != http.StatusOK ||
		len(r.Retried) != 2 {
		t.Errorf("the request ended with %s, %v: %+v", res.Status, err, r)
	}
	if r := env.Turnctl[retried](e, "retry", "--failed"); len(r.Retried) != 0 {
		t.Errorf("a second retry took %+v", r)
	}
	e.Await("all are answered", "select count(*) = 4 from replies where outcome = 'succeeded'")
	if r := e.Turnctl("retry", "--since", "1h"); r.Code == 0 {
		t.Error("--since without --failed was taken")
	}
}

// A sender that waits for a reply sees what the message waits for.
func TestAWaitingSenderSeesTheOutage(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	var away outage
	e.Model.Then(away.until(wrongKey, fine))
	e.StartWorker()
	e.Send("clerk", "Hello")
	e.Await("the model is down", "select exists (select from model_health where down_since is not null)")
	p := env.StartProcess(t, "enqueue", e.Dir, e.Environ(), env.Binary(t, "enqueue"), "--agent", "clerk",
		"--wait", "Me too")
	p.Await("the message waits: model test/scripted has been down since")
	away.end(e)
	if code := p.Wait(); code != 0 {
		t.Errorf("enqueue ended with %d", code)
	}
}

// A message whose requests always fail does not keep others from its model, whatever the fault: their requests show
// that the model answers, and afterwards the message fails alone.
func TestOneMessageTakesNoModelDown(t *testing.T) {
	t.Parallel()
	faults := map[string]inferencetest.Reply{
		"500": inferencetest.Fault(http.StatusInternalServerError, "server_error", "no"), "401": wrongKey,
		"403":   inferencetest.Fault(http.StatusForbidden, "forbidden", "not for you"),
		"404":   inferencetest.Fault(http.StatusNotFound, "nothing", "no such page"),
		"reset": inferencetest.Reset(), "cut": inferencetest.ResetAfter(
			inferencetest.OpenSSE(`{"choices":[{"index":0,"delta":{"content":"hel"}}]}`)),
		"429": inferencetest.Fault(http.StatusTooManyRequests, "slow_down", "slow", "Retry-After", "1"),
		"503": serviceAway,
	}
	for _, name := range testrun.Sample(slices.Sorted(maps.Keys(faults)), 3) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("sick")
			e.WriteAgent("well")
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				if env.NewestMessage(r) == "poison" {
					return faults[name]
				}
				return inferencetest.Text("Fine.")
			})
			e.StartWorker()
			e.StartWorker()
			bad := e.Send("sick", "poison")
			e.Await("it has failed", "select exists (select from turns where state = 'failed')")
			began := time.Now()
			var ids []int64
			for range 3 {
				ids = append(ids, e.Send("well", "Hello"))
			}
			wantAllSucceeded(e, ids)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the healthy agent was answered after %s", took)
			}
			if state := env.Query[string](e, "select state from messages where id = $1", bad); state == "failed" {
				t.Error("the message has failed for good")
			}
		})
	}
}

// A message alone in its lane fails as its own fault after three pairs over ten minutes, told in plain words: the
// worker's own requests show that the model answers.
func TestAPoisonMessageEnds(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("sick")
	var probes atomic.Int64
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Reply with ok." {
			probes.Add(1)
			return inferencetest.Text("ok")
		}
		return inferencetest.Fault(http.StatusInternalServerError, "server_error", "no")
	})
	e.StartWorker()
	bad := e.Send("sick", "poison")
	e.Poll("it has three pairs", func() bool {
		probeNow(e)
		return env.Query[bool](e, "select exists (select from suspects where pairs >= 3 and requests >= 20)")
	})
	if state := env.Query[string](e, "select state from messages where id = $1", bad); state == "failed" {
		t.Fatal("it has failed before ten minutes were over")
	}
	e.Exec("update suspects set first_pair = first_pair - interval '10 minutes'")
	e.Poll("it is closed", func() bool {
		probeNow(e)
		return env.Query[bool](e, "select closed_at is not null from messages where id = $1", bad)
	})
	turn := e.TurnOf(bad)
	if turn.State != "failed" || turn.ErrorClass != "message" || turn.Reply == nil || !strings.Contains(turn.Reply.Body,
		"answers other messages") {
		t.Errorf("it ended %s with class %s and reply %+v", turn.State, turn.ErrorClass, turn.Reply)
	}
	if probes.Load() < 3 {
		t.Errorf("the worker made %d requests of its own", probes.Load())
	}
	if n := env.Query[int](e, "select count(*) from suspects"); n != 0 {
		t.Errorf("%d rows are left of the message", n)
	}
}

// The time for which messages waited in a paused scheduler is no wait for a service.
func TestGiveUpCountsFromTheFirstFailure(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	var away outage
	e.Model.Then(away.until(serviceAway, fine))
	for i := range 20 {
		e.WriteAgent(fmt.Sprintf("clerk%d", i), "give_up_after: 30s")
	}
	e.StartWorker()
	e.Turnctl("scheduler", "pause", "--reason", "maintenance")
	var ids []int64
	for i := range 20 {
		ids = append(ids, e.Send(fmt.Sprintf("clerk%d", i), "Hello"))
	}
	e.Exec("update messages set accepted_at = accepted_at - interval '1 hour', due_at = due_at - interval '1 hour'")
	e.Turnctl("scheduler", "resume")
	e.Await("the model is down", "select exists (select from model_health where down_since is not null)")
	awaitFailures(e, 5)
	away.end(e)
	wantAllSucceeded(e, ids)
}

// A turn that a person has answered waits for its model with its journal, and is said to: nobody is asked twice.
func TestAnOutageAfterAnAnswer(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "approve: {mark_none: always}")
	var away outage
	away.over.Store(true)
	e.Model.Then(away.until(serviceAway, env.Rounds(env.MarkerReply("mark_none", "a"), inferencetest.Text("Done."))))
	w := e.StartWorker()
	id := e.Enqueue("clerk", "Look.")
	a := awaitAsk(e)
	away.over.Store(false)
	e.Exec(answerSQL, a.ID, "approved")
	e.Await("the turn waits for the model",
		"select exists (select from turns where state = 'waiting' and waits_for is not null)")
	e.Exec("update model_health set until = clock_timestamp() + interval '1 hour'")
	e.Exec("update turns set due_at = clock_timestamp() + interval '1 hour' where waits_for is not null")
	if n := env.Query[int](e, "select count(*) from leases where grant_id is not null"); n != 0 {
		t.Errorf("%d leases are held", n)
	}
	if r := e.Turnctl("explain", "--message", fmt.Sprint(id)); !strings.Contains(r.Stdout, "has been down since") {
		t.Errorf("explain prints\n%s", r.Stdout)
	}
	e.Kill(w)
	away.over.Store(true)
	e.StartWorker()
	e.Exec("update turns set due_at = clock_timestamp() where waits_for is not null")
	e.Poll("it is answered", func() bool {
		probeNow(e)
		return env.Query[bool](e, "select closed_at is not null from messages where id = $1", id)
	})
	wantAllSucceeded(e, []int64{id})
	if turns, asked := env.Query[int](e, "select count(*) from turns"),
		env.Query[int](e, "select count(*) from asks"); turns != 1 || asked != 1 {
		t.Errorf("%d turns asked %d times", turns, asked)
	}
}
