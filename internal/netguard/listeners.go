package netguard

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Listeners are the ports that a process listens on. The zero value and nil have none. It is safe for
// concurrent use.
type Listeners struct {
	mu    sync.Mutex
	ports []uint16
}

// Add adds the port of a listener's address, "ip:port". Other addresses are ignored.
func (l *Listeners) Add(address string) {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports = append(l.ports, parsed.Port())
}

// have reports whether "ip:port" is one of the ports at any address of this machine: several addresses
// may lead to the same listener.
func (l *Listeners) have(address string) bool {
	if l == nil {
		return false
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	l.mu.Lock()
	ours := slices.Contains(l.ports, target.Port())
	l.mu.Unlock()
	return ours && isLocal(target.Addr().Unmap().WithZone(""))
}

// isLocal reports whether the address is one of this machine. If the machine's addresses cannot be
// listed, it returns true.
func isLocal(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == ip
	})
}
