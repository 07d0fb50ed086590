package request

import (
	"net/http"
	"testing"
)

func TestWhereARequestComesFrom(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7:80":             "from 192.0.2.7",
		"[2001:db8:1:2::1]:80":     "from 2001:db8:1:2::/64",
		"[2001:db8:1:2:f:f:f:f]:9": "from 2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:80":     "from 2001:db8:1:3::/64",
		"[fe80::1%eth0]:80":        "from fe80::/64",
		"[::ffff:192.0.2.7]:80":    "from ::ffff:192.0.2.7",
		"@":                        "from @",
	} {
		if got := (&Call{Request: &http.Request{RemoteAddr: address}}).From(); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}
