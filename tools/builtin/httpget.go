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

// HTTPOptions set up http_get. The zero value reaches public addresses only.
type HTTPOptions struct {
	// AllowPrivateHosts are the hosts, each as "host" or "host:port", that an
	// agent may reach although their addresses are not public. nil: none.
	AllowPrivateHosts func(agent string) []string
	// Own are the ports of this process. They are refused at every address of this
	// machine, whatever is allowed. nil: there are none.
	Own *netguard.Listeners
	// Resolver looks names up. nil: the system's.
	Resolver *net.Resolver

	// refuse says why an address may not be dialled; empty: it may. nil:
	// netguard.Refusal. Only tests set it.
	refuse func(address string) string
}

type httpGetArgs struct {
	URL string `json:"url" jsonschema:"http or https address to read"`
}

// NewHTTPGet is the tool `http_get`, of effect none. The address of every
// connection, redirects included, is checked after the name was looked up and
// before a byte is sent: only public addresses pass, and those of hosts that
// the agent is allowed, but for the ports of this process. Proxies of the environment are not used, no cookies
// are kept, and URLs with a user name are refused.
//
// A text response gives its text, in UTF-8 whatever charset its type names, everything
// else its bytes, both bounded by MaxResponseBytes, and the result says so when there was more. A status of 400
// and above is a failure that shows how the body begins.
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
	// Who serves this machine without asking who it is, as another worker does, sees that it is
	// not this machine that asks.
	req.Header.Set("Via", "1.1 turnkeeper")
	client, closeIdle := o.client(call.Agent)
	res, err := client.Do(req) //nolint:bodyclose // the result is closed, and with it the body
	if err != nil {
		closeIdle()
		return tools.Result{}, requestError(err)
	}
	body := &responseBody{Reader: bufio.NewReaderSize(res.Body, maxErrorBytes), body: res.Body, closeIdle: closeIdle}
	result, err := responseResult(res, body)
	if result.Body == nil {
		_ = body.Close()
	}
	return result, err
}

// A responseBody is read by whoever takes the result.
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

// client is a client for one call: its connections are not kept, so that each
// request is a new dial and a new check.
func (o HTTPOptions) client(agent string) (*http.Client, func()) {
	var allowed []string
	if o.AllowPrivateHosts != nil {
		allowed = o.AllowPrivateHosts(agent)
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
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}, transport.CloseIdleConnections
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

func checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return fmt.Errorf("stopped after %d redirects", MaxRedirects)
	}
	if err := checkURL(next.URL); err != nil {
		return fmt.Errorf("redirect refused: %w", err)
	}
	return nil
}

// requestError is the error without the request's URL, which may be long and
// which the model knows, and without addresses of the worker's network.
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

// responseResult looks at how the body begins, and leaves it to be read.
func responseResult(res *http.Response, body *responseBody) (tools.Result, error) {
	head, err := body.Peek(maxErrorBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return tools.Result{}, fmt.Errorf("the response broke off after %d bytes: %w", len(head), err)
	}
	mediaType := res.Header.Get("Content-Type")
	if mediaType == "" {
		mediaType = http.DetectContentType(head)
	}
	switch {
	case res.StatusCode >= 400:
		return failure(failedStatus(res, mediaType, head)), nil
	case len(head) == 0:
		return tools.Result{Text: fmt.Sprintf("HTTP %s: the response is empty.", status(res))}, nil
	}
	text, mediaType := inUTF8(body, mediaType)
	result := tools.Result{Body: readCloser{text, body}, MediaType: mediaType}
	if res.ContentLength > MaxResponseBytes { // only then it tells more than the body does
		result.RawBytes = res.ContentLength
	}
	return result, nil
}

// A readCloser reads what is decoded of what it closes.
type readCloser struct {
	io.Reader
	io.Closer
}

func failedStatus(res *http.Response, mediaType string, body []byte) string {
	shown := "HTTP " + status(res)
	if !tools.IsText(mediaType) || len(body) == 0 {
		return shown
	}
	runes := []rune(outputs.Clean(shownInUTF8(body, mediaType)))
	return shown + "\n\n" + string(runes[:min(len(runes), maxErrorBodyChars)])
}

// status is the code with our words for it: the server's are not to be relied
// on.
func status(res *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode)))
}
