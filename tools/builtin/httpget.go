package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/internal/netguard"
	"turnkeeper/internal/redact"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Limits of http_get.
const (
	MaxRedirects      = 5
	MaxResponseBytes  = turnkeeper.MaxOutputBytes
	maxErrorBodyChars = 1000
	maxErrorBytes     = utf8.UTFMax * maxErrorBodyChars
	maxURLBytes       = 8 << 10
)

// HTTPOptions configure http_get. The zero value allows public addresses only.
type HTTPOptions struct {
	// AllowPrivateHosts returns the hosts, as "host" or "host:port", that an agent
	// may reach although their addresses are not public. nil: none.
	AllowPrivateHosts func(agent string) []string
	// Own are the ports of this process. They are refused at every address of this
	// machine, even for an allowed host. nil: there are none.
	Own *netguard.Listeners
	// Resolver looks up host names. nil: the system's resolver.
	Resolver *net.Resolver

	// refuse returns why an address must not be dialled; empty: it may be. nil:
	// netguard.Refusal. Only tests set it.
	refuse func(address string) string
}

type httpGetArgs struct {
	URL string `json:"url" jsonschema:"http or https address to read"`
}

// NewHTTPGet returns the tool `http_get`, of effect none. It checks the address of
// every connection, redirects included, after the name lookup and before a byte is
// sent: only public addresses and those of allowed hosts pass, but never the ports
// of this process. It ignores the proxies of the environment, keeps no cookies, and
// refuses URLs with a user name. It sends no Referer.
//
// The result is the text of a text response, converted to UTF-8, or the bytes of any
// other. A result that is cut at MaxResponseBytes says so. A status of 400 or above
// is a failure that shows the beginning of a text body.
func NewHTTPGet(opts HTTPOptions) tools.Tool {
	spec := tools.Spec{
		Name:        "http_get",
		Description: "Reads a web address by HTTP GET, and follows up to 5 redirects. Addresses of private networks are refused.",
		Effect:      turnkeeper.EffectNone,
	}
	return tools.New(spec, opts.get)
}

func (o HTTPOptions) get(ctx context.Context, call tools.Call, args httpGetArgs) (tools.Result, error) {
	address, err := parseURL(args.URL)
	if err != nil {
		return tools.Result{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return tools.Result{}, errors.New("the URL cannot be requested")
	}
	req.Header.Set("User-Agent", "turnkeeper")
	// A server that trusts its own machine without a token, such as another worker,
	// sees by this header that the request is a tool's.
	req.Header.Set("Via", "1.1 turnkeeper")
	client, closeIdle := o.client(call)
	res, err := client.Do(req) //nolint:bodyclose // the result is closed, and with it the body
	if err != nil {
		closeIdle()
		return tools.Result{}, requestError(err)
	}
	body := &responseBody{Reader: bufio.NewReaderSize(res.Body, maxErrorBytes+redact.Margin), body: res.Body,
		closeIdle: closeIdle}
	result, err := responseResult(call, res, body)
	if result.Body == nil {
		_ = body.Close()
	}
	return result, err
}

// A responseBody is read, and closed, by the reader of the result.
type responseBody struct {
	*bufio.Reader
	body      io.Closer
	closeIdle func()
}

func (b *responseBody) Close() error {
	err := b.body.Close()
	b.closeIdle()
	return err
}

// client returns a client for one call, and a function that closes its idle
// connections. It keeps no connections, so the address of each request is checked.
func (o HTTPOptions) client(call tools.Call) (*http.Client, func()) {
	var allowed []string
	if o.AllowPrivateHosts != nil {
		allowed = o.AllowPrivateHosts(call.Agent)
	}
	d := netguard.Dialer{Allowed: allowed, Resolver: o.Resolver, Refuse: o.refuse, Own: o.Own}
	transport := &http.Transport{
		Proxy:                  nil,
		DialContext:            d.DialContext,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    15 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	redirect := func(next *http.Request, via []*http.Request) error { return checkRedirect(call, next, via) }
	return &http.Client{Transport: transport, CheckRedirect: redirect}, transport.CloseIdleConnections
}

func parseURL(text string) (*url.URL, error) {
	if len(text) > maxURLBytes {
		return nil, fmt.Errorf("the URL has %d bytes; at most %d are allowed", len(text), maxURLBytes)
	}
	address, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("that is not a URL")
	}
	return address, checkURL(address)
}

func checkURL(address *url.URL) error {
	switch {
	case address.Scheme != "http" && address.Scheme != "https":
		return fmt.Errorf("the URL must begin with http:// or https://, not with %q", address.Scheme+":")
	case address.Hostname() == "":
		return errors.New("the URL names no host")
	case address.User != nil:
		return errors.New("the URL holds a user name or password; leave it out")
	}
	return nil
}

// checkRedirect decides about a redirect before it is requested. It removes the Referer, which holds the URL before it.
func checkRedirect(call tools.Call, next *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return fmt.Errorf("stopped after %d redirects", MaxRedirects)
	}
	next.Header.Del("Referer")
	err := checkURL(next.URL)
	if err == nil && call.CheckDestination != nil {
		err = call.CheckDestination(next.URL.String())
	}
	if err != nil {
		return fmt.Errorf("redirect refused: %w", err)
	}
	return nil
}

// requestError removes the request's URL, which may be long and which the model
// knows, and the addresses of the worker's network from the error.
func requestError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if refused, ok := errors.AsType[*netguard.RefusedError](err); ok && refused.Own() {
		return refused
	} else if ok {
		return fmt.Errorf("%w; an operator can allow the host in the agent's file", refused)
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("the host %q could not be looked up: %s", lookup.Name, lookup.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("the request failed: %s: %w", op.Op, op.Err)
	}
	return fmt.Errorf("the request failed: %w", err)
}

// responseResult returns the result of a response. It only peeks at the body: the
// reader of the result reads it.
func responseResult(call tools.Call, res *http.Response, body *responseBody) (tools.Result, error) {
	limit := maxErrorBytes
	if res.StatusCode >= 400 {
		limit += redact.Margin
	}
	head, err := body.Peek(limit)
	if err != nil && !errors.Is(err, io.EOF) {
		return tools.Result{}, fmt.Errorf("the response broke off after %d bytes: %w", len(head), err)
	}
	mediaType := res.Header.Get("Content-Type")
	if mediaType == "" {
		mediaType = http.DetectContentType(head)
	}
	switch {
	case res.StatusCode >= 400:
		return failure(failedStatus(call, res, mediaType, head)), nil
	case len(head) == 0:
		return tools.Result{Text: fmt.Sprintf("HTTP %s: the response is empty.", status(res))}, nil
	}
	text, mediaType := inUTF8(body, mediaType)
	result := tools.Result{Body: readCloser{text, body}, MediaType: mediaType}
	if res.ContentLength > MaxResponseBytes { // a smaller body shows its own size
		result.RawBytes = res.ContentLength
	}
	return result, nil
}

// A readCloser reads the decoded text and closes the body behind it.
type readCloser struct {
	io.Reader
	io.Closer
}

func failedStatus(call tools.Call, res *http.Response, mediaType string, body []byte) string {
	shown := "HTTP " + status(res)
	if !tools.IsText(mediaType) || len(body) == 0 {
		return shown
	}
	text := outputs.Clean(shownInUTF8(body, mediaType))
	runes := []rune(text)
	return shown + "\n\n" + call.Part(text, 0, len(string(runes[:min(len(runes), maxErrorBodyChars)])))
}

// status returns the code and its standard text. The server's own text is untrusted.
func status(res *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode)))
}
