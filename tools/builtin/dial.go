package builtin

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// A guardedDialer dials public addresses, and any address of the hosts it is
// allowed. It decides by the address that is about to be connected to, after
// the name was looked up: what a name meant a moment before does not count.
type guardedDialer struct {
	allowed  []string // "host" or "host:port"
	resolver *net.Resolver
	refuse   func(address string) string
}

func (g guardedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 15 * time.Second, Resolver: g.resolver}
	if !g.allows(address) {
		dialer.ControlContext = g.check
	}
	return dialer.DialContext(ctx, network, address)
}

func (g guardedDialer) allows(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, entry := range g.allowed {
		allowedHost, allowedPort := splitEntry(entry)
		if sameHost(host, allowedHost) && (allowedPort == "" || allowedPort == port) {
			return true
		}
	}
	return false
}

// splitEntry reads "host", "host:port", "[v6]:port" and a bare IPv6 address.
func splitEntry(entry string) (host, port string) {
	entry = strings.TrimSpace(entry)
	if _, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return strings.Trim(entry, "[]"), ""
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		return host, port
	}
	return entry, ""
}

func sameHost(a, b string) bool {
	if x, err := netip.ParseAddr(a); err == nil {
		y, err := netip.ParseAddr(b)
		return err == nil && x == y
	}
	return b != "" && strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// check is called with the address itself before each connection.
func (g guardedDialer) check(_ context.Context, _, address string, _ syscall.RawConn) error {
	if why := g.refuse(address); why != "" {
		return &refusedError{why: why}
	}
	return nil
}

// A refusedError tells the model what kind of address the host has. It does
// not tell which.
type refusedError struct {
	why string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the address is refused: the host is at a %s address; "+
		"an operator can allow the host in the agent's file", e.why)
}
