// Package openai is a Provider for every endpoint with OpenAI's Chat Completions API or
// Anthropic's Messages API. It renders requests, sends them, classifies errors and lists
// models. It streams by default. Answers are parsed by a ReadAnswer: the packages completions
// and messages have one each, and import the official clients, which turnctl must not link
// because of their size.
//
// This package does not use openai-go where the library fails a case of inferencetest:
//
//   - Requests. Messages are written as JSON objects, because a provider's own messages are
//     sent back with fields that the library's types lack (the cases under "replay/raw").
//   - Errors. sdk.Error decodes only OpenAI's error object, and loses the status of
//     responses with other bodies ("refusals").
//
// The client never retries, reads no environment variables, follows no redirects, and sends
// the key only to the configured address. It only asks a model again that has refused to encrypt
// its reasoning, which models without any do, and then remembers that.
package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/wire"
	"turnkeeper/internal/jsonlimit"
)

// Defaults and limits of a Client.
const (
	defaultIdleTimeout = 20 * time.Second

	// maxIdleConns is the largest worker_slots, so a connection of each turn is kept. A worker
	// keeps no more than it used at once in the last idleConnTime.
	maxIdleConns = 1000
	idleConnTime = 90 * time.Second

	// What is read after the answer, so that its connection is used again: the end of the body.
	drainTime = time.Second
	maxDrain  = 64 << 10
)

// A Config describes an endpoint.
type Config struct {
	Name    string // of the provider; required
	BaseURL string // the part before /chat/completions or /messages; empty: that of the API's author
	APIKey  Secret // empty: no key is sent
	Headers map[string]Secret
	Query   map[string]Secret // query parameters of each request
	Profile Profile

	// IdleTimeout is the maximum time without a byte; 0: 20 s. If answers do not stream, it
	// applies from the first byte of the answer.
	IdleTimeout time.Duration

	// HTTPClient sends the requests; nil: a new one, which keeps up to 1,000 idle connections
	// for 90 s. Its Timeout must be 0. Redirects are not followed.
	HTTPClient *http.Client
	Logger     *zap.Logger // nil: none
	Read       ReadAnswer  // of the profile's API; nil: Generate fails
}

// A ReadAnswer parses the answer to a request for a completion. body is the body of res with the client's limits of
// time and size. The Response has no Provider, no Sent, and a Model only if the answer names one. An error has the
// usage that was received. habit is that of the model, which ReadAnswer updates.
type ReadAnswer func(ctx context.Context, res *http.Response, body io.Reader, req inference.Request,
	habit *inference.Habit, onDelta func(inference.Delta)) (inference.Response, *inference.Error)

// A Client is a Provider. It is safe for concurrent use.
type Client struct {
	name    string
	profile Profile
	spoken  protocol
	idle    time.Duration
	log     *zap.Logger
	http    *http.Client
	base    *url.URL
	params  url.Values
	header  http.Header
	read    ReadAnswer
	mask    mask
	form    string // of inference.Sent
	key     Secret
	paths   bool // the path contains the model

	habits  sync.Map // *inference.Habit by model
	endless sync.Map // models whose answers lack a finish reason
	plain   sync.Map // models that have no encrypted reasoning
}

var (
	_ inference.Provider = (*Client)(nil)
	_ inference.Encoder  = (*Client)(nil)
)

// New returns a Client. It sends no request. It fails if the API cannot carry what the profile asks for.
func New(cfg Config) (*Client, error) {
	if cfg.Name == "" {
		return nil, errors.New("a provider needs a name")
	}
	if err := cfg.Profile.Check(); err != nil {
		return nil, fmt.Errorf("provider %q: %w", cfg.Name, err)
	}
	spoken, _ := protocolOf(cfg.Profile.API)
	base, err := url.Parse(cmp.Or(cfg.BaseURL, spoken.baseURL))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		// The address may contain a password, and errors of url.Parse quote it.
		return nil, fmt.Errorf("the base URL of provider %q is not an http or https address", cfg.Name)
	}
	c := &Client{
		name: cfg.Name, profile: cfg.Profile, spoken: spoken,
		idle: cmp.Or(cfg.IdleTimeout, defaultIdleTimeout),
		log:  cmp.Or(cfg.Logger, zap.NewNop()),
		http: httpClient(cfg.HTTPClient),
		mask: newMask(secrets(cfg, base)...),
		form: formOf(cfg.Name, cfg.Profile), key: cfg.APIKey,
		paths:  cfg.Profile.Deployments && strings.HasSuffix(strings.TrimRight(base.Path, "/"), "/openai"),
		params: base.Query(), header: headers(cfg, spoken), read: cfg.Read,
	}
	c.profile.Listing = cmp.Or(c.profile.Listing, spoken.listing)
	for name, value := range cfg.Query {
		c.params.Set(name, string(value))
	}
	c.base = folder(*base)
	return c, nil
}

// folder returns an address without its query, to which relative paths can be added.
func folder(u url.URL) *url.URL {
	u.RawQuery, u.Fragment = "", ""
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
		if u.RawPath != "" {
			u.RawPath += "/"
		}
	}
	return &u
}

// headers returns the headers of every request. Configured ones win.
func headers(cfg Config, spoken protocol) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"turnkeeper"}}
	spoken.addHeaders(h, cfg.APIKey, cfg.Profile)
	for name, value := range cfg.Headers {
		h.Set(name, string(value))
	}
	return h
}

func httpClient(given *http.Client) *http.Client {
	own := http.Client{}
	if given != nil {
		own = *given
	} else if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport = transport.Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = maxIdleConns,
			maxIdleConns, idleConnTime
		own.Transport = transport
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Streams reports whether the client asks for streamed answers.
func (c *Client) Streams() bool { return !c.profile.NoStream }

// Form returns how the client encodes requests, see Render.
func (c *Client) Form() string { return c.form }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Format prints only the client's name for every verb, because its fields contain keys.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "provider %q", c.name) }

// Generate makes one attempt.
func (c *Client) Generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, error) {
	started := time.Now()
	res, failure := c.generate(ctx, req, onDelta)
	if failure == nil {
		res.Provider = c.name
		res.Model = cmp.Or(res.Model, req.Model)
		c.log.Debug("model answered", zap.String("provider", c.name), zap.String("model", res.Model),
			zap.String("finish_reason", res.FinishReason), zap.Int("calls", len(res.Calls)),
			zap.Int64("input_tokens", res.Usage.InputTokens), zap.Int64("output_tokens", res.Usage.OutputTokens),
			zap.Duration("took", time.Since(started)))
		return res, nil
	}
	if ctx.Err() != nil {
		return inference.Response{}, context.Cause(ctx)
	}
	return inference.Response{}, c.complete(failure, req.Model)
}

// complete sets the provider and model of a failure, and removes secrets.
func (c *Client) complete(failure *inference.Error, model string) *inference.Error {
	failure.Provider, failure.Model = c.name, model
	failure.Code = c.mask.detail(failure.Code)
	failure.Detail = c.mask.detail(failure.Detail)
	if failure.Err != nil && c.mask.text(failure.Err.Error()) != failure.Err.Error() {
		failure.Err = nil
	}
	return failure
}

func (c *Client) generate(ctx context.Context, req inference.Request,
	onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	if c.read == nil {
		return inference.Response{}, &inference.Error{Class: inference.ClassInvalid,
			Detail: "this client reads no answers: its Config has no Read"}
	}
	profile, form := c.profileFor(req.Model)
	body, err := render(c.name, profile, req)
	if err != nil {
		return inference.Response{}, &inference.Error{Class: inference.ClassInvalid, Detail: err.Error()}
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := newWatchdog(c.idle, cancel)
	defer watchdog.stop()
	if c.profile.NoStream {
		watchdog.stop()
	}
	path := c.spoken.path
	if c.paths {
		path = "deployments/" + url.PathEscape(req.Model) + "/" + path
	}
	res, failure := c.send(ctx, http.MethodPost, path, body)
	switch {
	case failure != nil && c.isPlain(req.Model, profile, failure):
		return c.generate(outer, req, onDelta)
	case failure != nil:
		return inference.Response{}, failure
	}
	defer func() { _ = res.Body.Close() }()
	watchdog.reset()
	response, failure := c.read(ctx, res, &watched{res.Body, watchdog, jsonlimit.ModelAnswer.Bytes}, req,
		c.habit(req.Model), onDelta)
	if failure != nil {
		return inference.Response{}, failure
	}
	c.warnEndless(req.Model, response)
	response.Sent = inference.Sent{Form: form, SHA256: body.SHA256(), Bytes: body.Len()}
	watchdog.timer.Reset(drainTime)
	_, _ = io.CopyN(io.Discard, res.Body, maxDrain) // the answer is complete
	return response, nil
}

// habit returns the habit of a model.
func (c *Client) habit(model string) *inference.Habit {
	fresh := &inference.Habit{}
	if c.profile.Separates {
		fresh = inference.PlainHabit()
	}
	known, _ := c.habits.LoadOrStore(model, fresh)
	return known.(*inference.Habit) //nolint:forcetypeassert // it holds nothing else
}

// warnEndless logs once for each model that its answers lack a finish reason.
func (c *Client) warnEndless(model string, res inference.Response) {
	if res.FinishReason != "" {
		return
	}
	if _, known := c.endless.LoadOrStore(model, true); !known {
		c.log.Warn(
			"an answer has no finish_reason; it is taken as whole, because the server ended it. Nobody can see whether such answers "+
				"were cut: update the server, or the proxy before it", zap.String("provider", c.name),
			zap.String("model", model))
	}
}

// send makes a request, which change may modify. If it returns no error, the status is below
// 300, and the caller must close the body.
func (c *Client) send(ctx context.Context, method, path string, body wire.Body,
	change ...func(*http.Request)) (*http.Response, *inference.Error) {
	var connected, sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }, WroteHeaders: func() { sent.Store(true) },
	})
	r, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, TransportError(ctx, err)
	}
	for _, f := range change {
		f(r)
	}
	res, err := c.http.Do(r)
	switch {
	case err != nil:
		failure := TransportError(ctx, err)
		failure.Unsent, failure.ByRequest = !sent.Load(), connected.Load()
		return nil, failure
	case res.StatusCode >= 300:
		return nil, refused(res)
	}
	return res, nil
}

// request returns a request for a path relative to the base URL.
func (c *Client) request(ctx context.Context, method, path string, body wire.Body) (*http.Request, error) {
	to, err := c.base.Parse(path)
	if err != nil {
		return nil, err
	}
	to.RawQuery = c.params.Encode()
	r, err := http.NewRequestWithContext(ctx, method, to.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = c.header.Clone()
	if body.Len() > 0 {
		body.SetIn(r)
		r.Header.Set("Content-Type", "application/json")
		if !c.profile.NoStream {
			r.Header.Set("Accept", "text/event-stream, application/json")
		}
	}
	return r, nil
}

// refused reads and closes an error response.
func refused(res *http.Response) *inference.Error {
	body, _ := jsonlimit.ModelError.ReadStart(res.Body) // a part of the body is better than nothing
	_ = res.Body.Close()
	failure := Classify(res.StatusCode, res.Header, body)
	if to := res.Header.Get("Location"); res.StatusCode < 400 && to != "" {
		failure.Class, failure.ByRequest = inference.ClassNotFound, false
		failure.Detail = "the endpoint redirects to " + to + "; use that as the base URL if it is right"
	}
	return failure
}

// TransportError returns the error of a failed transmission, after the connection was made.
func TransportError(ctx context.Context, err error) *inference.Error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the address, which may contain secrets
	}
	return &inference.Error{Class: inference.ClassTransport, Detail: err.Error(), Err: err, ByRequest: true,
		Idle: errors.Is(err, errIdle)}
}

// secrets returns all texts of the configuration that errors must not contain.
func secrets(cfg Config, base *url.URL) []string {
	found := []string{string(cfg.APIKey)}
	for name, value := range cfg.Headers {
		if !public[http.CanonicalHeaderKey(name)] {
			found = append(found, headerSecrets(string(value))...)
		}
	}
	if password, ok := base.User.Password(); ok {
		found = append(found, password, base.User.Username()+":"+password)
	}
	if base.User != nil {
		found = append(found, base.User.Username())
	}
	for _, values := range base.Query() {
		found = append(found, values...)
	}
	for name, value := range cfg.Query {
		if !strings.EqualFold(name, "api-version") { // not a secret, and useful in errors
			found = append(found, string(value))
		}
	}
	return found
}
