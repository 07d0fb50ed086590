package netguard

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// A Dialer connects to public addresses, and to any address of the hosts it is allowed.
// The zero value allows none.
type Dialer struct {
	Allowed  []string      // hosts that may be anywhere, each "host" or "host:port"
	Anywhere bool          // every address is allowed
	Resolver *net.Resolver // nil: the system's
	// Refuse says why "ip:port" may not be connected to; empty: it may. nil: Refusal.
	Refuse func(address string) string
	// Own are the addresses of this process. They are refused whatever is allowed: who asks there
	// counts as this machine. nil: there are none.
	Own *Listeners
}

// dialTime bounds one connect.
const dialTime = 15 * time.Second

// DialContext connects, or fails with a *RefusedError before a byte is sent.
func (g Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTime, Resolver: g.Resolver}
	free := g.Anywhere || g.allows(address)
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error { return g.check(address, free) }
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

// check is called with the address itself before each connection. free says that it may be any but one
// of this process.
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

// ownKind is the kind of an address of Dialer.Own.
const ownKind = "worker's own"

// A RefusedError tells what kind of address the host has. It does not tell which.
type RefusedError struct {
	Kind string // private, loopback, ...
}

// Own says that nothing can allow the address: it is one of Dialer.Own.
func (e *RefusedError) Own() bool { return e.Kind == ownKind }

func (e *RefusedError) Error() string {
	return "the address is refused: the host is at a " + e.Kind + " address"
}
