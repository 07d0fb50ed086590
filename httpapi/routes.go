package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper/httpapi/responses"
	"turnkeeper/internal/views"
)

// A route is one method of one path. scope is what a token needs for it; empty:
// it is for everybody.
type route struct {
	pattern string
	scope   string
	handle  func(*API, *call) error
}

// probe says that the route tells whether the process is well. It is answered however many requests
// are in progress.
func (r route) probe() bool { return r.pattern == healthPattern || r.pattern == readinessPattern }

// The scopes of a token.
const (
	ScopeSend    = views.ScopeSend
	ScopeRead    = views.ScopeRead
	ScopeOperate = views.ScopeOperate
)

// Scopes are all scopes.
func Scopes() []string { return views.Scopes() }

const (
	// eventsPattern is the route that an EventSource reads.
	eventsPattern    = "GET /v1/turns/{id}/events"
	healthPattern    = "GET /healthz"
	readinessPattern = "GET /readyz"
)

func (a *API) routes() []route {
	return []route{
		{"POST /v1/messages", ScopeSend, (*API).postMessage},
		{"GET /v1/messages", ScopeRead, (*API).listMessages},
		{"GET /v1/messages/{id}", ScopeSend, (*API).getMessage},
		{"POST /v1/messages/{id}/cancel", ScopeOperate, (*API).cancelMessage},
		{"GET /v1/transcript", ScopeRead, (*API).getTranscript},
		{"GET /v1/turns", ScopeRead, (*API).listTurns},
		{"GET /v1/turns/{id}", ScopeRead, (*API).getTurn},
		{eventsPattern, ScopeRead, (*API).getEvents},
		{"POST /v1/messages/retry", ScopeOperate, (*API).retryMessages},
		{"GET /v1/model-health", ScopeRead, (*API).listModelHealth},
		{"POST /v1/turns/{id}/cancel", ScopeOperate, (*API).cancelTurn},
		{"POST /v1/turns/{id}/retry", ScopeOperate, (*API).retryTurn},
		{"GET /v1/outbox", ScopeRead, (*API).listReplies},
		{"GET /v1/outputs/{id}", ScopeRead, (*API).getOutput},
		{"GET /v1/lanes", ScopeRead, (*API).listLanes},
		{"GET /v1/schedules", ScopeRead, (*API).listSchedules},
		{"POST /v1/schedules/{agent}/{name}/run", ScopeOperate, (*API).runSchedule},
		{"GET /v1/workers", ScopeRead, (*API).listWorkers},
		{"GET /v1/agents", ScopeRead, (*API).listAgents},
		{"GET /v1/webhooks", ScopeRead, (*API).listWebhooks},
		{"GET /v1/webhooks/{name}/deliveries", ScopeRead, (*API).listDeliveries},
		{"GET /v1/scheduler", ScopeRead, (*API).getScheduler},
		{"POST /v1/responses", ScopeSend, (*API).postResponse},
		{"GET /v1/responses/{id}", ScopeSend, (*API).getResponse},
		{"GET /v1/responses/{id}/input_items", ScopeSend, respond((*responses.API).Input)},
		{"POST /v1/responses/{id}/cancel", ScopeSend, respond((*responses.API).Cancel)},
		{"GET /v1/models", ScopeSend, respond((*responses.API).Models)},
		{"GET /v1/models/{id}", ScopeSend, respond((*responses.API).Model)},
		{"POST /v1/scheduler/pause", ScopeOperate, (*API).pauseScheduler},
		{"POST /v1/scheduler/resume", ScopeOperate, (*API).resumeScheduler},
		{"GET /metrics", ScopeRead, (*API).getMetrics},
		{"GET /openapi.json", "", (*API).getDescription},
		{healthPattern, "", (*API).getHealth},
		{readinessPattern, "", (*API).getReadiness},
	}
}

// Patterns are the methods and paths of the API, as net/http writes them. The page
// has others.
func (a *API) Patterns() (all []string) {
	for _, r := range a.routes() {
		all = append(all, r.pattern)
	}
	return all
}

// A call is one request on its way.
type call struct {
	w http.ResponseWriter
	*http.Request
	caller  caller
	forPage bool   // it is of the page, and not of the API
	session string // by which the caller is known; empty: not by one
}

// Handler answers requests.
func (a *API) Handler() http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, refusal(http.StatusForbidden, "a page of another origin may not do this"))
	}))
	return a.observed(timed(a.checkHost(origin.Handler(http.HandlerFunc(a.dispatch)))))
}

// writeTime is what a client may take for the whole of an ordinary answer, and
// for each piece of a stream.
const writeTime = 30 * time.Second

// timed bounds the time that a client may take, whoever it is and whatever becomes of its
// request. A body that nobody reads is bounded as well: net/http waits for it before it
// answers.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(writeTime + maxWait))
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(time.Now().Add(readTime))
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	p := unreadable(r.URL)
	if _, pattern := a.mux.Handler(r); p == nil && pattern == "" {
		p = a.noRoute(w, r)
	}
	switch {
	case p == nil:
		a.mux.ServeHTTP(w, r)
	case wantsPage(r):
		a.refusePage(&call{Request: r, w: w}, p)
	default:
		a.refuse(w, r, p)
	}
}

// unreadable refuses an address that says what nothing here is called, and that the
// database would not take: no NUL, no broken UTF-8, no broken escape.
func unreadable(u *url.URL) *problem {
	query, err := url.QueryUnescape(u.RawQuery)
	switch {
	case !isText(u.Path):
		return refusal(http.StatusNotFound, "there is nothing at this path: it is no text")
	case err != nil || !isText(query) || strings.Contains(u.RawQuery, ";"):
		return refusal(http.StatusBadRequest, "what follows the ? cannot be read: write it as name=value, with & between, and escapes of UTF-8")
	default:
		return nil
	}
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// noRoute says whether it is the path that is wrong or the method.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request) *problem {
	other := r.Clone(r.Context())
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return refusal(http.StatusNotFound, "%s", responses.NoPath(r.URL.Path))
	}
	methods := strings.Join(allowed, ", ")
	w.Header().Set("Allow", methods)
	return refusal(http.StatusMethodNotAllowed, "this path takes %s", methods)
}

// serve is a route with all that stands before it.
func (a *API) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.handle(route, &call{Request: r, w: w})
		if err == nil {
			return
		}
		p := a.problemOf(r, err)
		if p != nil && p.passes() && route.pattern == eventsPattern && wantsStream(r) {
			comeLater(w)
			return
		}
		a.refuse(w, r, p)
	})
}

// handle answers a request, or says why not.
func (a *API) handle(route route, c *call) error {
	if !route.probe() {
		select {
		case a.inProgress <- struct{}{}:
			defer func() { <-a.inProgress }()
		default:
			c.w.Header().Set("Retry-After", "1")
			return refusal(http.StatusServiceUnavailable, "%d requests are in progress, and there may be no more: try again in 1 s", a.cfg.Requests)
		}
	}
	if err := a.admit(c, route.scope); err != nil {
		return err
	}
	return route.handle(a, c)
}

// errGone says that the client is gone, or that the answer has begun: there is
// nothing more to say.
var errGone = errors.New("the answer has begun")

// endUnanswered cuts off who is gone. They may be there all the same, and have ended
// only what they send: a handler that just returned would answer them 200, whatever
// has become of what they asked for.
func endUnanswered(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if p == nil {
		endUnanswered(r)
		return
	}
	p.Detail = a.told(p)
	if responses.Speaks(r.URL.Path) {
		refuseResponse(w, r, p)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	if err := encode(w, p); err != nil {
		a.cfg.Log.Debug("an answer was not read", zap.Error(err))
	}
}
