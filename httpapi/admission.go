package httpapi

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// A caller is who asks.
type caller struct {
	token *operate.Token // nil: on loopback, without one; may do all
}

func (c caller) may(scope string) bool {
	return c.token == nil || slices.Contains(c.token.Scopes, scope)
}

// sees says that what is the agent's may be shown, and asked for.
func (c caller) sees(agent string) bool { return c.seesAll() || slices.Contains(c.token.Agents, agent) }

func (c caller) seesAll() bool { return c.token == nil || c.token.Agents == nil }

// admit finds out who asks, and whether they may.
func (a *API) admit(c *call, scope string) error {
	if scope == "" {
		return nil
	}
	if c.URL.Query().Has("access_token") || c.URL.Query().Has("token") {
		return refusal(http.StatusBadRequest, "a token does not belong into a URL, where others read it: send it as Authorization: Bearer TOKEN")
	}
	secret, given, err := bearer(c.Header)
	if err != nil {
		return err
	}
	if !given {
		if known, err := a.admitSession(c, scope); known || err != nil {
			return err
		}
		if a.needsToken(c) {
			return a.unknown(c, refusal(http.StatusUnauthorized, "a token is needed: send Authorization: Bearer TOKEN; \"turnctl tokens create\" makes one"))
		}
		return a.limit(c, "")
	}
	// Who has guessed too often is refused before the database is asked.
	if from := c.from(); a.limits.guesses(from, secret) {
		return a.limit(c, from)
	}
	token, err := a.cfg.Store.FindToken(c.Context(), secret)
	switch {
	case errors.Is(err, turnkeeper.ErrNotFound):
		a.limits.forget(secret)
		return a.unknown(c, refusal(http.StatusUnauthorized, "the token is not known, or has expired"))
	case err != nil:
		return err
	}
	a.limits.meet(secret)
	return a.admitToken(c, token, scope)
}

// needsToken says that who sends none is not served. Where none is needed, it is for requests of
// this machine alone: they are sent to a name of it, by nobody else.
func (a *API) needsToken(c *call) bool {
	if a.cfg.NeedToken {
		return true
	}
	why := passedOn(c.Request)
	if why == "" && !a.isLocalName(nameOf(c.Host)) {
		why = "its Host is not a name of this machine"
	}
	if why != "" {
		a.proxied.Do(func() {
			a.cfg.Log.Warn("a request did not come straight from this machine, and needs a token. A proxy may send requests that "+
				"do not show it, and need none: set allowed_hosts to the names by which it is called, and every request needs a token",
				zap.String("because", why))
		})
	}
	return why != ""
}

// isLocalName says that a client on this machine calls it so.
func (a *API) isLocalName(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost" || slices.Contains(a.cfg.Hosts, host)
}

// nameOf is the host of the header Host, as names are compared.
func nameOf(host string) string { return strings.ToLower(strings.TrimSuffix(hostOf(host), ".")) }

// admitToken holds a caller to what their token is for.
func (a *API) admitToken(c *call, token operate.Token, scope string) error {
	c.caller.token = &token
	// Who may read everything may read what a sender may, and send nothing.
	reads := scope == ScopeSend && (c.Method == http.MethodGet || c.Method == http.MethodHead)
	if !c.caller.may(scope) && (!reads || !c.caller.may(ScopeRead)) {
		return refusal(http.StatusForbidden, "this needs a token with the scope %q; this one has %s", scope, strings.Join(token.Scopes, ", "))
	}
	return a.limit(c, "token "+strconv.FormatInt(token.ID, 10))
}

// passedOn says how a request shows that it came through a proxy: it is of this machine only by its
// last step. Empty: it does not show it.
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
		return "", false, refusal(http.StatusUnauthorized, "the header Authorization must be: Bearer TOKEN")
	}
	return secret, true, nil
}

// unknown refuses who is not known, or who has tried that too often.
func (a *API) unknown(c *call, p *problem) error {
	if err := a.limit(c, c.from()); err != nil {
		return err
	}
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="turnkeeper"`)
	return p
}

func (a *API) limit(c *call, who string) error {
	if wait := a.limits.take(who); wait > 0 {
		seconds := int(wait.Seconds()) + 1
		c.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		return refusal(http.StatusTooManyRequests, "too many requests: at most %d a second; try again in %d s", a.cfg.Rate, seconds)
	}
	return nil
}

// checkHost refuses requests to a name that is not ours: a page whose name was
// made to point here would send them. An address as the host cannot be such a name.
func (a *API) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := nameOf(r.Host)
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil && host != "localhost" && !slices.Contains(a.cfg.Hosts, host) {
			a.refuse(w, r, refusal(http.StatusMisdirectedRequest, "this server is not called that: allowed_hosts says by which names it may be"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// from is where a request comes from, as its bucket is called. Who has one address of version 6
// has at least 2^64 of them: they count as one.
func (c *call) from() string {
	host := hostOf(c.RemoteAddr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return "from " + network.String()
		}
	}
	return "from " + host
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
