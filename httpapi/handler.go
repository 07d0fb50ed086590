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
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/page"
	"turnkeeper/httpapi/responses"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// Handler returns what answers all requests.
func (a *API) Handler() http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, request.Refuse(http.StatusForbidden, "a page of another origin may not do this"))
	}))
	return a.observed(withTimeouts(a.checkedHost(origin.Handler(http.HandlerFunc(a.dispatch)))))
}

// writeTimeout is what a client may take for the whole of an ordinary answer, and
// for each piece of a stream.
const writeTimeout = 30 * time.Second

// withTimeouts bounds the time that a client may take, even for a body that no handler reads: net/http
// waits for it before it answers.
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

// checkedHost refuses requests to a host of another name.
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

// checkAddress refuses a path or query that the database would not accept: with NUL, invalid UTF-8 or an
// invalid escape.
func checkAddress(u *url.URL) *request.Problem {
	query, err := url.QueryUnescape(u.RawQuery)
	switch {
	case !request.IsText(u.Path):
		return request.Refuse(http.StatusNotFound, "there is nothing at this path: it is no text")
	case err != nil || !request.IsText(query) || strings.Contains(u.RawQuery, ";"):
		return request.Refuse(http.StatusBadRequest, "what follows the ? cannot be read: write it as name=value, with & between, and escapes of UTF-8")
	default:
		return nil
	}
}

// noRoute refuses a request that no route matches: 404, or 405 where the path has other methods.
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
	return request.Refuse(http.StatusMethodNotAllowed, "this path takes %s", methods)
}

// serve handles a route of the API.
func (a *API) serve(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.handle(route, &request.Call{Request: r, W: w})
		if err == nil {
			return
		}
		p := a.problemOf(r, err)
		if p != nil && p.Temporary() && route.eventSource && wantsStream(r) {
			retryLater(w)
			return
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

// handle admits a request and answers it.
func (a *API) handle(route Route, c *request.Call) error {
	if !route.probe {
		select {
		case a.inProgress <- struct{}{}:
			defer func() { <-a.inProgress }()
		default:
			c.W.Header().Set("Retry-After", "1")
			return request.Refuse(http.StatusServiceUnavailable, "%d requests are in progress, and there may be no more: try again in 1 s", a.cfg.Requests)
		}
	}
	if err := a.admission.admit(c, route.Route); err != nil {
		return err
	}
	if err := route.checkQuery(c.URL.Query()); err != nil {
		return err
	}
	return route.Handle(c)
}

// checkQuery refuses a parameter that the route does not know, or that is given twice: ignoring it would
// answer another question. The page, probes and what other programs define (Prometheus, OpenAI's clients,
// replacements of EventSource) may have more.
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
		case !slices.Contains(known, name) && len(known) == 0:
			return request.Refuse(http.StatusBadRequest, "unknown parameter %.80q: this path takes none", name)
		case !slices.Contains(known, name):
			return request.Refuse(http.StatusBadRequest, "unknown parameter %.80q: this path takes %s", name, strings.Join(known, ", "))
		case len(query[name]) > 1:
			return request.Refuse(http.StatusBadRequest, "the parameter %s is given twice", name)
		}
	}
	return nil
}

// abortIfGone closes the connection of a client that is gone. It may only have closed its sending side: a
// handler that just returned would answer it 200, whatever has become of the request.
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
		a.cfg.Log.Debug("an answer was not read", zap.Error(err))
	}
}

// refusePage is refuse for what a browser shows.
func (a *API) refusePage(c *request.Call, p *request.Problem) {
	if p == nil {
		abortIfGone(c.Request)
		return
	}
	a.page.Refuse(c, p)
}

// conditions are the errors whose text is for the client.
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
	{operate.ErrHeldUp, http.StatusServiceUnavailable},
}

// problemOf returns the problem that an error is answered with; nil: the client is gone.
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
		return request.Refuse(http.StatusNotFound, "there is nothing with this id")
	}
	said := "this cannot be answered now; the server's log says why"
	if storage.Away(err) {
		said = "the database cannot be reached, or does not answer; try again in a moment. The server's log says more"
	}
	a.cfg.Log.Error("a request could not be answered", zap.String("pattern", r.Pattern), zap.String("error", a.cfg.Mask(err.Error())))
	return request.Refuse(http.StatusServiceUnavailable, "%s", said)
}
