package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/page"
	"turnkeeper/httpapi/responses"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// Handler returns the handler of all requests.
func (a *API) Handler() http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, request.Refuse(http.StatusForbidden, "cross-origin requests are not allowed"))
	}))
	return a.observed(withTimeouts(a.checkedHost(origin.Handler(http.HandlerFunc(a.dispatch)))))
}

// writeTimeout is the time a client has to read an ordinary response, or one piece of a stream.
const writeTimeout = 30 * time.Second

// withTimeouts bounds the time for a client to send and read. It covers a body that no handler reads
// too: net/http reads it before it answers.
func withTimeouts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout + request.MaxWait))
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(time.Now().Add(request.BodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// checkedHost refuses requests to a host name that is not allowed.
func (a *API) checkedHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := a.admission.checkHost(r); p != nil {
			a.refuse(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	p := checkAddress(r.URL)
	if _, pattern := a.mux.Handler(r); p == nil && pattern == "" {
		p = a.noRoute(w, r)
	}
	switch {
	case p == nil:
		a.mux.ServeHTTP(w, r)
	case page.Wanted(r):
		a.refusePage(&request.Call{Request: r, W: w}, p)
	default:
		a.refuse(w, r, p)
	}
}

// checkAddress refuses a path or query that Postgres would refuse as text: with NUL, invalid UTF-8 or
// an invalid escape.
func checkAddress(u *url.URL) *request.Problem {
	query, err := url.QueryUnescape(u.RawQuery)
	switch {
	case !request.IsText(u.Path):
		return request.Refuse(http.StatusNotFound, "the path is not valid UTF-8 text")
	case err != nil || !request.IsText(query) || strings.Contains(u.RawQuery, ";"):
		return request.Refuse(http.StatusBadRequest,
			"the query string is invalid: write name=value pairs separated by &, percent-encoded as UTF-8")
	default:
		return nil
	}
}

// noRoute refuses a request that no route matches: with 405 if the path has other methods, else with 404.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request) *request.Problem {
	other := r.Clone(r.Context())
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return request.Refuse(http.StatusNotFound, "%s", responses.NoPath(r.URL.Path))
	}
	methods := strings.Join(allowed, ", ")
	w.Header().Set("Allow", methods)
	return request.Refuse(http.StatusMethodNotAllowed, "method not allowed: use %s", methods)
}

// serve handles a route of the API.
func (a *API) serve(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.handle(route, &request.Call{Request: r, W: w})
		if err == nil {
			return
		}
		p := a.problemOf(r, err)
		if p != nil && p.Temporary() && !p.Lasts && route.eventSource && wantsStream(r) {
			retryLater(w)
			p = nil
		}
		if p == nil && route.abortsEarly {
			panic(http.ErrAbortHandler)
		}
		a.refuse(w, r, p)
	})
}

// servePage handles a route of the page.
func (a *API) servePage(route request.Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page.SetHeaders(w.Header())
		c := &request.Call{Request: r, W: w, ForPage: true}
		if err := a.handle(Route{Route: route}, c); err != nil {
			a.refusePage(c, a.problemOf(r, err))
		}
	})
}

// handle admits a request and answers it. If its queries take longer than QueryTimeout, the error matches
// request.ErrQueryTimeout.
func (a *API) handle(route Route, c *request.Call) error {
	if !route.probe {
		select {
		case a.inProgress <- struct{}{}:
			defer func() { <-a.inProgress }()
		default:
			c.W.Header().Set("Retry-After", "1")
			return request.Refuse(http.StatusServiceUnavailable,
				"%d requests are in progress, which is the limit: try again in 1 s", a.cfg.Requests)
		}
	}
	return c.WithinTimeout(a.cfg.QueryTimeout, func() error {
		if err := a.admission.admit(c, route.Route); err != nil {
			return err
		}
		if err := route.checkQuery(c.URL.Query()); err != nil {
			return err
		}
		return c.WithStreams(a.streams, func() error { return route.Handle(c) })
	})
}

// checkQuery refuses an unknown, empty or repeated parameter: ignoring a filter would answer another question.
// The page, probes and routes whose clients are defined by others (Prometheus, OpenAI's clients) accept
// unknown parameters, and event sources those that polyfills of EventSource add.
func (r Route) checkQuery(query url.Values) error {
	if !r.strictQuery {
		return nil
	}
	var known []string
	for _, p := range r.Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case r.eventSource && slices.Contains(polyfilled, name):
		case !slices.Contains(known, name) && len(known) == 0:
			return request.Refuse(http.StatusBadRequest, "unknown parameter %.80q: this path has no parameters", name)
		case !slices.Contains(known, name):
			return request.Refuse(http.StatusBadRequest, "unknown parameter %.80q: this path has %s", name,
				strings.Join(known, ", "))
		case len(query[name]) > 1:
			return request.Refuse(http.StatusBadRequest, "the parameter %s is repeated", name)
		case query.Get(name) == "" && name != "user": // an empty user with a conversation is no user
			return request.Refuse(http.StatusBadRequest, "the parameter %s is empty: leave it out", name)
		}
	}
	return nil
}

// polyfilled lists the parameters that polyfills of EventSource add to a URL.
var polyfilled = []string{"lastEventId", "evs_last_event_id", "evs_preamble", "r", "_"}

// abortIfGone closes the connection of a client that has disconnected. The client may have closed only
// its sending side: if the handler returned normally, it would read status 200.
func abortIfGone(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, p *request.Problem) {
	if p == nil {
		abortIfGone(r)
		return
	}
	p.Detail = p.Masked(a.cfg.Mask)
	if responses.Speaks(r.URL.Path) {
		refuseResponse(w, r, p)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	if err := request.Encode(w, p); err != nil {
		a.cfg.Log.Debug("could not write an error response", zap.Error(err))
	}
}

// refusePage is refuse for the page: it answers with HTML.
func (a *API) refusePage(c *request.Call, p *request.Problem) {
	if p == nil {
		abortIfGone(c.Request)
		return
	}
	a.page.Refuse(c, p)
}

// conditions maps errors whose text is for the client to a status.
var conditions = []struct {
	err    error
	status int
}{
	{turnkeeper.ErrEmptyMessage, http.StatusUnprocessableEntity},
	{turnkeeper.ErrInvalidMessage, http.StatusUnprocessableEntity},
	{turnkeeper.ErrUnknownAgent, http.StatusUnprocessableEntity},
	{turnkeeper.ErrAgentRetired, http.StatusConflict},
	{turnkeeper.ErrKeyConflict, http.StatusConflict},
	{turnkeeper.ErrWrongState, http.StatusConflict},
	{asks.ErrClosed, http.StatusConflict},
	{asks.ErrInvalid, http.StatusBadRequest},
	{operate.ErrTooManyConversations, http.StatusUnprocessableEntity},
	{operate.ErrHeldUp, http.StatusServiceUnavailable},
	{operate.ErrTickGoesOn, http.StatusServiceUnavailable},
}

// problemOf returns the problem to answer an error with; nil: the client has disconnected.
func (a *API) problemOf(r *http.Request, err error) *request.Problem {
	if p, ok := errors.AsType[*request.Problem](err); ok {
		return p
	}
	if errors.Is(err, request.ErrGone) || errors.Is(context.Cause(r.Context()), context.Canceled) {
		return nil
	}
	for _, condition := range conditions {
		if errors.Is(err, condition.err) {
			return request.Refuse(condition.status, "%s", err)
		}
	}
	if errors.Is(err, turnkeeper.ErrNotFound) {
		return request.Refuse(http.StatusNotFound, "nothing has this id")
	}
	detail := "the request failed; see the server's log"
	if storage.Away(err) || errors.Is(err, request.ErrQueryTimeout) {
		detail = "the database does not answer: try again later; see the server's log"
	}
	a.cfg.Log.Error("request failed", zap.String("pattern", r.Pattern), zap.String("error", a.cfg.Mask(err.Error())))
	return request.Refuse(http.StatusServiceUnavailable, "%s", detail)
}
