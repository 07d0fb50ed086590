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
	"turnkeeper/internal/pause"
)

// A Store has the deliveries. Its methods are called by many goroutines.
type Store interface {
	RegisterWebhook(ctx context.Context, w turnkeeper.Webhook) error
	SeeWebhooks(ctx context.Context, names []string) (there []string, err error)
	ClaimDeliveries(ctx context.Context, webhook string, worker turnkeeper.WorkerID, slots, limit int, hold time.Duration) ([]turnkeeper.DeliveryClaim, error)
	EndDelivery(ctx context.Context, c turnkeeper.DeliveryClaim, end turnkeeper.DeliveryEnd) (held bool, err error)
	NextDelivery(ctx context.Context, webhook string) (wait time.Duration, ok bool, err error)
}

// An Endpoint is where replies are pushed to. All fields are set, except where they say so.
type Endpoint struct {
	Name         string
	URL          string // a secret
	Origin       string // what may be shown of it
	Keys         [][]byte
	Agents       []string // nil: all
	SubAgents    bool     // also what they write for other agents
	AllowPrivate bool
	Timeout      time.Duration // of one attempt
	Concurrency  int           // attempts at the same time, of all workers together
	MaxAttempts  int
	MaxAge       time.Duration // since the first attempt

	refuse func(address string) string // nil: netguard.Refusal; only tests set it
}

// Config is what a Deliverer works with.
type Config struct {
	Store     Store
	Endpoints []Endpoint
	WorkerID  turnkeeper.WorkerID
	// Rings gives a channel that holds a ring when a turn may have ended, and ends the subscription.
	Rings        func() (rings <-chan struct{}, cancel func())
	PollInterval time.Duration              // when to look although nothing rang
	Grace        time.Duration              // for attempts under way when it is told to stop
	Mask         func(string) string        // what is logged and kept of answers
	View         func(turnkeeper.Reply) any // what receivers read of a reply
	Log          *zap.Logger
	// Observe is told of each attempt; nil: nobody is. result is delivered, failed, dead or gone.
	Observe func(webhook, result string, took time.Duration)
	Fault   fault.Hook // nil in production
}

// A Deliverer delivers until it is told to stop.
type Deliverer struct {
	Config
	endpoints []*endpoint
}

// An endpoint is one with what this process has under way to it.
type endpoint struct {
	Endpoint
	*Deliverer
	client *http.Client
	rings  <-chan struct{}
	sent   chan struct{} // holds a ring when an attempt has ended

	mu     sync.Mutex
	flying int
	gone   bool // an operator has removed it
}

// hold is for how long an attempt is claimed: its time, and time to note what became of it.
func (e *endpoint) hold() time.Duration { return e.Timeout + noteTime }

const (
	noteTime  = 30 * time.Second
	seeEvery  = 10 * time.Second      // it is said that the endpoints are served
	pace      = 50 * time.Millisecond // between looks: turns may end by the hundred each second
	fullPause = 500 * time.Millisecond
)

// New returns a Deliverer of c.
func New(c Config) *Deliverer {
	d := &Deliverer{Config: c}
	for _, e := range c.Endpoints {
		d.endpoints = append(d.endpoints, &endpoint{Endpoint: e, Deliverer: d, client: newClient(e), sent: make(chan struct{}, 1)})
	}
	return d
}

// Register has replies from now on delivered.
func (d *Deliverer) Register(ctx context.Context) error {
	for _, e := range d.endpoints {
		if err := d.Store.RegisterWebhook(ctx, turnkeeper.Webhook{Name: e.Name, Origin: e.Origin, Agents: e.Agents, SubAgents: e.SubAgents}); err != nil {
			return fmt.Errorf("the webhook %s cannot be registered: %w", e.Name, err)
		}
	}
	return nil
}

// errStopping breaks off attempts of a worker that stops.
var errStopping = errors.New("the worker stops")

// Run delivers until ctx ends; attempts under way then have the grace, or until hard ends.
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
		all.Go(func() { e.run(ctx, sending) })
	}
	all.Go(func() { d.see(ctx) })
	all.Wait()
}

// see says again and again that the endpoints are served, and looks which of them an operator
// has removed.
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
			d.Log.Warn("it could not be noted that webhooks are served", zap.Error(err))
		}
		for _, e := range d.endpoints {
			if err == nil && e.remove(!slices.Contains(there, e.Name)) {
				d.Log.Warn("an operator has removed the webhook; it is made again by a worker that starts with it", zap.String("webhook", e.Name))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// remove notes whether the webhook is gone, and says whether that is news.
func (e *endpoint) remove(gone bool) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	news = gone && !e.gone
	e.gone = gone
	return news
}

func (e *endpoint) run(ctx, sending context.Context) {
	var attempts sync.WaitGroup
	defer e.client.CloseIdleConnections()
	defer attempts.Wait()
	for ctx.Err() == nil {
		claims, err := e.claim(ctx)
		claimed := time.Now()
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("deliveries could not be looked for; it is tried again", zap.String("webhook", e.Name), zap.Error(err))
		}
		for _, c := range claims {
			e.add(1)
			attempts.Go(func() {
				e.attempt(sending, c, claimed)
				e.add(-1)
			})
		}
		e.wait(ctx, err == nil && len(claims) == 0)
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

func (e *endpoint) claim(ctx context.Context) ([]turnkeeper.DeliveryClaim, error) {
	room := e.room()
	if room == 0 {
		return nil, nil
	}
	return e.Store.ClaimDeliveries(ctx, e.Name, e.WorkerID, e.Concurrency, room, e.hold())
}

// wait returns when it is time to look again: where an attempt has ended, there may be more
// that is due; where nothing was, there is time until something will be.
func (e *endpoint) wait(ctx context.Context, idle bool) {
	most := e.PollInterval
	if idle && e.room() > 0 {
		if next, ok, err := e.Store.NextDelivery(ctx, e.Name); err == nil && ok {
			most = min(most, max(next, fullPause)) // due at once: others have all there may be under way
		}
		_ = pause.For(ctx, pace)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-e.rings:
	case <-e.sent:
	}
}

// attempt makes one attempt at a delivery, and notes what became of it. One that this process
// slept through is not made: the claim may be another's by then.
func (e *endpoint) attempt(ctx context.Context, c turnkeeper.DeliveryClaim, claimed time.Time) {
	e.at(ctx, pointClaimed)
	body, err := bodyOf(c.Reply, e.View)
	if err != nil {
		e.Log.Error("a reply cannot be written as JSON", zap.Int64("reply", int64(c.Reply.ID)), zap.Error(err))
		return
	}
	sending, cancel := context.WithDeadline(ctx, claimed.Add(e.Timeout))
	defer cancel()
	a := e.post(sending, c.Reply.ID.WebhookID(), body)
	e.at(ctx, pointAnswered)
	took := time.Since(claimed)
	end := e.judge(c, a, took)
	if a.err != nil && errors.Is(context.Cause(ctx), errStopping) {
		end = turnkeeper.DeliveryEnd{State: turnkeeper.DeliveryPending, Uncounted: true}
	}
	end.Error = e.Mask(end.Error)
	e.note(ctx, c, end, claimed.Add(e.hold()))
	e.at(ctx, pointNoted)
}

// judge says what an answer means for the delivery.
func (e *endpoint) judge(c turnkeeper.DeliveryClaim, a answer, took time.Duration) turnkeeper.DeliveryEnd {
	end := turnkeeper.DeliveryEnd{State: turnkeeper.DeliveryPending, Status: a.status, Error: a.problem(), Duration: took}
	switch {
	case a.good():
		end.State = turnkeeper.DeliveryDelivered
		return end
	case a.status == http.StatusGone:
		end.Gone = true
		return end
	case c.Attempt >= e.MaxAttempts || c.Tried+took >= e.MaxAge:
		end.State = turnkeeper.DeliveryDead
	}
	asked := retryAfter(a.header, time.Now())
	if end.State == turnkeeper.DeliveryPending {
		end.Wait = max(backoff(c.Attempt, rand.Float64()), asked) //nolint:gosec // to spread attempts
	}
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		end.Rest = asked
	}
	return end
}

// note writes down what became of an attempt, again and again until the claim is over: what is
// not written down is delivered once more.
func (e *endpoint) note(ctx context.Context, c turnkeeper.DeliveryClaim, end turnkeeper.DeliveryEnd, until time.Time) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	held, err := e.Store.EndDelivery(ctx, c, end)
	for err != nil && ctx.Err() == nil {
		_ = pause.For(ctx, fullPause)
		held, err = e.Store.EndDelivery(ctx, c, end)
	}
	e.tell(c, end, held, err)
}

func (e *endpoint) tell(c turnkeeper.DeliveryClaim, end turnkeeper.DeliveryEnd, held bool, err error) {
	log := e.Log.With(zap.String("webhook", e.Name), zap.Int64("reply", int64(c.Reply.ID)), zap.Int64("turn", int64(c.Reply.TurnID)),
		zap.Int("attempt", c.Attempt), zap.Duration("took", end.Duration))
	result := string(end.State)
	switch {
	case err != nil:
		log.Warn("what became of a delivery could not be noted; it is made once more", zap.Error(err))
	case !held:
		log.Info("a delivery was no longer this worker's when it ended")
	case end.Uncounted:
		log.Info("a delivery was broken off; it is made again")
		return
	case end.State == turnkeeper.DeliveryDelivered:
		log.Debug("reply delivered", zap.Int("status", end.Status))
	case end.Gone:
		result = "gone"
		log.Warn("the webhook is paused: its endpoint wants nothing any more", zap.String("error", end.Error))
	case end.State == turnkeeper.DeliveryDead:
		log.Error("a delivery is given up; turnctl webhooks redeliver makes it again", zap.String("error", end.Error))
	default:
		result = "failed"
		log.Warn("a delivery failed; it is made again", zap.String("error", end.Error), zap.Duration("wait", end.Wait))
	}
	if e.Observe != nil {
		e.Observe(e.Name, result, end.Duration)
	}
}
