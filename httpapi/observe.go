package httpapi

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// Watchers returns how many clients follow a turn's events.
func (a *API) Watchers() int { return a.events.hub.Watchers() }

// statusNone is the status of a request whose client was gone before the answer, as proxies log it.
const statusNone = 499

// observed reports every request and its answer to Observe.
func (a *API) observed(next http.Handler) http.Handler {
	if a.cfg.Observe == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, began := &recorded{ResponseWriter: w}, time.Now()
		method, route := a.routeOf(r)
		defer func() { a.cfg.Observe(method, route, cmp.Or(answer.status, statusNone), time.Since(began)) }()
		next.ServeHTTP(answer, r)
	})
}

// routeOf returns the method and path of the route that a request matches: those of the request itself
// can be anything.
func (a *API) routeOf(r *http.Request) (method, route string) {
	_, pattern := a.mux.Handler(r)
	if method, route, ok := strings.Cut(pattern, " "); ok {
		return method, route
	}
	return "_OTHER", ""
}

// A recorded answer keeps its status.
type recorded struct {
	http.ResponseWriter
	status int
}

// WriteHeader is of http.ResponseWriter.
func (a *recorded) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK { // 1xx comes before the final status
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write is of http.ResponseWriter.
func (a *recorded) Write(b []byte) (int, error) {
	a.status = cmp.Or(a.status, http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *recorded) Unwrap() http.ResponseWriter { return a.ResponseWriter }
