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

// admission lets requests in: it finds out who sends them, whether they may, and how often.
type admission struct {
	store     TokenStore
	limits    *limits
	rate      int      // requests a second of one token
	needToken bool     // nobody is served without one
	hosts     []string // names, beside localhost, by which the API may be called
	log       *zap.Logger
	proxied   sync.Once // a request that came through a proxy was warned of
}

// admit identifies the caller, and checks scope and rate.
func (a *admission) admit(c *request.Call, route request.Route) error {
	if route.Scope == "" {
		return nil
	}
	if c.URL.Query().Has("access_token") || c.URL.Query().Has("token") {
		return request.Refuse(http.StatusBadRequest, "a token does not belong into a URL, where others read it: send it as Authorization: Bearer TOKEN")
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
			return a.unknown(c, request.Refuse(http.StatusUnauthorized, "a token is needed: send Authorization: Bearer TOKEN; \"turnctl tokens create\" makes one"))
		}
		return a.Take(c, "")
	}
	// A sender of too many unknown tokens is refused before the database is asked.
	if from := c.From(); a.limits.blocks(from, secret) {
		return a.Take(c, from)
	}
	token, err := a.store.FindToken(c.Context(), secret)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		a.limits.forget(secret)
		return a.unknown(c, request.Refuse(http.StatusUnauthorized, "the token is not known, or has expired"))
	case err != nil:
		return err
	}
	a.limits.confirm(secret)
	return a.admitToken(c, token, route)
}

// needsToken reports whether a request needs a token. Without need_token only a request of this machine
// needs none: it is sent to a local name, and shows no proxy.
func (a *admission) needsToken(c *request.Call) bool {
	if a.needToken {
		return true
	}
	why := passedOn(c.Request)
	if why == "" && !a.isLocalName(nameOf(c.Host)) {
		why = "its Host is not a name of this machine"
	}
	if why != "" {
		a.proxied.Do(func() {
			a.log.Warn("a request did not come straight from this machine, and needs a token. A proxy may send requests that "+
				"do not show it, and need none: set allowed_hosts to the names by which it is called, and every request needs a token",
				zap.String("because", why))
		})
	}
	return why != ""
}

// isLocalName reports whether a client on this machine may use this host.
func (a *admission) isLocalName(host string) bool {
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]")) // the zero address is not a loopback address
	return ip.Unmap().IsLoopback() || host == "localhost" || slices.Contains(a.hosts, host)
}

// nameOf returns the host of the header Host in the form in which names are compared.
func nameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix(request.HostOf(host), "."))
}

// admitToken checks the scope and the rate of a token.
func (a *admission) admitToken(c *request.Call, token operate.Token, route request.Route) error {
	c.Caller.Token = &token
	if !slices.ContainsFunc(route.Scopes(), c.Caller.May) {
		return request.Refuse(http.StatusForbidden, "this needs a token with the scope %q; this one has %s", route.Scope, strings.Join(token.Scopes, ", "))
	}
	return a.Take(c, "token "+strconv.FormatInt(token.ID, 10))
}

// admitSession admits a browser that is signed in. Its session serves the page, and
// reads of the API: the cookie is sent by pages of this server only (SameSite). Where no token is
// needed, a session that has ended counts as none.
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

// passedOn returns how a request shows that it came through a proxy; empty: it does not.
func passedOn(r *http.Request) string {
	for name := range r.Header { // in canonical form
		switch {
		case slices.Contains(proxyHeaders, name), strings.HasPrefix(name, "X-Forwarded-"), strings.HasPrefix(name, "X-Envoy-"):
			return "it has the header " + name
		}
	}
	if !r.ProtoAtLeast(1, 1) { // nginx speaks so to what is behind it, and may send no header
		return "it speaks " + r.Proto
	}
	return ""
}

// proxyHeaders are headers that proxies add, and clients do not.
var proxyHeaders = []string{
	"Cdn-Loop", "Cf-Connecting-Ip", "Cf-Ray", "Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "Forwarded", "True-Client-Ip", "Via",
	"X-Amzn-Trace-Id", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Forwarded", "X-Original-Forwarded-For",
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

// unknown refuses a caller who is not identified, and counts the attempt.
func (a *admission) unknown(c *request.Call, p *request.Problem) error {
	if err := a.Take(c, c.From()); err != nil {
		return err
	}
	c.W.Header().Set("WWW-Authenticate", `Bearer realm="turnkeeper"`)
	return p
}

// Take takes one request of a sender, or refuses where there were too many.
func (a *admission) Take(c *request.Call, who string) error {
	if wait := a.limits.take(who); wait > 0 {
		seconds := int(wait.Seconds()) + 1
		c.W.Header().Set("Retry-After", strconv.Itoa(seconds))
		return request.Refuse(http.StatusTooManyRequests, "too many requests: at most %d a second; try again in %d s", a.rate, seconds)
	}
	return nil
}

// Spent reports whether a sender has no request left, and takes none.
func (a *admission) Spent(who string) bool { return a.limits.exhausted(who) }

// checkHost refuses a host name that is not allowed: a page whose name was made to resolve to this
// server (DNS rebinding) would send it. An address cannot be such a name.
func (a *admission) checkHost(r *http.Request) *request.Problem {
	host := nameOf(r.Host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil && host != "localhost" && !slices.Contains(a.hosts, host) {
		return request.Refuse(http.StatusMisdirectedRequest, "this host name is not allowed: add it to allowed_hosts")
	}
	return nil
}
