package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/netguard"
)

// maxAuthBody is the maximum size of a response from an authorization server in
// bytes.
const maxAuthBody = 1 << 20

// An authWire is the transport for authorization servers. Their addresses come
// from other servers, so it connects only to public addresses, to hosts that
// the operator named, and to this machine if the MCP server is on it. It
// requires https, except to this machine.
type authWire struct {
	base     http.RoundTripper
	loopback bool // the MCP server is on this machine
}

// newAuthClient returns the HTTP client for getting a server's tokens.
func newAuthClient(s Server) (_ *http.Client, closeIdle func()) {
	loopback := isLoopback(hostOf(s.URL))
	named := []string{hostOf(s.URL), hostOf(s.OAuth.Issuer), hostOf(s.OAuth.TokenEndpoint),
		hostOf(s.OAuth.Identity.TokenEndpoint)}
	guard := netguard.Dialer{Allowed: named, Refuse: func(address string) string {
		why := netguard.Refusal(address)
		if why == "loopback" && loopback {
			return ""
		}
		return why
	}}
	transport := &http.Transport{ // uses no proxy from the environment
		DialContext:            guard.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    tokenTime,
		ResponseHeaderTimeout:  tokenTime,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxDrained,
	}
	client := &http.Client{Transport: &authWire{base: transport, loopback: loopback}, CheckRedirect: sameOrigin,
		Timeout: tokenTime}
	return client, transport.CloseIdleConnections
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// RoundTrip sends one request.
func (w *authWire) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := w.check(req.URL); err != nil {
		closeBody(req)
		return nil, err
	}
	res, err := w.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	traceOf(req.Context()).answer(res.StatusCode)
	res.Body = &boundedBody{ReadCloser: res.Body, end: func() {}, left: maxAuthBody}
	if err := checkAuthBody(res); err != nil {
		return nil, err
	}
	if err := legacyIssuer(req, res); err != nil {
		return nil, err
	}
	return res, nil
}

// checkAuthBody reads and checks a response before it is decoded. A text that is
// no JSON passes.
func checkAuthBody(res *http.Response) error {
	text, err := jsonlimit.MCPLogin.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return err
	}
	if limit, ok := errors.AsType[*jsonlimit.LimitError](jsonlimit.MCPLogin.Check(text)); ok {
		return fmt.Errorf("the response of the authorization server is not taken: %w", limit)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return nil
}

func (w *authWire) check(u *url.URL) error {
	if u.Scheme == "https" || u.Scheme == "http" && w.loopback && isLoopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("the address %s://%s of an authorization server is refused: it must be https", u.Scheme, u.Host)
}

// plainAuthError returns why a request to an authorization server failed, for
// operators. It omits the response, and addresses that may hold secrets.
func plainAuthError(err error) error {
	if refused, ok := errors.AsType[*netguard.RefusedError](err); ok {
		return fmt.Errorf(
			"the authorization server that it names is at a %s address; where that is right, say so by oauth.issuer",
			refused.Kind)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Errorf("the authorization server did not answer within %s", tokenTime)
	}
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return plainError(err)
}
