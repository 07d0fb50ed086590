package operate_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// hook registers a webhook for the replies of some agents, or of all if none is given.
func (h *env) hook(name string, agents ...string) {
	h.T.Helper()
	if err := h.RegisterWebhook(h.T.Context(), outbox.Webhook{Name: name, Origin: "https://" + name + ".example",
		Agents: agents}); err != nil {
		h.T.Fatal(err)
	}
}

// reply runs a turn that ends with a reply.
func (h *env) reply(body string) {
	h.T.Helper()
	h.Turn(body).Finish(h.T, "re: "+body)
}

const hold = time.Minute

func (h *env) claim(webhook string, worker turnkeeper.WorkerID, slots, limit int) []outbox.DeliveryClaim {
	h.T.Helper()
	claims, err := h.ClaimDeliveries(h.T.Context(), webhook, worker, slots, limit, hold)
	if err != nil {
		h.T.Fatal(err)
	}
	return claims
}

func (h *env) end(c outbox.DeliveryClaim, end outbox.DeliveryEnd) bool {
	h.T.Helper()
	held, err := h.EndDelivery(h.T.Context(), c, end)
	if err != nil {
		h.T.Fatal(err)
	}
	return held
}

func ids(claims []outbox.DeliveryClaim) (ids []turnkeeper.ReplyID) {
	for _, c := range claims {
		ids = append(ids, c.Reply.ID)
	}
	slices.Sort(ids)
	return ids
}

// The transaction that writes a reply also creates its deliveries, whichever code writes it. A reply
// that is rolled back, or that is older than the webhook, has no delivery.
func TestDeliveriesComeWithTheReply(t *testing.T) {
	h := newEnv(t)
	h.reply("before")
	h.hook("all")
	h.hook("desk", "desk")
	h.reply("after")
	h.Submit("clerk", "", "never runs")
	h.Exec("select turnkeeper.cancel_message((select max(id) from turnkeeper.messages), 'no')")
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := h.Submit("clerk", "", "is undone")
	if _, err := tx.Exec(t.Context(), "select turnkeeper.cancel_message($1, 'no')", int64(waiting)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims := h.claim("all", "w", 10, 10)
	if len(claims) != 2 || claims[0].Reply.Body != "re: after" || claims[1].Reply.Outcome != turnkeeper.TurnCancelled ||
		claims[0].Attempt != 1 {
		t.Errorf("due are %+v", claims)
	}
	if claims := h.claim("desk", "w", 10, 10); len(claims) != 0 {
		t.Errorf("for the agent desk %+v are due", claims)
	}
}

// No other worker gets a claimed delivery until the claim expires or its worker is gone. After that,
// the former holder cannot end the delivery.
func TestClaims(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	for n := range 5 {
		h.reply(fmt.Sprint(n))
	}
	first := h.claim("shop", "worker-1", 3, 2)
	second := h.claim("shop", "worker-2", 3, 2) // one slot of three is left
	if len(first) != 2 || len(second) != 1 || slices.Contains(ids(first), second[0].Reply.ID) {
		t.Fatalf("claimed are %v and %v", ids(first), ids(second))
	}
	if third := h.claim("shop", "worker-2", 3, 2); len(third) != 0 {
		t.Errorf("beyond the slots %v are claimed", ids(third))
	}
	if !h.end(second[0], outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 204}) {
		t.Error("a claim that stands was not ended")
	}
	if h.end(second[0], outbox.DeliveryEnd{State: outbox.DeliveryPending}) {
		t.Error("a delivery was ended twice")
	}
	h.Exec(
		"update turnkeeper.webhook_deliveries set due_at = clock_timestamp() - interval '1 hour' where reply_id = $1",
		int64(first[0].Reply.ID))
	again := h.claim("shop", "worker-2", 3, 1)
	if !slices.Equal(ids(again), ids(first[:1])) || again[0].Attempt != 2 ||
		h.end(first[0], outbox.DeliveryEnd{State: outbox.DeliveryDead}) {
		t.Errorf("after its end the claim of %v is %v", ids(first[:1]), ids(again))
	}

	h.HeartBeat("worker-1", 1, 0)
	h.Exec("update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp() where worker_id = 'worker-1'")
	if taken := h.claim("shop", "worker-2", 10, 10); !slices.Contains(ids(taken), first[1].Reply.ID) ||
		len(taken) != 3 {
		t.Errorf("of a worker that is gone %v are taken, and not %v", ids(taken), ids(first[1:]))
	}
	if h.end(first[1], outbox.DeliveryEnd{State: outbox.DeliveryDelivered}) {
		t.Error("a worker that is gone ended a delivery")
	}
}

// NextDelivery returns the time until the next delivery can be claimed: it is due, a claim expires, the retry of a
// delivery that was set aside is due, or the endpoint's pause ends, whichever is first.
func TestNextDelivery(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	h.hook("desk")
	want := func(what string, least, most time.Duration) {
		t.Helper()
		if wait, ok, err := h.NextDelivery(t.Context(), "shop"); err != nil || !ok || wait < least || wait > most {
			t.Errorf("%s: in %s, %t, error %v", what, wait, ok, err)
		}
	}
	none := func(what string) {
		t.Helper()
		if wait, ok, err := h.NextDelivery(t.Context(), "shop"); err != nil || ok {
			t.Errorf("%s: in %s, %t, error %v", what, wait, ok, err)
		}
	}
	none("no delivery")
	h.reply("one")
	want("one is due", 0, 0)
	h.Exec(`select turnkeeper.put_aside('delivery', id::text, '40P01', 'deadlock detected')
		from turnkeeper.webhook_deliveries where webhook = 'shop'`)
	want("it is set aside", time.Second, 5*time.Second)
	h.reply("two")
	want("another is due", 0, 0)
	c := h.claim("shop", "worker-1", 3, 3)
	want("the other is claimed", time.Second, 5*time.Second)
	h.Exec("update turnkeeper.set_aside set next_try = clock_timestamp() + interval '1 hour'")
	want("the claim expires first", hold-20*time.Second, hold)
	h.end(c[0], outbox.DeliveryEnd{State: outbox.DeliveryDelivered})
	want("only the one set aside is left", 50*time.Minute, time.Hour)
	h.Exec(`update turnkeeper.webhook_deliveries set due_at = clock_timestamp() + interval '2 hours'
		where webhook = 'shop' and state = 'pending'`)
	want("it is due after that", 110*time.Minute, 2*time.Hour)
	h.Exec("update turnkeeper.webhooks set not_before = clock_timestamp() + interval '3 hours'")
	want("the endpoint rests", 170*time.Minute, 3*time.Hour)
	h.Exec("update turnkeeper.webhook_deliveries set state = 'dead', due_at = null where webhook = 'shop'")
	none("none is pending")
}

// Many workers claim deliveries concurrently while turns end. Each delivery is claimed once, and
// never more at a time than there are slots.
func TestClaimsBesideEachOther(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	const replies, slots = 40, 3
	var mu sync.Mutex
	seen := map[turnkeeper.ReplyID]int{}
	flying, most := 0, 0
	count := func(n int, claims ...outbox.DeliveryClaim) int {
		mu.Lock()
		defer mu.Unlock()
		flying += n
		most = max(most, flying)
		for _, c := range claims {
			seen[c.Reply.ID]++
		}
		return len(seen)
	}
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for count(0) < replies {
				claims, err := h.ClaimDeliveries(t.Context(), "shop", turnkeeper.WorkerID(fmt.Sprint(n)),
					slots, 2, hold)
				if err != nil {
					t.Error(err)
					return
				}
				count(len(claims), claims...)
				for _, c := range claims {
					count(-1)
					if _, err := h.EndDelivery(t.Context(), c,
						outbox.DeliveryEnd{State: outbox.DeliveryDelivered}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for n := range replies {
		h.reply(fmt.Sprint(n))
	}
	all.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("reply %d was claimed %d times", id, n)
		}
	}
	if most > slots {
		t.Errorf("%d were claimed at once", most)
	}
}

// TestEndsOfAttempts checks the states of a delivery and of its endpoint after each kind of attempt.
func TestEndsOfAttempts(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	h.reply("hello")
	view := func() (operate.WebhookView, outbox.Delivery) {
		t.Helper()
		w, err := h.Webhook(t.Context(), "shop")
		if err != nil {
			t.Fatal(err)
		}
		all, err := h.Deliveries(t.Context(), "shop", operate.Page{})
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return w, all[0]
	}
	claim := func() outbox.DeliveryClaim {
		t.Helper()
		h.Exec("update turnkeeper.webhook_deliveries set due_at = clock_timestamp() where state = 'pending'")
		claims := h.claim("shop", "w", 1, 1)
		if len(claims) != 1 {
			t.Fatal("nothing is due")
		}
		return claims[0]
	}
	wait := func() time.Duration {
		t.Helper()
		wait, ok, err := h.NextDelivery(t.Context(), "shop")
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return wait
	}
	if w := wait(); w != 0 {
		t.Errorf("a new delivery waits %s", w)
	}
	c := claim()
	if w, d := view(); w.Sending != 1 || w.Pending != 1 || !d.Sending || d.Attempts != 1 {
		t.Errorf("while it is sent: %+v, %+v", w, d)
	}
	h.end(c, outbox.DeliveryEnd{State: outbox.DeliveryPending, Uncounted: true})
	if w, d := view(); d.Attempts != 0 || d.Error != "" || !w.FailedAt.IsZero() || !w.SucceededAt.IsZero() {
		t.Errorf("broken off: %+v, %+v", w, d)
	}
	h.end(claim(), outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: 500, Error: "no", Wait: time.Hour,
		Duration: time.Second})
	if w, d := view(); d.Attempts != 1 || d.Status != 500 || d.Error != "no" || w.LastError != "no" ||
		w.FailedAt.IsZero() || d.Duration != time.Second {
		t.Errorf("failed: %+v, %+v", w, d)
	}
	if w := wait(); w < 59*time.Minute || w > time.Hour {
		t.Errorf("it waits %s", w)
	}
	h.end(claim(), outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: 429, Error: "slow", Rest: time.Hour})
	h.Exec("update turnkeeper.webhook_deliveries set due_at = clock_timestamp()")
	if claims := h.claim("shop", "w", 1, 1); len(claims) != 0 || wait() < 59*time.Minute {
		t.Errorf("an endpoint that rests gets %v", claims)
	}
	h.Exec("update turnkeeper.webhooks set not_before = clock_timestamp()")
	h.end(claim(), outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: 410, Error: "gone", Gone: true})
	if w, _ := view(); w.PausedReason == "" || len(h.claim("shop", "w", 1, 1)) != 0 {
		t.Errorf("gone: %+v", w)
	}
	if err := h.ResumeWebhook(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if _, d := view(); d.Attempts != 0 || !d.FirstAt.IsZero() {
		t.Errorf("a delivery that begins again has made attempts: %+v", d)
	}
	h.end(claim(), outbox.DeliveryEnd{State: outbox.DeliveryDead, Error: "never"})
	if w, d := view(); w.Dead != 1 || w.Pending != 0 || d.Attempts != 1 || d.State != outbox.DeliveryDead {
		t.Errorf("given up: %+v, %+v", w, d)
	}
	if n, err := h.RedeliverDead(t.Context(), "shop"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, d := view(); d.Attempts != 0 || !d.FirstAt.IsZero() { // its age counts anew
		t.Errorf("a dead delivery that begins again: %+v", d)
	}
	c = claim()
	if done, err := h.Redeliver(t.Context(), "shop", c.Reply.ID); done || err != nil {
		t.Errorf("while it is sent: %v, %v", done, err)
	}
	h.end(c, outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200})
	if w, d := view(); w.Dead+w.Pending != 0 || d.State != outbox.DeliveryDelivered || d.Redelivered != 1 ||
		w.SucceededAt.IsZero() {
		t.Errorf("delivered: %+v, %+v", w, d)
	}
	if _, ok, err := h.NextDelivery(t.Context(), "shop"); ok || err != nil {
		t.Error(ok, err)
	}
}

// After a redelivery was requested, an older attempt that took too long cannot end the delivery.
func TestRedeliveryIsNotEndedByAnOlderAttempt(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	h.reply("hello")
	c := h.claim("shop", "w", 1, 1)[0]
	h.Exec("update turnkeeper.webhook_deliveries set due_at = clock_timestamp() - interval '1 s'")
	if done, err := h.Redeliver(t.Context(), "shop", c.Reply.ID); !done || err != nil {
		t.Fatal(done, err)
	}
	if h.end(c, outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200}) {
		t.Error("the older attempt has ended it")
	}
	if all, err := h.Deliveries(t.Context(), "shop", operate.Page{}); err != nil || len(all) != 1 ||
		all[0].Attempts != 0 || !all[0].FirstAt.IsZero() {
		t.Errorf("a delivery that begins again: %+v, %v", all, err)
	}
	again := h.claim("shop", "w", 1, 1)
	if len(again) != 1 || again[0].Claim == c.Claim || !h.end(again[0],
		outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200}) {
		t.Errorf("claimed again: %+v", again)
	}
}

// A webhook can be removed when no worker serves it any more. Deliveries that a turn created later
// are swept. A clock that was set back does not cause an endless wait.
func TestRemovedWebhooks(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	h.hook("other")
	h.reply("hello")
	if err := h.RemoveWebhook(t.Context(), "shop"); !errors.Is(err, operate.ErrWebhookServed) {
		t.Errorf("removing it: %v", err)
	}
	h.Exec("update turnkeeper.webhooks set seen_at = clock_timestamp() - interval '1 minute' where name = 'shop'")
	if err := h.RemoveWebhook(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if there, err := h.SeeWebhooks(t.Context(), []string{"other", "shop"}); err != nil || !slices.Equal(there,
		[]string{"other"}) {
		t.Errorf("there are %v, %v", there, err)
	}
	h.Exec("insert into turnkeeper.webhook_deliveries (reply_id, webhook) select id, 'shop' from turnkeeper.replies")
	h.Exec(
		"update turnkeeper.webhook_deliveries set due_at = clock_timestamp() + interval '1 day' where webhook = 'other'")
	if err := h.SweepDeliveries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.webhook_deliveries"); n != 1 ||
		len(h.claim("other", "w", 1, 1)) != 1 {
		t.Errorf("%d deliveries are left", n)
	}
}

// Concurrent claims wait for each other, so that together they do not exceed the slots.
func TestClaimsAreCountedOneAfterTheOther(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	for n := range 5 {
		h.reply(fmt.Sprint(n))
	}
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // Close of the store waits for the transaction
	if _, err := tx.Exec(t.Context(),
		"select from turnkeeper.claim_deliveries('shop', 'worker-1', 3, 2, interval '1 minute')"); err != nil {
		t.Fatal(err)
	}
	second := make(chan []outbox.DeliveryClaim)
	go func() {
		claims, err := h.ClaimDeliveries(t.Context(), "shop", "worker-2", 3, 2, hold)
		if err != nil {
			t.Error(err)
		}
		second <- claims
	}()
	const waits = `select exists (select from pg_stat_activity where query like '%claim_deliveries%' and wait_event_type = 'Lock' and datname = current_database())`
	for !storagetest.One[bool](h, waits) {
		select {
		case claims := <-second:
			t.Fatalf("it did not wait, and claimed %v", ids(claims))
		default:
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if claims := <-second; len(claims) != 1 {
		t.Errorf("of the one slot that is left it claimed %v", ids(claims))
	}
}

// The end of an attempt and a claim lock in the same order, and a claim waits for no delivery. Otherwise the end of an
// attempt that a killed worker left behind and the claim of another worker would wait for each other.
func TestAnEndAndAClaimDoNotWaitForEachOther(t *testing.T) {
	h := newEnv(t)
	h.hook("shop")
	h.reply("one")
	h.reply("two")
	c := h.claim("shop", "worker-1", 3, 1)[0]
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	lock := func(sql string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	lock("select from turnkeeper.webhooks for no key update") // as a claim begins
	ended := make(chan bool)
	go func() {
		held, err := h.EndDelivery(t.Context(), c, outbox.DeliveryEnd{State: outbox.DeliveryPending, Wait: time.Hour})
		if err != nil {
			t.Error(err)
		}
		ended <- held
	}()
	h.AwaitLockWaits(1)
	lock("select from turnkeeper.webhook_deliveries where id = $1 for update nowait", c.ID)
	if err := tx.Commit(t.Context()); err != nil || !<-ended {
		t.Errorf("the attempt's result was not recorded, error %v", err)
	}
	h.Exec("update turnkeeper.webhook_deliveries set due_at = clock_timestamp()")
	c = h.claim("shop", "worker-1", 3, 1)[0]
	h.HeartBeat("worker-1", 1, 0)
	h.Exec("update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp() where worker_id = 'worker-1'")
	if tx, err = h.Pool().Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock("select from turnkeeper.webhook_deliveries where id = $1 for update", c.ID) // as its worker may still do
	if claimed := h.claim("shop", "worker-2", 3, 3); len(claimed) != 1 || claimed[0].ID == c.ID {
		t.Errorf("beside delivery %d, %v was claimed", c.ID, claimed)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if claimed := h.claim("shop", "worker-2", 3, 3); len(claimed) != 1 || claimed[0].ID != c.ID {
		t.Errorf("after it, %v was claimed", claimed)
	}
}

// The pause that an endpoint asked for applies after every result of a concurrent attempt.
func TestAnEndpointRestsForAsLongAsItAsked(t *testing.T) {
	for name, later := range map[string]outbox.DeliveryEnd{
		"a success":      {State: outbox.DeliveryDelivered, Status: 200},
		"a shorter rest": {State: outbox.DeliveryPending, Status: 503, Error: "busy", Rest: time.Second},
		"a failure":      {State: outbox.DeliveryPending, Error: "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.hook("shop")
			for n := range 3 {
				h.reply(fmt.Sprint(n))
			}
			claims := h.claim("shop", "w", 2, 2)
			if len(claims) != 2 {
				t.Fatalf("%d are claimed", len(claims))
			}
			h.end(claims[0], outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: 429, Error: "slow",
				Rest: time.Hour})
			h.end(claims[1], later)
			if wait, ok, err := h.NextDelivery(t.Context(), "shop"); err != nil || !ok || wait < 59*time.Minute {
				t.Errorf("it is left alone for %s: %v, %v", wait, ok, err)
			}
			if got := h.claim("shop", "w", 2, 2); len(got) != 0 {
				t.Errorf("it gets %v", ids(got))
			}
		})
	}
}

// An ask has deliveries to the webhooks that get asks of its agent. A claim has the ask; those of closed asks are
// deleted instead.
func TestDeliveriesOfAsks(t *testing.T) {
	h := newEnv(t)
	for name, w := range map[string]outbox.Webhook{"all": {Asks: true},
		"clerk": {Asks: true, Agents: []string{"clerk"}}, "desk": {Asks: true, Agents: []string{"desk"}},
		"replies": {}} {
		w.Name, w.Origin = name, "https://"+name+".example"
		if err := h.RegisterWebhook(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	d := h.Turn("hello")
	open := func(n int) asks.ID {
		return storagetest.One[asks.ID](h,
			`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
			values ($1, 1, 1, 'question', $2, 'pay', '{"amount":900}', 'h', '', 'why', '{}', true, now() + interval '1 day') returning id`, int64(d.Grant.TurnID), n)
	}
	h.Exec(
		`with m as (insert into turnkeeper.messages (agent, lane, body, state) select a, a, 'x', 'running' from unnest(array['clerk', 'desk']) a returning id, agent)
		insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token)
		select id + 1000, id, 1, agent, 'main', 'x' || id, 'message', repeat('a', 64), 'waiting', 1 from m`) // of other agents too
	first, second := open(1), open(2)
	agent := storagetest.One[string](h, "select agent from turnkeeper.turns where id = $1", int64(d.Grant.TurnID))
	got := storagetest.One[string](h,
		"select string_agg(distinct webhook, ' ' order by webhook) from turnkeeper.webhook_deliveries where reply_id is null")
	if got != "all "+agent {
		t.Errorf("an ask of %s has deliveries to %s", agent, got)
	}
	sending := h.claim(agent, "w", 5, 5) // before they are closed
	if _, err := h.AnswerAsk(t.Context(), first, asks.Answer{Decision: asks.Denied, By: "ann",
		Channel: "sql"}); err != nil {
		t.Fatal(err)
	}
	claims := h.claim("all", "w", 5, 5)
	if len(claims) != 1 || claims[0].Ask.ID != second || claims[0].Ask.Agent != agent ||
		claims[0].Ask.Arguments != `{"amount":900}` || claims[0].WebhookID() != fmt.Sprintf("ask_%d", second) {
		t.Fatalf("the claims are %+v", claims)
	}
	if !h.end(claims[0], outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: 500, Error: "no"}) {
		t.Error("the attempt was not recorded")
	}
	if _, err := h.AnswerAsk(t.Context(), second, asks.Answer{Decision: asks.Denied, By: "ann",
		Channel: "sql"}); err != nil {
		t.Fatal(err)
	}
	h.Exec("update turnkeeper.webhook_deliveries set due_at = clock_timestamp() where webhook = 'all'")
	if claims := h.claim("all", "w", 5, 5); len(claims) != 0 {
		t.Errorf("an ask that was closed between two attempts is claimed: %+v", claims)
	}
	if claims := h.claim(agent, "w", 5, 5); len(claims) != 0 || len(sending) != 2 || !h.end(sending[0],
		outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200}) ||
		!h.end(sending[1], outbox.DeliveryEnd{State: outbox.DeliveryDelivered, Status: 200}) {
		t.Errorf("asks that were closed during an attempt: %+v", claims)
	}
	d.Finish(t, "done")
	shown, err := h.Deliveries(t.Context(), "all", operate.Page{})
	if err != nil || len(shown) != 1 || shown[0].ReplyID == 0 || shown[0].AskID != 0 {
		t.Errorf("the deliveries are %+v, %v", shown, err)
	}
	if shown, err = h.Deliveries(t.Context(), agent, operate.Page{Agent: agent}); err != nil || len(shown) != 3 ||
		shown[2].AskID != first || shown[2].Agent != agent || shown[2].Outcome != "" {
		t.Errorf("the deliveries are %+v, %v", shown, err)
	}
}
