package netguard_test

import (
	"net"
	"testing"

	"turnkeeper/internal/netguard"
)

func TestRefusal(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
		"0.0.0.0": "unspecified", "::": "unspecified",
		"10.1.2.3": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"fd00::1": "private", "fc00::1": "private", "fd00:ec2::254": "private",
		"169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"fec0::1":    "special-purpose",
		"100.64.0.1": "shared (CGNAT)", "100.100.100.200": "shared (CGNAT)", "100.127.255.255": "shared (CGNAT)",
		"224.0.0.1": "multicast", "239.255.255.250": "multicast", "ff02::1": "multicast",
		"255.255.255.255": "reserved", "240.0.0.1": "reserved",
		"168.63.129.16": "cloud metadata", "192.0.0.192": "special-purpose", "198.18.0.1": "benchmarking",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:169.254.169.254": "link-local",
		"::127.0.0.1": "special-purpose", "64:ff9b::7f00:1": "special-purpose", "64:ff9b:1::7f00:1": "special-purpose",
		"2002:7f00:1::": "6to4", "2001:0:7f00:1::": "special-purpose", "2001:db8::1": "documentation",
		"192.0.2.1": "documentation", "198.51.100.255": "documentation", "203.0.113.9": "documentation",
		"3fff:fff::1": "documentation",
		"192.88.99.1": "6to4 relay", "100::1": "special-purpose", "5f00::1": "special-purpose",
		"8.8.8.8": "", "172.15.255.255": "", "172.32.0.1": "", "100.63.255.255": "", "100.128.0.1": "",
		"::ffff:8.8.8.8":  "",
		"2606:4700::1111": "", "2a00:1450::1": "",
	} {
		if got := netguard.Refusal(net.JoinHostPort(address, "80")); got != want {
			t.Errorf("refusal(%s) = %q, want %q", address, got, want)
		}
	}
	if got := netguard.Refusal("example.com:80"); got != "malformed" {
		t.Errorf("a name is refused as %q", got)
	}
}
