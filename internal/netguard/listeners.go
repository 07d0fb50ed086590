package netguard

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Listeners are the ports that a process listens on. The zero value has none, and so has nil.
// Several goroutines may use them.
type Listeners struct {
	mu    sync.Mutex
	ports []uint16
}

// Add adds a listener by its address, "ip:port". What is no such address is not added.
func (l *Listeners) Add(address string) {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports = append(l.ports, parsed.Port())
}

// have says that "ip:port" is one of the ports, at any address of this machine: whatever address
// the listener has, others may lead to it.
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

// isLocal says that the address is one of this machine. Where the machine does not tell which it
// has, every address is.
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
