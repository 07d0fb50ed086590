package httpapi

import (
	"cmp"
	"net/http"
	"strings"
	"time"
)

// Watchers is how many clients follow a turn's events.
func (a *API) Watchers() int { return a.events.hub.Watchers() }

// statusNone stands for the status of a request whose client was gone before there was
// an answer, as proxies have it.
const statusNone = 499

// observed tells of every request and its answer.
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

// routeOf is what a request asks for, in words that there are few of: a method and
// a path can be anything.
func (a *API) routeOf(r *http.Request) (method, route string) {
	_, pattern := a.mux.Handler(r)
	if method, route, ok := strings.Cut(pattern, " "); ok {
		return method, route
	}
	return "_OTHER", ""
}

// A recorded answer remembers its status.
type recorded struct {
	http.ResponseWriter
	status int
}

// WriteHeader is of http.ResponseWriter.
func (a *recorded) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK { // those before are not the last word
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
