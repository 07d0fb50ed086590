package request

import (
	"net"
	"net/netip"
)

// From returns the key of the sender's address for the rate limit. An IPv6 client usually has a whole
// /64 network, so all addresses of a /64 count as one.
func (c *Call) From() string {
	host := HostOf(c.RemoteAddr)
	if ip, _ := netip.ParseAddr(host); ip.Unmap().Is6() {
		return "from " + netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return "from " + host
}

// HostOf returns an address without its port, if it has one.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
