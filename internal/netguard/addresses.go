package netguard

import "net/netip"

// A block is a range of refused addresses and its kind.
type block struct {
	prefix netip.Prefix
	kind   string
}

func blockOf(prefix, kind string) block { return block{netip.MustParsePrefix(prefix), kind} }

// publicV6 is the range from which public IPv6 addresses are assigned so far. All others are refused,
// including the special ranges (::1, IPv4-compatible, 64:ff9b::/96 and 64:ff9b:1::/48 of NAT64,
// fc00::/7, fe80::/10, fec0::/10, ff00::/8).
var publicV6 = netip.MustParsePrefix("2000::/3")

// refusedBlocks follows IANA's special-purpose address registries. Tunnels such as 6to4 embed an IPv4
// address that the check would not see.
var refusedBlocks = []block{
	blockOf("0.0.0.0/8", "unspecified"),
	blockOf("10.0.0.0/8", "private"),
	blockOf("100.64.0.0/10", "shared (CGNAT)"),
	blockOf("127.0.0.0/8", "loopback"),
	blockOf("169.254.0.0/16", "link-local"), // includes the metadata services of most clouds
	blockOf("172.16.0.0/12", "private"),
	blockOf("192.0.0.0/24", "special-purpose"),
	blockOf("192.0.2.0/24", "documentation"),
	blockOf("192.88.99.0/24", "6to4 relay"),
	blockOf("192.168.0.0/16", "private"),
	blockOf("198.18.0.0/15", "benchmarking"),
	blockOf("198.51.100.0/24", "documentation"),
	blockOf("203.0.113.0/24", "documentation"),
	blockOf("224.0.0.0/4", "multicast"),
	blockOf("240.0.0.0/4", "reserved"),
	blockOf("168.63.129.16/32", "cloud metadata"), // Azure, in public address space
	blockOf("2001::/23", "special-purpose"),       // includes Teredo, 2001::/32
	blockOf("2001:db8::/32", "documentation"),
	blockOf("2002::/16", "6to4"),
	blockOf("3fff::/20", "documentation"),
}

// Refusal returns why "ip:port" must not be dialled; empty: it may.
func Refusal(address string) string {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return "malformed"
	}
	ip := target.Addr().Unmap().WithZone("")
	for _, b := range refusedBlocks {
		if b.prefix.Contains(ip) {
			return b.kind
		}
	}
	switch {
	case ip.Is4() || publicV6.Contains(ip):
		return ""
	case ip.IsLoopback():
		return "loopback"
	case ip.IsUnspecified():
		return "unspecified"
	case ip.IsPrivate():
		return "private"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsMulticast():
		return "multicast"
	}
	return "special-purpose"
}
