package netguard

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// A Dialer connects to public addresses, and to any address of allowed hosts. The zero value allows no
// host.
type Dialer struct {
	Allowed  []string      // hosts that may have any address, each "host" or "host:port"
	Anywhere bool          // allow every address
	Resolver *net.Resolver // nil: the system's
	// Refuse returns why "ip:port" must not be dialled; empty: it may. nil: Refusal.
	Refuse func(address string) string
	// Own are the ports of this process. They are always refused: the process trusts local
	// connections. nil: none.
	Own *Listeners
}

// dialTime is the timeout of one connect.
const dialTime = 15 * time.Second

// DialContext connects, or returns a *RefusedError before any byte is sent.
func (g Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime, Resolver: g.Resolver}
	free := g.Anywhere || g.allows(address)
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return g.check(address, free)
	}
	return dialer.DialContext(ctx, network, address)
}

func (g Dialer) allows(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for _, entry := range g.Allowed {
		allowedHost, allowedPort := splitEntry(entry)
		if sameHost(host, allowedHost) && (allowedPort == "" || allowedPort == port) {
			return true
		}
	}
	return false
}

// splitEntry parses "host", "host:port", "[v6]:port" or a bare IPv6 address.
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

// check checks the resolved address before each connection. free allows every address except those of
// this process.
func (g Dialer) check(address string, free bool) error {
	if g.Own.have(address) {
		return &RefusedError{Kind: ownKind}
	}
	if free {
		return nil
	}
	refuse := g.Refuse
	if refuse == nil {
		refuse = Refusal
	}
	if kind := refuse(address); kind != "" {
		return &RefusedError{Kind: kind}
	}
	return nil
}

// ownKind is the kind of a port in Dialer.Own.
const ownKind = "worker's own"

// A RefusedError says what kind of address a host has, without the address.
type RefusedError struct {
	Kind string // private, loopback, ...
}

// Own reports whether the address is in Dialer.Own, so that no setting can allow it.
func (e *RefusedError) Own() bool { return e.Kind == ownKind }

func (e *RefusedError) Error() string {
	return "the address is refused: the host is at a " + e.Kind + " address"
}
