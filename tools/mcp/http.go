package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"turnkeeper/internal/jsonlimit"
)

const maxRedirects = 5

// A wire is the HTTP transport of one session. When the session ends, it
// cancels the session's requests.
type wire struct {
	base     http.RoundTripper
	headers  map[string]string
	session  context.Context
	patience time.Duration  // timeout for the response headers of a GET
	stale    func(code int) // called when the server no longer knows the session
	limits   limits
}

// maxIdleConns is the maximum number of connections to a server that are kept: the
// largest worker_slots, because all turns share a session.
const maxIdleConns = 1000

// newHTTPClient returns the HTTP client of one session. It calls stale with the
// status of a response that means the server no longer knows the session.
func newHTTPClient(session context.Context, s Server, tokens authorizer, limits limits,
	stale func(int)) (_ *http.Client, closeIdle func()) {
	transport := &http.Transport{ // uses no proxy from the environment
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 15 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: maxIdleConns,
	}
	w := &wire{
		base: transport, headers: s.Headers, session: session, patience: s.connectTimeout(), stale: stale,
		limits: limits,
	}
	client := &http.Client{Transport: w, CheckRedirect: sameOrigin}
	if tokens != nil {
		client.Transport = &bearer{next: w, auth: tokens}
	}
	return client, transport.CloseIdleConnections
}

// sameOrigin refuses redirects to another origin: the request has secret
// headers and the arguments of calls, meant only for the server that the
// operator named.
func sameOrigin(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if from := via[0].URL; next.URL.Scheme != from.Scheme || !strings.EqualFold(next.URL.Host, from.Host) {
		return fmt.Errorf(
			"redirect refused: it leads to another origin, %s://%s; if that is right, give it as the server's url",
			next.URL.Scheme, next.URL.Host)
	}
	return nil
}

// RoundTrip sends one request.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	var t *trace // only of the POST that makes the call; a GET that resumes its response says nothing about the call
	if req.Method == http.MethodPost {
		t = traceOf(req.Context())
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(w.session, func() { cancel(context.Cause(w.session)) })
	end := func() { stop(); cancel(nil) }
	if req.Method == http.MethodGet {
		late := time.AfterFunc(w.patience, func() { cancel(errors.New("the server did not begin to answer in time")) })
		defer late.Stop()
	}
	req = req.Clone(ctx)
	for name, value := range w.headers {
		req.Header.Set(name, value)
	}
	t.send()
	res, err := w.base.RoundTrip(req)
	if err != nil {
		end()
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			t.unsent()
		}
		return nil, err
	}
	t.answer(res.StatusCode)
	if req.Method == http.MethodPost && refusedForGood(res.StatusCode) && !isAnswered(req, res) {
		w.stale(res.StatusCode)
	}
	body := &boundedBody{ReadCloser: res.Body, end: end, left: -1}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		res.Body = newLargeEvents(ctx, body, w.limits)
	} else {
		res.Body = &largeBody{ReadCloser: body, ctx: ctx, limits: w.limits, memory: newReadMemory(ctx, w.limits)}
	}
	return res, nil
}

// refusedForGood reports whether this status means that the session is of no
// more use: restarted servers answer 404 or 400. A refusal for credentials or
// rate does not affect the session.
func refusedForGood(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// maxRefusal is the maximum number of bytes that may be no JSON.
const maxRefusal = 64 << 10

// isAnswered reports whether a refusal is a protocol error with the id of the
// request: then the server still knows the session. It returns false for every
// 404. It leaves the body readable from its start.
func isAnswered(req *http.Request, res *http.Response) bool {
	if res.StatusCode == http.StatusNotFound || req.GetBody == nil {
		return false
	}
	sent, err := req.GetBody()
	if err != nil {
		return false
	}
	var asked, answered struct {
		ID    json.RawMessage `json:"id"`
		Error json.RawMessage `json:"error"`
	}
	if json.NewDecoder(sent).Decode(&asked) != nil || asked.ID == nil {
		return false
	}
	head, _ := jsonlimit.MCPRefusal.ReadStart(res.Body) // after an error, what was read is enough
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	return jsonlimit.MCPRefusal.Unmarshal(head, &answered) == nil && answered.Error != nil &&
		bytes.Equal(answered.ID, asked.ID)
}

// A boundedBody calls end when it is closed, and fails with errFrame after left
// bytes. If left is negative, it has no limit; its reader limits it.
type boundedBody struct {
	io.ReadCloser
	end  func()
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			b.left = 0
			return 0, errFrame
		}
	}
	return n, err
}

func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// plainError returns the error of a request without its URL, which may hold a
// secret.
func plainError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
