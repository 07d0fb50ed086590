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
)

const maxRedirects = 5

// A wire carries the requests of one session over HTTP. When the session ends,
// so do they.
type wire struct {
	base     http.RoundTripper
	headers  map[string]string
	session  context.Context
	patience time.Duration  // for the headers of an answer to GET
	stale    func(code int) // the server does not know the session any more
	limits   limits
}

// newHTTPClient makes the client of one session. stale is called with the status
// by which a server refused a request of it.
func newHTTPClient(session context.Context, s Server, tokens authorizer, limits limits, stale func(int)) (_ *http.Client, closeIdle func()) {
	transport := &http.Transport{ // without a proxy of the environment
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 15 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
	w := &wire{
		base: transport, headers: s.Headers, session: session, patience: s.connectTimeout(), stale: stale, limits: limits,
	}
	client := &http.Client{Transport: w, CheckRedirect: sameOrigin}
	if tokens != nil {
		client.Transport = &bearer{next: w, auth: tokens}
	}
	return client, transport.CloseIdleConnections
}

// sameOrigin refuses to be led to where the operator did not point: the request
// has headers that are secrets, and arguments of calls.
func sameOrigin(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if from := via[0].URL; next.URL.Scheme != from.Scheme || !strings.EqualFold(next.URL.Host, from.Host) {
		return fmt.Errorf("redirect refused: it leads to another origin, %s://%s; if that is right, give it as the server's url", next.URL.Scheme, next.URL.Host)
	}
	return nil
}

// RoundTrip carries one request.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	var t *trace // of the request that is the call; to read on in its answer tells nothing of it
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
		res.Body = newLargeEvents(body, w.limits)
	} else {
		res.Body = &largeBody{ReadCloser: body, limits: w.limits}
	}
	return res, nil
}

// refusedForGood says that a request was refused and that the same session is not
// worth another: servers that were restarted say 404, or 400. What is refused for
// its credentials, or for its rate, leaves the session as it is.
func refusedForGood(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// maxRefusal bounds what is looked at of a refusal, in bytes.
const maxRefusal = 64 << 10

// isAnswered says that a refusal is the answer to its request, and so comes from who
// knows the session: an error of the protocol with the request's own id. A 404 never
// does. What was looked at can be read again.
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
	head, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what there is, is enough
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	return json.Unmarshal(head, &answered) == nil && answered.Error != nil && bytes.Equal(answered.ID, asked.ID)
}

// A boundedBody ends its request's context with itself, and refuses to be longer
// than a message may be. left below 0: whoever reads it has a bound.
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

// plainError is an error of a request without its URL, which may hold a secret.
func plainError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
