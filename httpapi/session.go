package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/page"
)

const (
	sessionCookie = "turnkeeper_session"
	// sessionTime is how long a browser stays signed in.
	sessionTime = 12 * time.Hour
)

// admitSession admits a browser that is signed in. Its session serves the page, and
// reads of the API; nobody can send it from elsewhere, for a browser gives it to
// our own pages only. Where no token is needed, a session that has ended is none.
func (a *API) admitSession(c *call, scope string) (known bool, _ error) {
	session := c.sessionCookie()
	if session == "" || !c.forPage && c.Method != http.MethodGet && c.Method != http.MethodHead {
		return false, nil
	}
	from := c.from()
	if a.limits.guesses(from, session) {
		return true, a.limit(c, from)
	}
	token, err := a.cfg.Store.FindSession(c.Context(), session)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		a.limits.forget(session)
		if !a.needsToken(c) {
			return false, nil
		}
		return true, a.unknown(c, refusal(http.StatusUnauthorized, "the session has ended: sign in again"))
	}
	if err != nil {
		return true, err
	}
	a.limits.meet(session)
	c.session = session
	return true, a.admitToken(c, token, scope)
}

// sessionCookie is what the browser has; empty: nothing.
func (c *call) sessionCookie() string {
	cookie, err := c.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	return cookie.Value
}

func (a *API) askSignIn(c *call) error {
	return a.show(c, http.StatusOK, page.SignIn{Next: localPath(c.URL.Query().Get("next"))})
}

// signIn takes a token, once, and gives the browser a session.
func (a *API) signIn(c *call) error {
	if err := c.form(); err != nil {
		return err
	}
	next := localPath(c.PostForm.Get("next"))
	from := c.from()
	if a.limits.spent(from) {
		return a.limit(c, from)
	}
	token, session, err := a.cfg.Store.SignIn(c.Context(), strings.TrimSpace(c.PostForm.Get("token")), sessionTime)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		if err := a.limit(c, from); err != nil {
			return err
		}
		return a.show(c, http.StatusUnauthorized, page.SignIn{Next: next, Wrong: "The token is not known, or has expired."})
	}
	if err != nil {
		return err
	}
	if !slices.Contains(token.Scopes, ScopeRead) {
		if err := a.cfg.Store.SignOut(c.Context(), session); err != nil {
			return err
		}
		return a.show(c, http.StatusForbidden, page.SignIn{Next: next, Wrong: "The page needs a token with the scope read; this one has " + strings.Join(token.Scopes, ", ") + "."})
	}
	c.setSession(session, int(sessionTime/time.Second))
	return c.goTo(next)
}

func (a *API) signOut(c *call) error {
	if err := c.form(); err != nil {
		return err
	}
	if err := a.cfg.Store.SignOut(c.Context(), c.sessionCookie()); err != nil {
		return err
	}
	c.setSession("", -1)
	return c.goTo("/sign-in")
}

func (c *call) setSession(value string, seconds int) {
	http.SetCookie(c.w, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: c.behindTLS(),
	})
}

// behindTLS says that the browser came by TLS, to the proxy before us.
func (c *call) behindTLS() bool {
	return c.TLS != nil || strings.EqualFold(c.Header.Get("X-Forwarded-Proto"), "https") ||
		strings.Contains(strings.ToLower(c.Header.Get("Forwarded")), "proto=https") || strings.HasPrefix(c.Header.Get("Origin"), "https://")
}

// localPath is where a browser may be sent: a path of ours, or else the overview.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") ||
		path.Clean(u.Path) == "/sign-in" {
		return "/"
	}
	return u.RequestURI()
}
