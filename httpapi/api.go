package httpapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/page"
	"turnkeeper/httpapi/responses"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/presence"
	"turnkeeper/stream"
)

// A Store reads and writes for the API and the page; *operate.Store implements it. Each group of
// handlers uses only its own part.
type Store interface {
	TokenStore
	MessageStore
	TurnStore
	EventStore
	OperateStore
	ScheduleStore
	ServiceStore
	access.Store
	page.Store
	responses.Store
}

// A Config configures an API.
type Config struct {
	Store Store
	// Rings subscribes to the doorbell for ended turns. nil: no doorbell; polling finds them.
	Rings func() (rings <-chan struct{}, cancel func())
	Log   *zap.Logger         // nil: none
	Mask  func(string) string // masks secrets in errors; nil: no masking

	Diagnosis       diagnosis.Settings // of this process, for the findings of doctor
	FourEyes        bool               // the token that sent a message must not answer what its turn asks
	NeedToken       bool               // require a token from everybody; false: not on loopback
	Hosts           []string           // allowed host names, in addition to localhost
	MaxMessageBytes int                // limit of a message's body; 0: turnkeeper.DefaultMaxMessageBytes
	Rate            int                // requests per second and token; 0: 100
	Requests        int                // maximum in progress, not counting /healthz and /readyz; 0: 2000
	Streams         int                // maximum of streams of events at once and token; 0: 500

	KeepAlive    time.Duration // interval of comments in a stream; 0: 15 s
	QueryTimeout time.Duration // limit on the queries of a request, without its waits; 0: 20 s
	// ResponseWait is how long POST /v1/responses waits for the reply when the response is
	// neither streamed nor in the background; 0: 5 min.
	ResponseWait time.Duration

	// Refused returns what the database refuses this process now, the longest first. nil: nothing.
	Refused func() []presence.Refusal
	Metrics http.Handler // serves GET /metrics; nil: 404
	// Rebuild rebuilds the request of a round for the page. nil: the page says that it cannot be built.
	Rebuild page.Rebuild
	// Observe is called after each request. route is the path of the matched pattern, empty if
	// none matched; status is 499 if the client left before the response. nil: not called.
	Observe func(method, route string, status int, took time.Duration)
}

// An API answers requests. It is safe for concurrent use.
type API struct {
	cfg        Config
	mux        *http.ServeMux
	admission  *admission
	page       *page.Handler
	inProgress chan struct{} // holds a value for each request in progress
	streams    *request.Streams

	// The handlers by subject.
	messages  *messages
	turns     *turns
	events    *events
	lanes     *lanes
	schedules *schedules
	webhooks  webhooks
	asking    asking
	openai    *openai
	service   *service

	drainOnce sync.Once
	draining  chan struct{} // closed by Drain
}

var errNoRequests = errors.New("this process does not build requests")

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
	if cfg.Refused == nil {
		cfg.Refused = func() []presence.Refusal { return nil }
	}
	cfg.Diagnosis.Mask = cfg.Mask
	if cfg.Rebuild == nil {
		cfg.Rebuild = func(context.Context, turnkeeper.TurnID, int) (page.SentRequest, error) {
			return page.SentRequest{}, errNoRequests
		}
	}
	setDefault(&cfg.MaxMessageBytes, turnkeeper.DefaultMaxMessageBytes)
	setDefault(&cfg.Rate, 100)
	setDefault(&cfg.Requests, 2000)
	setDefault(&cfg.Streams, 500)
	setDefault(&cfg.KeepAlive, 15*time.Second)
	setDefault(&cfg.QueryTimeout, 20*time.Second)
	draining := make(chan struct{})
	access := access.New(cfg.Store, cfg.FourEyes, cfg.Diagnosis)
	hub := stream.NewHub(source{cfg.Store, cfg.Rings}, func(what string, err error) {
		cfg.Log.Warn("streams could not read "+what+
			", and read again; more such errors of the next minute are not logged",
			zap.String("error", cfg.Mask(err.Error())))
	})
	a := &API{
		cfg: cfg, mux: http.NewServeMux(), inProgress: make(chan struct{}, cfg.Requests),
		streams: request.NewStreams(cfg.Streams), draining: draining,
		admission: &admission{store: cfg.Store, limits: newLimits(cfg.Rate), rate: cfg.Rate, needToken: cfg.NeedToken,
			hosts: cfg.Hosts, log: cfg.Log},
		messages:  &messages{cfg.Store, access, cfg.Rings, draining, cfg.MaxMessageBytes},
		turns:     &turns{cfg.Store, access},
		events:    &events{cfg.Store, access, hub, draining, cfg.KeepAlive, cfg.QueryTimeout},
		lanes:     &lanes{cfg.Store, access},
		schedules: &schedules{cfg.Store, access},
		webhooks:  webhooks{access},
		asking:    asking{access},
		service:   &service{store: cfg.Store, refused: cfg.Refused, metrics: cfg.Metrics, draining: draining},
	}
	a.openai = &openai{responses.New(responses.Config{
		Store: boundedResponses{cfg.Store, cfg.QueryTimeout}, Rings: cfg.Rings, Hub: hub, Draining: draining,
		MaxMessageBytes: cfg.MaxMessageBytes,
		KeepAlive:       cfg.KeepAlive, Wait: cfg.ResponseWait,
	}), cfg.MaxMessageBytes}
	a.page = page.New(page.Config{
		Store: cfg.Store, Access: access, Limits: a.admission, MaxMessageBytes: cfg.MaxMessageBytes, Mask: cfg.Mask,
		Log: cfg.Log, Refused: cfg.Refused, Rebuild: cfg.Rebuild,
	})
	for _, r := range a.Routes() {
		a.mux.Handle(r.Pattern(), a.serve(r))
	}
	for _, r := range a.page.Routes() {
		a.mux.Handle(r.Pattern(), a.servePage(r))
	}
	return a
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Drain makes this process not ready and ends streams and waits; their clients reconnect to
// another process. Other requests are still answered.
func (a *API) Drain() { a.drainOnce.Do(func() { close(a.draining) }) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
