package page

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/internal/request"
)

const (
	sessionCookie = "turnkeeper_session"
	// sessionTime is the lifetime of a session.
	sessionTime = 12 * time.Hour
)

// SessionOf returns the session in a request's cookie; empty: none.
func SessionOf(r *http.Request) string {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	return cookie.Value
}

func (h *Handler) askSignIn(c *request.Call) error {
	return h.show(c, http.StatusOK, SignIn{Next: localPath(c.URL.Query().Get("next"))})
}

// signIn exchanges a token for a session.
func (h *Handler) signIn(c *request.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	next := localPath(c.PostForm.Get("next"))
	from := c.From()
	if h.cfg.Limits.Spent(from) {
		return h.cfg.Limits.Take(c, from)
	}
	token, session, err := h.cfg.Store.SignIn(c.Context(), strings.TrimSpace(c.PostForm.Get("token")), sessionTime)
	if errors.Is(err, turnkeeper.ErrNotFound) {
		if err := h.cfg.Limits.Take(c, from); err != nil {
			return err
		}
		return h.show(c, http.StatusUnauthorized, SignIn{Next: next, Wrong: "The token is unknown or has expired."})
	}
	if err != nil {
		return err
	}
	if !slices.Contains(token.Scopes, request.ScopeRead) {
		if err := h.cfg.Store.SignOut(c.Context(), session); err != nil {
			return err
		}
		return h.show(c, http.StatusForbidden, SignIn{Next: next,
			Wrong: "The page requires a token with the scope read; this one has " +
				strings.Join(token.Scopes, ", ") + "."})
	}
	if token.User != "" {
		if err := h.cfg.Store.SignOut(c.Context(), session); err != nil {
			return err
		}
		return h.show(c, http.StatusForbidden, SignIn{Next: next,
			Wrong: "The page is for operators; this token is bound to a user."})
	}
	setSession(c, session, int(sessionTime/time.Second))
	return c.GoTo(next)
}

func (h *Handler) signOut(c *request.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if err := h.cfg.Store.SignOut(c.Context(), SessionOf(c.Request)); err != nil {
		return err
	}
	setSession(c, "", -1)
	return c.GoTo("/sign-in")
}

func setSession(c *request.Call, value string, seconds int) {
	http.SetCookie(c.W, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: behindTLS(c.Request),
	})
}

// behindTLS reports whether the browser used TLS, to this server or to a proxy in front of it.
func behindTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") ||
		strings.Contains(strings.ToLower(r.Header.Get("Forwarded")), "proto=https") ||
		strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

// localPath returns next if it is a path of this server other than the sign-in page, else "/". It prevents open
// redirects.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next,
		"\\\r\n\t") ||
		path.Clean(u.Path) == "/sign-in" {
		return "/"
	}
	return u.RequestURI()
}
