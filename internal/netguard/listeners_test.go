package netguard_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"turnkeeper/internal/netguard"
)

// TestOwnListeners checks that ports of this process are refused at every address of this machine, even if the address
// is allowed.
func TestOwnListeners(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.1.2.3", "localhost", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1",
		"0.0.0.0", "::"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		// link-local addresses need a zone
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			hosts = append(hosts, prefix.Addr().String())
		}
	}
	for _, at := range []string{listener.Addr().String(), "0.0.0.0:" + port, "[::]:" + port, "192.0.2.1:" + port} {
		own := &netguard.Listeners{}
		own.Add("no address")
		own.Add(at)
		for _, host := range hosts {
			for _, dialer := range []netguard.Dialer{
				{Own: own, Anywhere: true}, {Own: own, Allowed: []string{host}}, {Own: own},
			} {
				conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
				if err == nil {
					_ = conn.Close()
				}
				refused, ok := errors.AsType[*netguard.RefusedError](err)
				noIPv6 := !ok && err != nil && netip.MustParseAddr(addressOf(host)).Is6()
				if !noIPv6 && (!ok || !refused.Own()) {
					t.Errorf("listening at %s, %s was dialled: %v", at, host, err)
				}
			}
		}
	}
}

// addressOf returns host if it is an IP address, and 0.0.0.0 for a name.
func addressOf(host string) string {
	if _, err := netip.ParseAddr(host); err != nil {
		return "0.0.0.0"
	}
	return host
}

// TestOthersListeners checks that ports of other processes and machines are not refused as own ports.
func TestOthersListeners(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	elsewhere := &netguard.Listeners{}
	elsewhere.Add("127.0.0.1:1")
	for _, own := range []*netguard.Listeners{nil, {}, elsewhere} {
		conn, err := netguard.Dialer{Own: own, Anywhere: true}.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Error(err)
			continue
		}
		_ = conn.Close()
	}
	// The same port on another machine is not our own.
	elsewhere.Add("127.0.0.1:80")
	_, err = netguard.Dialer{Own: elsewhere, Refuse: func(string) string {
		return "refused by the test"
	}}.DialContext(t.Context(), "tcp", "192.0.2.1:80")
	if refused, ok := errors.AsType[*netguard.RefusedError](err); !ok || refused.Own() {
		t.Errorf("another machine: %v", err)
	}
}
