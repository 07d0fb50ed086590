// Package openai is a Provider for every endpoint with OpenAI's Chat Completions API. It
// streams by default.
//
// It uses the client, the stream decoder and the chunk types of openai-go, and its own code
// where the library fails a case of inferencetest:
//
//   - Requests. Messages are written as JSON objects, because a provider's own messages are
//     sent back with fields that the library's types lack (the cases under "replay/raw").
//   - Accumulating chunks. The library's accumulator fails "1.4 chunk ids differ", "1.4 two
//     parallel calls with the same index", "1.4 two parallel calls without index" and "1.4
//     the name is repeated in each delta".
//   - Text. The library's strings fail "1.4 content is an array of parts" and "1.4 a
//     surrogate pair of arguments split over two chunks". Texts are therefore read from the
//     chunk's raw JSON.
//   - The end of a stream. The library accepts a stream that was cut ("broken answers").
//   - Errors. sdk.Error decodes only OpenAI's error object, and loses the status of
//     responses with other bodies ("refusals").
//
// The client never retries, reads no environment variables, follows no redirects, and sends
// the key only to the configured address. Only this package imports openai-go.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/zap"

	"turnkeeper/inference"
)

// Defaults and limits of a Client.
const (
	defaultBaseURL     = "https://api.openai.com/v1"
	defaultIdleTimeout = 20 * time.Second
	maxAnswerBytes     = 32 << 20

	maxErrorBytes = 256 << 10
)

// A Config describes an endpoint.
type Config struct {
	Name    string // of the provider; required
	BaseURL string // the part before /chat/completions; empty: defaultBaseURL
	APIKey  Secret // empty: no key is sent
	Headers map[string]Secret
	Query   map[string]Secret // query parameters of each request
	Profile Profile

	// IdleTimeout is the maximum time without a byte; 0: 20 s. If answers do not stream, it
	// applies from the first byte of the answer.
	IdleTimeout time.Duration

	// HTTPClient sends the requests; nil: a new one. Its Timeout must be 0. Redirects are
	// not followed.
	HTTPClient *http.Client
	Logger     *zap.Logger // nil: none
}

// A Client is a Provider. It is safe for concurrent use.
type Client struct {
	name    string
	profile Profile
	idle    time.Duration
	log     *zap.Logger
	http    *http.Client
	sdk     sdk.Client
	mask    mask
	form    string // of inference.Sent
	key     Secret
	paths   bool // the path contains the model
}

var _ inference.Provider = (*Client)(nil)

// New returns a Client. It sends no request.
func New(cfg Config) (*Client, error) {
	if cfg.Name == "" {
		return nil, errors.New("a provider needs a name")
	}
	base, err := url.Parse(cmp.Or(cfg.BaseURL, defaultBaseURL))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		// The address may contain a password, and errors of url.Parse quote it.
		return nil, fmt.Errorf("the base URL of provider %q is not an http or https address", cfg.Name)
	}
	c := &Client{
		name: cfg.Name, profile: cfg.Profile,
		idle: cmp.Or(cfg.IdleTimeout, defaultIdleTimeout),
		log:  cmp.Or(cfg.Logger, zap.NewNop()),
		http: httpClient(cfg.HTTPClient),
		mask: newMask(secrets(cfg, base)...),
		form: formOf(cfg.Name, cfg.Profile), key: cfg.APIKey,
		paths: cfg.Profile.Deployments && strings.HasSuffix(strings.TrimRight(base.Path, "/"), "/openai"),
	}
	c.sdk = sdk.Client{Options: options(cfg, base, c.http)}
	return c, nil
}

// options returns the options of the library's client. They replace those of sdk.NewClient,
// which reads keys, organizations and headers from OPENAI_ variables and would send them to
// any address.
func options(cfg Config, base *url.URL, client *http.Client) []option.RequestOption {
	bare := *base
	bare.RawQuery, bare.Fragment = "", ""
	opts := []option.RequestOption{
		option.WithHTTPClient(client), option.WithBaseURL(bare.String()),
		option.WithMaxRetries(0), option.WithHeader("User-Agent", "turnkeeper"),
	}
	if header := cfg.Profile.KeyHeader; header == "" {
		opts = append(opts, option.WithAPIKey(string(cfg.APIKey)))
	} else if cfg.APIKey != "" {
		opts = append(opts, option.WithHeader(header, string(cfg.APIKey)))
	}
	for _, name := range []string{"Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Retry-Count"} {
		opts = append(opts, option.WithHeaderDel("X-Stainless-"+name)) // they describe this machine
	}
	for name, values := range base.Query() {
		for _, value := range values {
			opts = append(opts, option.WithQueryAdd(name, value))
		}
	}
	for name, value := range cfg.Query {
		opts = append(opts, option.WithQuery(name, string(value)))
	}
	for name, value := range cfg.Headers {
		opts = append(opts, option.WithHeader(name, string(value)))
	}
	return opts
}

func httpClient(given *http.Client) *http.Client {
	own := http.Client{}
	if given != nil {
		own = *given
	} else if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		own.Transport = transport.Clone()
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Streams reports whether the client asks for streamed answers.
func (c *Client) Streams() bool { return !c.profile.NoStream }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Format prints only the client's name for every verb, because its fields contain keys.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "provider %q", c.name) }

// Generate makes one attempt.
func (c *Client) Generate(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, error) {
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

func (c *Client) generate(ctx context.Context, req inference.Request, onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	body, err := render(c.name, c.profile, req)
	if err != nil {
		return inference.Response{}, &inference.Error{Class: inference.ClassInvalid, Detail: err.Error()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := newWatchdog(c.idle, cancel)
	defer watchdog.stop()
	if c.profile.NoStream {
		watchdog.stop()
	}
	path := "chat/completions"
	if c.paths {
		path = "deployments/" + url.PathEscape(req.Model) + "/" + path
	}
	res, failure := c.send(ctx, http.MethodPost, path, body)
	if failure != nil {
		return inference.Response{}, failure
	}
	defer func() { _ = res.Body.Close() }()
	watchdog.reset()
	a := newAnswer(req.Tools, onDelta)
	if failure := c.read(ctx, res, &watched{res.Body, watchdog, maxAnswerBytes}, a); failure != nil {
		failure.Usage = a.usage
		return inference.Response{}, failure
	}
	a.end()
	response, failure := normalize(a, req.MaxOutputTokens)
	if failure != nil {
		failure.Status, failure.Usage = res.StatusCode, a.usage
		return inference.Response{}, failure
	}
	a.announceAll()
	response.Sent = inference.SentAs(c.form, body)
	return response, nil
}

// send makes a request. If it returns no error, the status is below 300, and the caller must
// close the body.
func (c *Client) send(ctx context.Context, method, path string, body []byte, more ...option.RequestOption) (*http.Response, *inference.Error) {
	var res *http.Response
	var refusal *inference.Error
	// The library decodes only error bodies of OpenAI's form, so they are read first.
	inspect := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(r)
		if err == nil && res.StatusCode >= 300 {
			refusal = refused(res)
		}
		return res, err
	})
	opts := append([]option.RequestOption{inspect}, more...)
	if body != nil {
		opts = append(opts, option.WithRequestBody("application/json", body))
		if !c.profile.NoStream {
			opts = append(opts, option.WithHeader("Accept", "text/event-stream, application/json"))
		}
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	err := c.sdk.Execute(ctx, method, path, nil, &res, opts...)
	switch {
	case refusal != nil:
		if res != nil {
			_ = res.Body.Close()
		}
		return nil, refusal
	case err != nil:
		failure := transportError(ctx, err)
		failure.Unsent = !sent.Load()
		return nil, failure
	}
	return res, nil
}

// refused reads and closes an error response.
func refused(res *http.Response) *inference.Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // a part of the body is better than nothing
	_ = res.Body.Close()
	res.Body = http.NoBody
	failure := classify(res.StatusCode, res.Header, body)
	if to := res.Header.Get("Location"); res.StatusCode < 400 && to != "" {
		failure.Class = inference.ClassNotFound
		failure.Detail = "the endpoint redirects to " + to + "; use that as the base URL if it is right"
	}
	return failure
}

// transportError returns the error of a failed transmission.
func transportError(ctx context.Context, err error) *inference.Error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the address, which may contain secrets
	}
	return &inference.Error{Class: inference.ClassTransport, Detail: err.Error(), Err: err}
}

// read reads the answer into a.
func (c *Client) read(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	contentType := res.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(contentType); media == "text/event-stream" {
		return readStream(ctx, res, body, a)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return transportError(ctx, err)
	}
	embedded, ok := a.add(data)
	switch {
	case !ok:
		if message := readErrorBody(data).message; message != "" {
			contentType += ": " + message
		}
		return &inference.Error{
			Class: inference.ClassTransport, Status: res.StatusCode,
			Detail: "the answer is neither a stream nor a completion; its content type is " + contentType,
		}
	case embedded != nil:
		return classify(res.StatusCode, res.Header, embedded)
	}
	return nil
}

// readStream reads a stream until its end. After the finish reason, errors of the stream are
// ignored.
func readStream(ctx context.Context, res *http.Response, body io.Reader, a *answer) *inference.Error {
	events := newDecoder(body)
	for events.Next() {
		e := events.Event()
		data := bytes.TrimSpace(e.Data)
		if string(data) == "[DONE]" {
			return nil
		}
		if len(data) == 0 {
			continue
		}
		embedded, ok := a.add(data)
		switch {
		case embedded != nil:
			return classify(res.StatusCode, res.Header, embedded)
		case e.Type == "error" || !ok && data[0] == '[':
			return classify(res.StatusCode, res.Header, data)
		case !ok && a.finish == "":
			return &inference.Error{Class: inference.ClassTransport, Status: res.StatusCode, Detail: "a chunk of the stream is not JSON: it was cut"}
		}
	}
	if err := events.Err(); err != nil && a.finish == "" {
		return transportError(ctx, err)
	}
	return nil
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
