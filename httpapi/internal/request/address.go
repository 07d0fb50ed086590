package request

import (
	"net"
	"net/netip"
)

// From names the sender's address, as its rate is limited. Who has one address of version 6
// has at least 2^64 of them: they count as one.
func (c *Call) From() string {
	host := HostOf(c.RemoteAddr)
	if ip, _ := netip.ParseAddr(host); ip.Unmap().Is6() {
		return "from " + netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return "from " + host
}

// HostOf returns an address without its port.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
