package netguard_test

import (
	"net/netip"
	"testing"

	"turnkeeper/internal/netguard"
)

// TestTheEdgesOfEachRange checks the first and the last address of each special range, and the addresses beside it.
func TestTheEdgesOfEachRange(t *testing.T) {
	t.Parallel()
	refused := func(ip netip.Addr) string { return netguard.Refusal(netip.AddrPortFrom(ip, 443).String()) }
	for _, r := range []struct{ before, first, last, after, kind string }{
		{"", "0.0.0.0", "0.255.255.255", "", "unspecified"},
		{"", "10.0.0.0", "10.255.255.255", "", "private"},
		{"", "100.64.0.0", "100.127.255.255", "", "shared (CGNAT)"},
		{"", "127.0.0.0", "127.255.255.255", "", "loopback"},
		{"", "169.254.0.0", "169.254.255.255", "", "link-local"},
		{"", "172.16.0.0", "172.31.255.255", "", "private"},
		{"", "192.0.0.0", "192.0.0.255", "", "special-purpose"},
		{"", "192.0.2.0", "192.0.2.255", "", "documentation"},
		{"", "192.88.99.0", "192.88.99.255", "", "6to4 relay"},
		{"", "192.168.0.0", "192.168.255.255", "", "private"},
		{"", "198.18.0.0", "198.19.255.255", "", "benchmarking"},
		{"", "198.51.100.0", "198.51.100.255", "", "documentation"},
		{"", "203.0.113.0", "203.0.113.255", "", "documentation"},
		{"", "224.0.0.0", "239.255.255.255", "reserved", "multicast"},
		{"multicast", "240.0.0.0", "255.255.255.255", "", "reserved"},
		{"", "168.63.129.16", "168.63.129.16", "", "cloud metadata"},
		{"special-purpose", "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "", "special-purpose"},
		{"", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "", "documentation"},
		{"", "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", "6to4"},
		{"", "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "", "documentation"},
		{"special-purpose", "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "special-purpose", "private"},
		{"special-purpose", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "special-purpose", "link-local"},
		{"special-purpose", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", "multicast"},
		{"special-purpose", "4000::", "4000::", "special-purpose", "special-purpose"},
	} {
		first, last := netip.MustParseAddr(r.first), netip.MustParseAddr(r.last)
		for ip, want := range map[netip.Addr]string{first: r.kind, last: r.kind, first.Prev(): r.before,
			last.Next(): r.after} {
			if r.first == "2001::" && ip == first.Prev() || r.first == "4000::" && ip == first.Prev() {
				want = "" // the end of the public range, and the range before it
			}
			if got := refused(ip); ip.IsValid() && got != want {
				t.Errorf("%s is refused as %q, want %q", ip, got, want)
			}
		}
	}
}
