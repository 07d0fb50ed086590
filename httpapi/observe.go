package httpapi

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// Watchers returns the number of clients that follow the events of a turn.
func (a *API) Watchers() int { return a.events.hub.Watchers() }

// statusNone is the status reported when the client disconnected before the response; nginx logs 499 too.
const statusNone = 499

// observed calls Observe after every request.
func (a *API) observed(next http.Handler) http.Handler {
	if a.cfg.Observe == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, began := &recorded{ResponseWriter: w}, time.Now()
		method, route := a.routeOf(r)
		defer func() { a.cfg.Observe(method, route, cmp.Or(response.status, statusNone), time.Since(began)) }()
		next.ServeHTTP(response, r)
	})
}

// routeOf returns the method and path of the route that a request matches. Those of the request itself
// have no bounded set of values, as metric labels need.
func (a *API) routeOf(r *http.Request) (method, route string) {
	_, pattern := a.mux.Handler(r)
	if method, route, ok := strings.Cut(pattern, " "); ok {
		return method, route
	}
	return "_OTHER", ""
}

// recorded is a ResponseWriter that records the status.
type recorded struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *recorded) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK { // 1xx comes before the final status
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *recorded) Write(b []byte) (int, error) {
	a.status = cmp.Or(a.status, http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *recorded) Unwrap() http.ResponseWriter { return a.ResponseWriter }
