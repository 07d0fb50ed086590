// Package request is what the handlers of the API and of the page have in common: a
// request on its way, who sent it, its parameters and body, and the problems that it
// is answered with. It reads nothing but the request.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// The scopes of a token.
const (
	ScopeSend    = views.ScopeSend
	ScopeRead    = views.ScopeRead
	ScopeOperate = views.ScopeOperate
)

// A Route is one method of one path, as net/http's patterns write it.
type Route struct {
	Method, Path string
	Scope        string // that a token needs; empty: the route is for everybody
	Handle       func(*Call) error
}

// Pattern returns the route's pattern for a ServeMux.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Scopes returns the scopes of which a token needs one; nil: the route is for everybody.
// Who may read everything may read what a sender may, and send nothing.
func (r Route) Scopes() []string {
	switch {
	case r.Scope == "":
		return nil
	case r.Scope == ScopeSend && r.Method == http.MethodGet:
		return []string{ScopeSend, ScopeRead}
	default:
		return []string{r.Scope}
	}
}

// A Caller is who sent a request.
type Caller struct {
	Token *operate.Token // nil: on loopback, without one; may do all
}

// May reports whether the caller has a scope.
func (c Caller) May(scope string) bool {
	return c.Token == nil || slices.Contains(c.Token.Scopes, scope)
}

// Sees reports whether the caller may see, and ask for, what is the agent's.
func (c Caller) Sees(agent string) bool { return c.SeesAll() || slices.Contains(c.Token.Agents, agent) }

// SeesAll reports whether the caller sees every agent.
func (c Caller) SeesAll() bool { return c.Token == nil || c.Token.Agents == nil }

// A Call is one request on its way.
type Call struct {
	W http.ResponseWriter
	*http.Request
	Caller  Caller
	ForPage bool   // it is of the page, and not of the API
	Session string // by which the caller is known; empty: not by one
}

// ErrGone is returned when the client is gone, or the answer has begun: nothing more
// can be said.
var ErrGone = errors.New("the answer has begun")

// Answer writes a value as JSON.
func (c *Call) Answer(status int, value any) error {
	c.W.Header().Set("Content-Type", "application/json")
	c.W.WriteHeader(status)
	if err := Encode(c.W, value); err != nil {
		return ErrGone
	}
	return nil
}

// Content writes content of a media type.
func (c *Call) Content(mediaType string, content []byte) error {
	c.W.Header().Set("Content-Type", mediaType)
	if _, err := c.W.Write(content); err != nil {
		return ErrGone
	}
	return nil
}

// GoTo redirects a browser to a path of this server.
func (c *Call) GoTo(path string) error {
	c.W.Header().Set("Location", path)
	c.W.WriteHeader(http.StatusSeeOther)
	return nil
}

// Encode writes a value as JSON on one line, with its end.
func Encode(w io.Writer, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
