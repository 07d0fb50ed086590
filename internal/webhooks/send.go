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

	"turnkeeper/internal/netguard"
)

// Bounds of an answer. Of its body nothing is kept but a short excerpt of one that says no.
const (
	maxHeaderBytes  = 64 << 10
	maxExcerptBytes = 16 << 10 // masked whole, so that no half of a secret is left at the excerpt's end
	maxExcerptChars = 200
	maxDrainBytes   = 64 << 10 // read so that the connection can be used again
	drainTime       = time.Second
)

// An answer is what an attempt came to.
type answer struct {
	status int
	header http.Header
	text   string // how the body of a refusal begins
	err    error  // there was no answer; in words for an operator
}

// newClient is the client of one endpoint. Each address is checked when it is connected to;
// redirects are not followed, and proxies of the environment are not used.
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
func (e *endpoint) post(ctx context.Context, id string, body []byte) answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: errors.New("the address cannot be requested")}
	}
	now := time.Now().Unix()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "turnkeeper")
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, strconv.FormatInt(now, 10))
	req.Header.Set(headerSignature, sign(e.Keys, id, now, body))
	res, err := e.client.Do(req)
	if err != nil {
		return answer{err: plainError(ctx, e.Timeout, err)}
	}
	defer func() { _ = res.Body.Close() }()
	defer time.AfterFunc(drainTime, cancel).Stop() // the status is there: the rest is worth a moment
	a := answer{status: res.StatusCode, header: res.Header}
	if !a.good() {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxExcerptBytes)) // as much of it as came
		a.text = excerpt(text, e.Mask)
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxDrainBytes)
	return a
}

func (a answer) good() bool { return a.err == nil && a.status >= 200 && a.status < 300 }

// problem says in a sentence why the attempt failed; empty: it did not.
func (a answer) problem() string {
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

// excerpt is a text in one short line, masked; empty where it is none.
func excerpt(body []byte, mask func(string) string) string {
	for range utf8.UTFMax - 1 { // the last character may be cut
		if r, size := utf8.DecodeLastRune(body); r != utf8.RuneError || size != 1 {
			break
		}
		body = body[:len(body)-1]
	}
	if !utf8.Valid(body) {
		return ""
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, mask(string(body)))
	runes := []rune(strings.Join(strings.Fields(text), " "))
	return string(runes[:min(len(runes), maxExcerptChars)])
}

// plainError is an error without the address, which may be a secret.
func plainError(ctx context.Context, timeout time.Duration, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", timeout)
	}
	if refused, ok := errors.AsType[*netguard.RefusedError](err); ok {
		return fmt.Errorf("%w; allow_private in the webhook's settings allows it", refused)
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("the host could not be looked up: %s", lookup.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}
