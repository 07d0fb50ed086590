package netguard_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"turnkeeper/internal/netguard"
)

// TestAllowedHosts dials addresses that are refused unless allowed. An allowed dial may fail for another reason, such
// as missing IPv6.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, entry, host string
		anywhere          bool
		allowed           bool
	}{
		{"nothing is allowed", "none.example", "127.0.0.1", false, false},
		{"everything is allowed", "none.example", "127.0.0.1", true, true},
		{"the address", "127.0.0.1", "127.0.0.1", false, true},
		{"the address and its port", "127.0.0.1:PORT", "127.0.0.1", false, true},
		{"another port", "127.0.0.1:1", "127.0.0.1", false, false},
		{"another address", "127.0.0.2", "127.0.0.1", false, false},
		{"the name", "localhost", "localhost", false, true},
		{"the name in other letters", " LocalHost.", "localhost", false, true},
		{"the name and its port", "localhost:PORT", "localhost", false, true},
		{"the name and another port", "localhost:1", "localhost", false, false},
		{"another name", "localhost.example", "localhost", false, false},
		{"the name of an address", "localhost", "127.0.0.1", false, false},
		{"an empty entry", "", "", false, false},
		{"IPv6", "::1", "::1", false, true},
		{"IPv6 written otherwise", "0:0:0:0:0:0:0:1", "::1", false, true},
		{"IPv6 in brackets", "[::1]", "::1", false, true},
		{"IPv6 in brackets with its port", "[::1]:PORT", "::1", false, true},
		{"IPv6 in brackets with another port", "[::1]:1", "::1", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dialer := netguard.Dialer{
				Allowed: []string{strings.ReplaceAll(c.entry, "PORT", port)}, Anywhere: c.anywhere,
				Refuse: func(string) string { return "test" },
			}
			conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(c.host, port))
			if err == nil {
				_ = conn.Close()
			}
			var refused *netguard.RefusedError
			if errors.As(err, &refused) == c.allowed {
				t.Errorf("entry %q, host %q: %v", c.entry, c.host, err)
			}
			if c.allowed && err != nil && c.host != "::1" {
				t.Errorf("entry %q, host %q: %v", c.entry, c.host, err)
			}
		})
	}
}

// TestRefusedByDefault checks the default check of a Dialer.
func TestRefusedByDefault(t *testing.T) {
	t.Parallel()
	var refused *netguard.RefusedError
	if _, err := (netguard.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:1"); !errors.As(err, &refused) ||
		refused.Kind != "loopback" {
		t.Errorf("dialling a loopback address: %v", err)
	}
}
