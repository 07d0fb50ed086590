package mcp

import (
	"context"
	"io"
	"net/http"
	"slices"
)

// Limits are the limits of a client.
type Limits = limits

// NewLimited returns a Client whose limits are changed by set.
func NewLimited(cfg Config, set ...func(*Limits)) *Client {
	l := defaultLimits()
	for _, f := range set {
		f(&l)
	}
	cfg.limits = &l
	return New(cfg)
}

// Replacement is what takes the place of a message that is too large, read in pieces of n
// bytes.
func Replacement(message string, n int) string {
	var s skimmer
	for piece := range slices.Chunk([]byte(message), n) {
		s.feed(piece)
	}
	return string(s.replacement())
}

// Events are server-sent events as they are passed on within limits.
func Events(stream io.Reader, l Limits) (string, error) {
	all, err := io.ReadAll(newLargeEvents(io.NopCloser(stream), l))
	return string(all), err
}

// Forget makes what a client has read of a server's login as old as can be.
func Forget(c *Client, server string) {
	k := c.hosts[server].auth.(*tokenCache)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = k.read.Add(-freshTime)
}

// GetAsAuthClient gets an address as what is said of tokens for the server is got.
func GetAsAuthClient(ctx context.Context, s Server, address string) error {
	client, closeIdle := newAuthClient(s)
	defer closeIdle()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return plainAuthError(err)
	}
	return res.Body.Close()
}
