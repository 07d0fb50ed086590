package webhooks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/fault"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/pause"
)

// A Store stores deliveries. It must be safe for concurrent use.
type Store interface {
	RegisterWebhook(ctx context.Context, w outbox.Webhook) error
	SeeWebhooks(ctx context.Context, names []string) (there []string, err error)
	ClaimDeliveries(ctx context.Context, webhook string, worker turnkeeper.WorkerID, slots, limit int,
		hold time.Duration) ([]outbox.DeliveryClaim, error)
	EndDelivery(ctx context.Context, c outbox.DeliveryClaim, end outbox.DeliveryEnd) (held bool, err error)
	NextDelivery(ctx context.Context, webhook string) (wait time.Duration, ok bool, err error)
}

// An Endpoint is the target of deliveries. All fields are required unless they define a zero value.
type Endpoint struct {
	Name         string
	URL          string // a secret
	Origin       string // scheme, host and port, which may be displayed
	Keys         [][]byte
	Agents       []string // nil: all
	SubAgents    bool     // also replies of sub-agents to other agents
	Asks         bool     // also opened asks
	AllowPrivate bool
	Timeout      time.Duration // of one attempt
	Concurrency  int           // maximum concurrent attempts of all workers together
	MaxAttempts  int
	MaxAge       time.Duration // since the first attempt

	refuse func(address string) string // nil: netguard.Refusal; only tests set it
}

// Config configures a Deliverer.
type Config struct {
	Store     Store
	Endpoints []Endpoint
	WorkerID  turnkeeper.WorkerID
	// Rings subscribes to the doorbell for ended turns, and AskRings to that for opened asks.
	Rings        func() (rings <-chan struct{}, cancel func())
	AskRings     func() (rings <-chan struct{}, cancel func())
	PollInterval time.Duration              // interval of queries without a doorbell
	Grace        time.Duration              // time for attempts in progress to finish when Run's ctx ends
	Mask         func(string) string        // masks secrets in answers before they are logged and stored
	View         func(turnkeeper.Reply) any // returns the JSON object of a reply
	ViewAsk      func(outbox.OpenedAsk) any // returns the JSON object of an ask; required if an endpoint has Asks
	Log          *zap.Logger
	// Observe is called after each attempt; nil: not called. result is delivered, failed, dead or gone.
	Observe func(webhook, result string, took time.Duration)
	Fault   fault.Hook // nil in production
}

// A Deliverer delivers replies and asks to its endpoints.
type Deliverer struct {
	Config
	endpoints []*endpoint
}

// An endpoint is an Endpoint with this process's attempts.
type endpoint struct {
	Endpoint
	*Deliverer
	client  *http.Client
	conceal func(string) string // masks the parts of the address
	rings   <-chan struct{}
	asked   <-chan struct{} // nil: it gets no asks
	sent    chan struct{}   // has a value when an attempt has ended

	gone bool // removed by an operator; only for see

	mu     sync.Mutex
	flying int
}

// hold returns the duration of a claim: the timeout of an attempt and the time to record its result.
func (e *endpoint) hold() time.Duration { return e.Timeout + noteTime }

const (
	noteTime  = 30 * time.Second
	seeEvery  = 10 * time.Second      // interval of recording that the endpoints are served
	pace      = 50 * time.Millisecond // minimum between queries: hundreds of turns may end per second
	fullPause = 500 * time.Millisecond

	afterError = 5 * time.Second // maximum between queries while they fail: no doorbell says that they would succeed
)

// New returns a Deliverer.
func New(c Config) *Deliverer {
	d := &Deliverer{Config: c}
	for _, e := range c.Endpoints {
		d.endpoints = append(d.endpoints, &endpoint{Endpoint: e, Deliverer: d, client: newClient(e),
			conceal: concealer(e.URL), sent: make(chan struct{}, 1)})
	}
	return d
}

// Register registers the endpoints in the store. Replies written, and asks opened, from then on are delivered.
func (d *Deliverer) Register(ctx context.Context) error {
	for _, e := range d.endpoints {
		if err := d.Store.RegisterWebhook(ctx, outbox.Webhook{Name: e.Name, Origin: e.Origin, Agents: e.Agents,
			SubAgents: e.SubAgents, Asks: e.Asks}); err != nil {
			return fmt.Errorf("could not register the webhook %s: %w", e.Name, err)
		}
	}
	return nil
}

// errStopping is the cause that aborts attempts when the worker stops.
var errStopping = errors.New("the worker is stopping")

// Run delivers until ctx ends. Attempts in progress may then continue for the grace period, or until hard ends.
func (d *Deliverer) Run(ctx, hard context.Context) {
	if len(d.endpoints) == 0 {
		return
	}
	sending, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(hard, func() { stop(errStopping) })()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(d.Grace, func() { stop(errStopping) }) })()
	var all sync.WaitGroup
	for _, e := range d.endpoints {
		var unsubscribe func()
		e.rings, unsubscribe = d.Rings()
		defer unsubscribe()
		if e.Asks {
			e.asked, unsubscribe = d.AskRings()
			defer unsubscribe()
		}
		all.Go(func() { e.run(ctx, sending) })
	}
	all.Go(func() { d.see(ctx) })
	all.Wait()
}

// see records every seeEvery that the endpoints are served, and notices endpoints removed by an operator.
func (d *Deliverer) see(ctx context.Context) {
	names := make([]string, len(d.endpoints))
	for i, e := range d.endpoints {
		names[i] = e.Name
	}
	tick := time.NewTicker(seeEvery)
	defer tick.Stop()
	for {
		there, err := d.Store.SeeWebhooks(ctx, names)
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("could not record that webhooks are served", zap.Error(err))
		}
		for _, e := range d.endpoints {
			if err == nil && e.remove(!slices.Contains(there, e.Name)) {
				d.Log.Warn(
					"an operator removed the webhook; a worker that starts with it in its settings registers it again",
					zap.String("webhook", e.Name))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// remove records whether the webhook was removed, and reports whether it was not known before.
func (e *endpoint) remove(gone bool) (isNew bool) {
	isNew = gone && !e.gone
	e.gone = gone
	return isNew
}

func (e *endpoint) run(ctx, sending context.Context) {
	var attempts sync.WaitGroup
	defer e.client.CloseIdleConnections()
	defer attempts.Wait()
	for ctx.Err() == nil {
		claims, err := e.claim(ctx)
		claimed := time.Now()
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("could not query deliveries, retrying", zap.String("webhook", e.Name), zap.Error(err))
		}
		for _, c := range claims {
			e.add(1)
			attempts.Go(func() {
				e.attempt(sending, c, claimed)
				e.add(-1)
			})
		}
		if err != nil {
			_ = pause.For(ctx, min(e.PollInterval, afterError))
			continue
		}
		e.wait(ctx, len(claims) == 0)
	}
}

func (e *endpoint) add(n int) {
	e.mu.Lock()
	e.flying += n
	e.mu.Unlock()
	if n < 0 {
		select {
		case e.sent <- struct{}{}:
		default:
		}
	}
}

func (e *endpoint) room() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Concurrency - e.flying
}

func (e *endpoint) claim(ctx context.Context) ([]outbox.DeliveryClaim, error) {
	room := e.room()
	if room == 0 {
		return nil, nil
	}
	return e.Store.ClaimDeliveries(ctx, e.Name, e.WorkerID, e.Concurrency, room, e.hold())
}

// wait returns when deliveries should be queried again: at the doorbell, after an attempt, when the next
// delivery is due, or after PollInterval.
func (e *endpoint) wait(ctx context.Context, idle bool) {
	wait := e.PollInterval
	if idle && e.room() > 0 {
		switch next, ok, err := e.Store.NextDelivery(ctx, e.Name); {
		case err != nil:
			wait = min(wait, afterError)
		case ok:
			wait = min(wait, max(next, fullPause)) // due already: other workers use all of Concurrency
		}
		_ = pause.For(ctx, pace)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-e.rings:
	case <-e.asked:
	case <-e.sent:
	}
}

// attempt makes one attempt at a delivery and records its result. Its deadline counts from the claim, so
// a process that was suspended does not send after its claim has expired.
func (e *endpoint) attempt(ctx context.Context, c outbox.DeliveryClaim, claimed time.Time) {
	e.at(ctx, pointClaimed)
	body, err := e.bodyOf(c)
	if err != nil {
		e.note(ctx, c, outbox.DeliveryEnd{State: outbox.DeliveryDead,
			Error: e.Mask("its body cannot be made: " + err.Error())}, claimed.Add(e.hold()))
		return
	}
	sending, cancel := context.WithDeadline(ctx, claimed.Add(e.Timeout))
	defer cancel()
	a := e.post(sending, c.WebhookID(), body)
	e.at(ctx, pointAnswered)
	took := time.Since(claimed)
	end := e.judge(c, a, took)
	if a.err != nil && errors.Is(context.Cause(ctx), errStopping) {
		end = outbox.DeliveryEnd{State: outbox.DeliveryPending, Uncounted: true}
	}
	end.Error = e.mask(end.Error)
	e.note(ctx, c, end, claimed.Add(e.hold()))
	e.at(ctx, pointNoted)
}

// judge returns the result of an attempt for the delivery.
func (e *endpoint) judge(c outbox.DeliveryClaim, a attempt, took time.Duration) outbox.DeliveryEnd {
	end := outbox.DeliveryEnd{State: outbox.DeliveryPending, Status: a.status, Error: a.problem(), Duration: took}
	switch {
	case a.good():
		end.State = outbox.DeliveryDelivered
		return end
	case a.status == http.StatusGone:
		end.Gone = true
		return end
	case c.Attempt >= e.MaxAttempts || c.Tried+took >= e.MaxAge:
		end.State = outbox.DeliveryDead
	}
	asked := retryAfter(a.header, time.Now())
	if end.State == outbox.DeliveryPending {
		end.Wait = max(backoff(c.Attempt, rand.Float64()), asked) //nolint:gosec // to spread attempts
	}
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		end.Rest = asked
	}
	return end
}

// note records the result of an attempt, retrying until the claim expires. An unrecorded delivery is
// repeated.
func (e *endpoint) note(ctx context.Context, c outbox.DeliveryClaim, end outbox.DeliveryEnd, until time.Time) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	held, err := e.Store.EndDelivery(ctx, c, end)
	for err != nil && pause.For(ctx, fullPause) == nil {
		held, err = e.Store.EndDelivery(ctx, c, end)
	}
	e.tell(c, end, held, err)
}

func (e *endpoint) tell(c outbox.DeliveryClaim, end outbox.DeliveryEnd, held bool, err error) {
	of, turn := zap.Int64("reply", int64(c.Reply.ID)), c.Reply.TurnID
	if c.Ask.ID != 0 {
		of, turn = zap.Int64("ask", int64(c.Ask.ID)), c.Ask.Turn
	}
	log := e.Log.With(zap.String("webhook", e.Name), of, zap.Int64("turn", int64(turn)), zap.Int("attempt", c.Attempt),
		zap.Duration("took", end.Duration))
	result := string(end.State)
	switch {
	case err != nil:
		log.Warn("could not record the result of a delivery; it will be repeated", zap.Error(err))
	case !held:
		log.Info("a delivery ended after its claim had expired")
	case end.Uncounted:
		log.Info("a delivery was aborted; it will be retried")
		return
	case end.State == outbox.DeliveryDelivered:
		log.Debug("delivered", zap.Int("status", end.Status))
	case end.Gone:
		result = "gone"
		log.Warn("the webhook is paused: its endpoint answered 410 Gone", zap.String("error", end.Error))
	case end.State == outbox.DeliveryDead:
		log.Error("a delivery was given up; retry it with \"turnctl webhooks redeliver\"",
			zap.String("error", end.Error))
	default:
		result = "failed"
		log.Warn("a delivery failed; it will be retried", zap.String("error", end.Error),
			zap.Duration("wait", end.Wait))
	}
	if e.Observe != nil {
		e.Observe(e.Name, result, end.Duration)
	}
}
