package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/httpapi/page"
	"turnkeeper/storage/operate"
)

// A TokenStore finds tokens and sessions.
type TokenStore interface {
	FindToken(ctx context.Context, secret string) (operate.Token, error)
	FindSession(ctx context.Context, session string) (operate.Token, error)
}

// admission authenticates the caller of a request and checks its scope and rate.
type admission struct {
	store     TokenStore
	limits    *limits
	rate      int      // requests per second and token
	needToken bool     // require a token from everybody
	hosts     []string // allowed host names, in addition to localhost
	log       *zap.Logger
	proxied   sync.Once // guards the warning about proxied requests
}

// admit authenticates the caller and checks scope and rate.
func (a *admission) admit(c *request.Call, route request.Route) error {
	if route.Scope == "" {
		return nil
	}
	if c.URL.Query().Has("access_token") || c.URL.Query().Has("token") {
		return request.Refuse(http.StatusBadRequest,
			"a token in the URL may end up in logs: send it as Authorization: Bearer TOKEN")
	}
	secret, given, err := bearer(c.Header)
	if err != nil {
		return err
	}
	if !given {
		if known, err := a.admitSession(c, route); known {
			return err
		}
		if a.needsToken(c) {
			return a.unknown(c, request.Refuse(http.StatusUnauthorized,
				"a token is required: send Authorization: Bearer TOKEN; \"turnctl tokens create\" creates one"))
		}
		return a.Take(c, c.Caller.Name())
	}
	// An address that sent too many unknown tokens is refused without a query.
	if from := c.From(); a.limits.blocks(from, secret) {
		return a.Take(c, from)
	}
	token, err := a.store.FindToken(c.Context(), secret)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		a.limits.forget(secret)
		return a.unknown(c, request.Refuse(http.StatusUnauthorized, "the token is unknown or has expired"))
	case err != nil:
		return err
	}
	a.limits.confirm(secret)
	return a.admitToken(c, token, route)
}

// needsToken reports whether a request needs a token. Without need_token, only a request from this
// machine needs none: sent to a local host name, and with no sign of a proxy.
func (a *admission) needsToken(c *request.Call) bool {
	if a.needToken {
		return true
	}
	why := passedOn(c.Request)
	if why == "" && !a.isLocalName(nameOf(c.Host)) {
		why = "its Host header is not a local name"
	}
	if why != "" {
		a.proxied.Do(func() {
			a.log.Warn(
				"a request came through a proxy or from another host, so it needs a token. A proxy that adds no header would "+
					"bypass this check: set allowed_hosts to its public names, which makes every request need a token",
				zap.String("because", why))
		})
	}
	return why != ""
}

// isLocalName reports whether a host is a loopback address, localhost or an allowed name.
func (a *admission) isLocalName(host string) bool {
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]")) // the zero address is not a loopback address
	return ip.Unmap().IsLoopback() || host == "localhost" || slices.Contains(a.hosts, host)
}

// nameOf returns the host name of a Host header: without port and final dot, in lower case.
func nameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix(request.HostOf(host), "."))
}

// admitToken checks the scope and the rate of a token.
func (a *admission) admitToken(c *request.Call, token operate.Token, route request.Route) error {
	c.Caller.Token = &token
	if !slices.ContainsFunc(route.Scopes(), c.Caller.May) {
		return request.Refuse(http.StatusForbidden, "this needs a token with the scope %q; this one has %s",
			route.Scope, strings.Join(token.Scopes, ", "))
	}
	if token.User != "" && !route.OfUser {
		return request.Refuse(http.StatusForbidden,
			"this token is bound to a user: use one that is not, because this is not about one user's messages, turns, replies or asks")
	}
	return a.Take(c, c.Caller.Name())
}

// admitSession admits a signed-in browser. A session may use the page, and read the API: only pages
// of this server send the cookie (SameSite). known is false if the request has no session, or an
// ended one where no token is needed.
func (a *admission) admitSession(c *request.Call, route request.Route) (known bool, _ error) {
	session := page.SessionOf(c.Request)
	if session == "" || !c.ForPage && c.Method != http.MethodGet && c.Method != http.MethodHead {
		return false, nil
	}
	from := c.From()
	if a.limits.blocks(from, session) {
		return true, a.Take(c, from)
	}
	token, err := a.store.FindSession(c.Context(), session)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		a.limits.forget(session)
		if !a.needsToken(c) {
			return false, nil
		}
		return true, a.unknown(c, request.Refuse(http.StatusUnauthorized, "the session has ended: sign in again"))
	}
	if err != nil {
		return true, err
	}
	a.limits.confirm(session)
	c.Session = session
	return true, a.admitToken(c, token, route)
}

// passedOn returns the sign that a request came through a proxy; empty: none.
func passedOn(r *http.Request) string {
	for name := range r.Header { // canonical form
		switch {
		case slices.Contains(proxyHeaders, name), strings.HasPrefix(name, "X-Forwarded-"),
			strings.HasPrefix(name, "X-Envoy-"):
			return "it has the header " + name
		}
	}
	if !r.ProtoAtLeast(1, 1) { // nginx uses HTTP/1.0 to its backends by default, and may add no header
		return "its protocol is " + r.Proto
	}
	return ""
}

// proxyHeaders lists headers that proxies add and clients do not.
var proxyHeaders = []string{
	"Cdn-Loop", "Cf-Connecting-Ip", "Cf-Ray", "Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "Forwarded",
	"True-Client-Ip", "Via",
	"X-Amzn-Trace-Id", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Forwarded",
	"X-Original-Forwarded-For",
	"X-Original-Host", "X-Real-Ip",
}

func bearer(h http.Header) (secret string, given bool, err error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", false, nil
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if secret = strings.TrimSpace(secret); len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", false, request.Refuse(http.StatusUnauthorized, "the header Authorization must be: Bearer TOKEN")
	}
	return secret, true, nil
}

// unknown refuses an unauthenticated caller, and counts the attempt against its address.
func (a *admission) unknown(c *request.Call, p *request.Problem) error {
	if err := a.Take(c, c.From()); err != nil {
		return err
	}
	c.W.Header().Set("WWW-Authenticate", `Bearer realm="turnkeeper"`)
	return p
}

// Take counts one request of a sender, or refuses it with 429 if there were too many.
func (a *admission) Take(c *request.Call, who string) error {
	if wait := a.limits.take(who); wait > 0 {
		seconds := int(wait.Seconds()) + 1
		c.W.Header().Set("Retry-After", strconv.Itoa(seconds))
		return request.Refuse(http.StatusTooManyRequests,
			"too many requests: the limit is %d per second; try again in %d s", a.rate, seconds)
	}
	return nil
}

// Spent reports whether a sender has reached its limit, and counts no request.
func (a *admission) Spent(who string) bool { return a.limits.exhausted(who) }

// checkHost refuses a host name that is not allowed, against DNS rebinding: a hostile page whose name
// resolves to this server sends its own name. An IP address cannot be rebound.
func (a *admission) checkHost(r *http.Request) *request.Problem {
	host := nameOf(r.Host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil && host != "localhost" && !slices.Contains(a.hosts, host) {
		return request.Refuse(http.StatusMisdirectedRequest, "this host name is not allowed: add it to allowed_hosts")
	}
	return nil
}
