package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/netguard"
	"turnkeeper/internal/redact"
)

// Limits of an answer. Only a short excerpt of a refusal's body is stored.
const (
	maxHeaderBytes  = 64 << 10
	maxExcerptChars = 200      // masked before it is cut, so that no part of a secret remains at the end
	maxDrainBytes   = 64 << 10 // read to reuse the connection
	drainTime       = time.Second
)

// An attempt is what came of one request to an endpoint.
type attempt struct {
	status int
	header http.Header
	text   string // start of the body of a refusal
	err    error  // why there was no answer, for operators
}

// newClient returns the client of one endpoint. It checks each address that it connects to, follows no
// redirects, and ignores proxies in the environment.
func newClient(e Endpoint) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            netguard.Dialer{Anywhere: e.AllowPrivate, Refuse: e.refuse}.DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    e.Concurrency,
			MaxConnsPerHost:        e.Concurrency,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post makes one attempt within ctx.
func (e *endpoint) post(ctx context.Context, id string, body []byte) attempt {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return attempt{err: errors.New("the address is not a valid URL")}
	}
	now := time.Now().Unix()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "turnkeeper")
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, strconv.FormatInt(now, 10))
	req.Header.Set(headerSignature, sign(e.Keys, id, now, body))
	res, err := e.client.Do(req)
	if err != nil {
		return attempt{err: plainError(ctx, e.Timeout, err)}
	}
	defer func() { _ = res.Body.Close() }()
	defer time.AfterFunc(drainTime, cancel).Stop() // the status is known; limit the time for the body
	a := attempt{status: res.StatusCode, header: res.Header}
	if !a.good() {
		text, _ := jsonlimit.WebhookResponse.ReadStart(res.Body) // a partial body is enough
		a.text = excerpt(text, e.mask)
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxDrainBytes)
	return a
}

func (a attempt) good() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// problem returns why the attempt failed; empty: it succeeded.
func (a attempt) problem() string {
	switch {
	case a.good():
		return ""
	case a.err != nil:
		return a.err.Error()
	}
	said := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", a.status, http.StatusText(a.status)))
	if a.status >= 300 && a.status < 400 {
		return said + ": redirects are not followed"
	}
	if a.text != "" {
		said += ": " + a.text
	}
	return said
}

// excerpt returns the start of a body as one masked line; empty if it is not text. The end of a body that was cut may
// be the beginning of a secret, and is left out.
func excerpt(body []byte, mask func(string) string) string {
	cut := int64(len(body)) >= jsonlimit.WebhookResponse.Bytes
	for range utf8.UTFMax - 1 { // the last character may be cut
		if r, size := utf8.DecodeLastRune(body); r != utf8.RuneError || size != 1 {
			break
		}
		body = body[:len(body)-1]
	}
	if !utf8.Valid(body) {
		return ""
	}
	masked := mask(string(body))
	if cut {
		masked = strings.ToValidUTF8(masked[:max(0, len(masked)-redact.Margin)], "")
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, masked)
	runes := []rune(strings.Join(strings.Fields(text), " "))
	return string(runes[:min(len(runes), maxExcerptChars)])
}

// plainError returns an error without the address, which may be a secret.
func plainError(ctx context.Context, timeout time.Duration, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", timeout)
	}
	if refused, ok := errors.AsType[*netguard.RefusedError](err); ok {
		return fmt.Errorf("%w; set allow_private in the webhook's settings to allow it", refused)
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("DNS lookup failed: %s", lookup.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
