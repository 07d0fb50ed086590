package mcp

import (
	"context"
	"io"
	"net/http"
	"slices"

	"turnkeeper/tools/mcp/mcpdef"
)

// Limits are the limits of a client.
type Limits = limits

// NewLimited returns a Client with limits changed by set.
func NewLimited(cfg Config, set ...func(*Limits)) *Client {
	l := defaultLimits()
	for _, f := range set {
		f(&l)
	}
	cfg.limits = &l
	return New(cfg)
}

// Replacement returns the replacement of a too large message that is read in
// pieces of n bytes.
func Replacement(message string, n int) string {
	var s skimmer
	for piece := range slices.Chunk([]byte(message), n) {
		s.feed(piece)
	}
	return string(s.replacement(nil))
}

// Events returns a stream of server-sent events after large ones were replaced.
func Events(stream io.Reader, l Limits) (string, error) {
	all, err := io.ReadAll(newLargeEvents(context.Background(), io.NopCloser(stream), l))
	return string(all), err
}

// Forget makes a client's cached login of a server too old to be used.
func Forget(c *Client, server string) {
	k := c.hosts[server].auth.(*tokenCache)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = k.read.Add(-freshTime)
}

// GetAsAuthClient gets an address with the HTTP client for authorization
// servers.
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

// LoginIn returns what is sealed in a stored login, as JSON.
func LoginIn(key []byte, row mcpdef.Login) (string, error) {
	l, err := unseal(key, row.Server, row.Sealed)
	if err != nil {
		return "", err
	}
	return sorted(l)
}
