package httpapi

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/storage"
)

// A caller is who asks.
type caller struct {
	token *storage.Token // nil: on loopback, without one; may do all
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
	if from := "from " + hostOf(c.RemoteAddr); a.limits.guesses(from, secret) {
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

// needsToken says that who sends none is not served.
func (a *API) needsToken(c *call) bool { return a.cfg.NeedToken || forwarded(c.Header) }

// admitToken holds a caller to what their token is for.
func (a *API) admitToken(c *call, token storage.Token, scope string) error {
	c.caller.token = &token
	// Who may read everything may read what a sender may, and send nothing.
	reads := scope == ScopeSend && (c.Method == http.MethodGet || c.Method == http.MethodHead)
	if !c.caller.may(scope) && (!reads || !c.caller.may(ScopeRead)) {
		return refusal(http.StatusForbidden, "this needs a token with the scope %q; this one has %s", scope, strings.Join(token.Scopes, ", "))
	}
	return a.limit(c, "token "+strconv.FormatInt(token.ID, 10))
}

// forwarded says that the request came through a proxy: it is of this machine only
// by its last step.
func forwarded(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if len(h.Values(name)) > 0 {
			return true
		}
	}
	return false
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
	if err := a.limit(c, "from "+hostOf(c.RemoteAddr)); err != nil {
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
		host := strings.ToLower(strings.TrimSuffix(hostOf(r.Host), "."))
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil && host != "localhost" && !slices.Contains(a.cfg.Hosts, host) {
			a.refuse(w, r, refusal(http.StatusMisdirectedRequest, "this server is not called that: allowed_hosts says by which names it may be"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
