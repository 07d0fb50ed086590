package mcp

import (
	"context"
	"net/http"
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

// Forget makes what a client has read of a server's login as old as can be.
func Forget(c *Client, server string) {
	k := c.hosts[server].auth.(*keeper)
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
