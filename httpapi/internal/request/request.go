// Package request reads requests for the handlers of the API and the page: the caller, parameters and
// body, and the problems that answer a bad request. It does not use the store.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// The scopes of a token.
const (
	ScopeSend    = views.ScopeSend
	ScopeRead    = views.ScopeRead
	ScopeOperate = views.ScopeOperate
	ScopeAnswer  = views.ScopeAnswer
)

// A Route is one method of one path, in the syntax of http.ServeMux.
type Route struct {
	Method, Path string
	Scope        string // required scope of the token; empty: no token is needed
	// OfUser says that a token that is bound to a user may use the route: its handler shows nothing of other users.
	// Such a token is refused everywhere else.
	OfUser bool
	Handle func(*Call) error
}

// Pattern returns the route's pattern for http.ServeMux.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Scopes returns the scopes of which a token needs one; nil: no token is needed. The scope read
// includes the GET routes of the scopes send and
// answer.
func (r Route) Scopes() []string {
	switch {
	case r.Scope == "":
		return nil
	case (r.Scope == ScopeSend || r.Scope == ScopeAnswer) && r.Method == http.MethodGet:
		return []string{r.Scope, ScopeRead}
	default:
		return []string{r.Scope}
	}
}

// A Caller is the sender of a request.
type Caller struct {
	Token *operate.Token // nil: a local request without a token, which may do everything
}

// May reports whether the caller has a scope.
func (c Caller) May(scope string) bool {
	return c.Token == nil || slices.Contains(c.Token.Scopes, scope)
}

// User returns the user that the caller's token is bound to; empty: none, and it covers all.
func (c Caller) User() string {
	if c.Token == nil {
		return ""
	}
	return c.Token.User
}

// SeesWords reports whether the caller's token covers a conversation: its agent and its user.
func (c Caller) SeesWords(of turnkeeper.ConversationKey) bool {
	return c.Sees(of.Agent) && (c.User() == "" || c.User() == of.User)
}

// Sees reports whether the caller's token covers an agent.
func (c Caller) Sees(agent string) bool { return c.SeesAll() || slices.Contains(c.Token.Agents, agent) }

// SeesAll reports whether the caller's token covers all agents.
func (c Caller) SeesAll() bool { return c.Token == nil || c.Token.Agents == nil }

// TokenID returns the id of the caller's token; 0: a local request without a token.
func (c Caller) TokenID() int64 {
	if c.Token == nil {
		return 0
	}
	return c.Token.ID
}

// Name returns the key of the caller for limits: of its token, or empty for all requests without one.
func (c Caller) Name() string {
	if c.Token == nil {
		return ""
	}
	return "token " + strconv.FormatInt(c.Token.ID, 10)
}

// A Call is one request and the writer of its response.
type Call struct {
	W http.ResponseWriter
	*http.Request
	Caller  Caller
	ForPage bool   // the request is for the page, not the API
	Session string // session of the caller; empty: none

	streams   *Streams
	streaming bool // it is counted in streams

	timeout *time.Timer   // ends the context; nil: no timeout
	limit   time.Duration // of timeout
}

// ErrGone says that no error can be sent: the client has disconnected, or the response has begun.
var ErrGone = errors.New("the response has begun")

// Respond writes a status and a value as JSON.
func (c *Call) Respond(status int, value any) error {
	c.W.Header().Set("Content-Type", "application/json")
	c.W.WriteHeader(status)
	if err := Encode(c.W, value); err != nil {
		return ErrGone
	}
	return nil
}

// Content writes content of a media type with status 200.
func (c *Call) Content(mediaType string, content []byte) error {
	c.W.Header().Set("Content-Type", mediaType)
	if _, err := c.W.Write(content); err != nil {
		return ErrGone
	}
	return nil
}

// GoTo redirects a browser to a path of this server (303).
func (c *Call) GoTo(path string) error {
	c.W.Header().Set("Location", path)
	c.W.WriteHeader(http.StatusSeeOther)
	return nil
}

// Encode writes a value as one line of JSON, with a newline at its end.
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
