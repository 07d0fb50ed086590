package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi/responses"
	"turnkeeper/storage/operate"
	"turnkeeper/stream"
)

// A Store is what the API reads and writes; a *operate.Store is one.
type Store interface {
	Accept(ctx context.Context, m turnkeeper.Submission) (id turnkeeper.MessageID, repeated bool, err error)
	Message(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error)
	WaitingMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error)
	ReplyTo(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Reply, error)
	Replies(ctx context.Context, p operate.Page) ([]turnkeeper.Reply, error)

	FindMessages(ctx context.Context, f operate.Search) (found []turnkeeper.Message, next int64, err error)
	FindTurns(ctx context.Context, f operate.Search) (found []turnkeeper.Turn, next int64, err error)
	Transcript(ctx context.Context, p operate.Page, conversation string) (exchanges []operate.Exchange, next int64, err error)
	CancelMessage(ctx context.Context, id turnkeeper.MessageID, reason string) (operate.Cancelled, error)
	RunSchedule(ctx context.Context, agent, name string) (id turnkeeper.MessageID, waiting bool, err error)
	Workers(ctx context.Context) ([]turnkeeper.Heartbeat, error)

	Turns(ctx context.Context, p operate.Page) ([]turnkeeper.Turn, error)
	ViewTurn(ctx context.Context, id turnkeeper.TurnID) (operate.TurnView, error)
	CancelTurn(ctx context.Context, id turnkeeper.TurnID, reason string) (operate.Cancelled, error)
	Retry(ctx context.Context, id turnkeeper.MessageID, anyway bool) (operate.Retried, error)
	AgentOfTurn(ctx context.Context, id turnkeeper.TurnID) (string, error)
	Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error)
	FindOutput(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error)
	Output(ctx context.Context, id turnkeeper.OutputID) (turnkeeper.Output, error)
	ReadOutput(ctx context.Context, turn turnkeeper.TurnID, id turnkeeper.OutputID, from, to int64) (string, error)

	Models(ctx context.Context) ([]turnkeeper.ModelHealth, error)
	RetryFailed(ctx context.Context, scope operate.FailedScope) ([]operate.BulkRetried, error)
	Lanes(ctx context.Context, p operate.Page) ([]operate.LaneView, error)
	Schedules(ctx context.Context) ([]turnkeeper.Schedule, error)
	SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error)
	PauseScheduler(ctx context.Context, reason string) error
	ResumeScheduler(ctx context.Context) error

	responses.Store
	Webhooks(ctx context.Context) ([]operate.WebhookView, error)
	Webhook(ctx context.Context, name string) (operate.WebhookView, error)
	Deliveries(ctx context.Context, webhook string, p operate.Page) ([]turnkeeper.Delivery, error)

	PageStore
	FindToken(ctx context.Context, secret string) (operate.Token, error)
	Ping(ctx context.Context) error
}

// A Config says what an API serves, and to whom.
type Config struct {
	Store Store
	// Rings subscribes to the doorbell of turns that have ended. nil: there is
	// none, and polling finds them.
	Rings func() (rings <-chan struct{}, cancel func())
	Log   *zap.Logger         // nil: none
	Mask  func(string) string // masks secrets in errors; nil: there are none

	NeedToken       bool     // nobody is served without a token; false: on loopback
	Hosts           []string // names, beside localhost, by which it may be called
	MaxMessageBytes int      // of a message's body; 0: turnkeeper.DefaultMaxMessageBytes
	Rate            int      // requests a second of one token; 0: 100
	Requests        int      // in progress at the same time, without /healthz and /readyz; 0: 2000

	KeepAlive time.Duration // between comments in a stream; 0: 15 s
	// ResponseWait is how long the request for a response waits for it, where it is
	// neither streamed nor in the background; 0: 5 min.
	ResponseWait time.Duration

	Metrics http.Handler // of GET /metrics; nil: there are none
	// Observe is told of each request that was answered. route is the path of
	// its pattern; empty: there is nothing there. nil: nobody is told.
	Observe func(method, route string, status int, took time.Duration)
}

// An API answers requests. Several goroutines may use it.
type API struct {
	cfg    Config
	hub    *stream.Hub
	openai *responses.API
	limits *limits
	mux    *http.ServeMux

	inProgress chan struct{} // a value for each request that is
	pings      pings
	proxied    sync.Once // a request that came through a proxy was warned of

	drainOnce sync.Once
	draining  chan struct{} // closed by Drain
}

// New returns an API. It starts nothing.
func New(cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Mask == nil {
		cfg.Mask = func(s string) string { return s }
	}
	if cfg.Rings == nil {
		cfg.Rings = func() (<-chan struct{}, func()) { return nil, func() {} }
	}
	setDefault(&cfg.MaxMessageBytes, turnkeeper.DefaultMaxMessageBytes)
	setDefault(&cfg.Rate, 100)
	setDefault(&cfg.Requests, 2000)
	setDefault(&cfg.KeepAlive, 15*time.Second)
	a := &API{cfg: cfg, limits: newLimits(cfg.Rate), mux: http.NewServeMux(), draining: make(chan struct{}), inProgress: make(chan struct{}, cfg.Requests)}
	a.hub = stream.NewHub(source{cfg})
	a.openai = responses.New(responses.Config{
		Store: cfg.Store, Rings: cfg.Rings, Draining: a.draining, MaxMessageBytes: cfg.MaxMessageBytes,
		KeepAlive: cfg.KeepAlive, Wait: cfg.ResponseWait,
	})
	for _, r := range a.routes() {
		a.mux.Handle(r.pattern, a.serve(r))
	}
	for _, r := range a.pages() {
		a.mux.Handle(r.pattern, a.servePage(r))
	}
	return a
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Drain says that this process stops: it is no longer ready, streams and waits
// are ended so that their clients go on elsewhere. Other requests are still
// answered.
func (a *API) Drain() { a.drainOnce.Do(func() { close(a.draining) }) }

func (a *API) isDraining() bool {
	select {
	case <-a.draining:
		return true
	default:
		return false
	}
}

// source is where events are read.
type source struct{ cfg Config }

func (s source) Events(ctx context.Context, turn turnkeeper.TurnID, after int64, limit int) ([]turnkeeper.Event, error) {
	return s.cfg.Store.Events(ctx, turn, after, limit)
}

func (s source) Subscribe() (<-chan struct{}, func()) { return s.cfg.Rings() }
