package config_test

import (
	"strings"
	"testing"

	"turnkeeper/internal/config"
)

func TestAddressesOfTheAPI(t *testing.T) {
	for _, c := range []struct{ name, setting, value, want, refuse string }{
		{"an address", "listen", "127.0.0.1:8080", "127.0.0.1:8080", ""},
		{"of version 6", "listen", "[::1]:0", "[::1]:0", ""},
		{"a name", "listen", "localhost:80", "localhost:80", ""},
		{"off", "listen", "", "", ""},
		{"no port", "listen", "127.0.0.1", "", "must be HOST:PORT"},
		{"no such port", "listen", "127.0.0.1:70000", "", "must be HOST:PORT"},
		{"no host", "listen", ":80", "", "must have a host"},
		{"names", "allowed-hosts", "b.example, A.Example,b.example", "a.example,b.example", ""},
		{"a URL", "allowed-hosts", "http://a.example", "", "without ports"},
		{"a port", "allowed-hosts", "a.example:80", "", "without ports"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got, err := config.Load(config.LoadOptions{Env: env(nil), Flags: map[string]string{c.setting: c.value}})
			if c.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), c.refuse) {
					t.Errorf("got %v, want %q", err, c.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			value := got.Listen
			if c.setting == "allowed-hosts" {
				value = strings.Join(got.AllowedHosts, ",")
			}
			if value != c.want {
				t.Errorf("got %q, want %q", value, c.want)
			}
		})
	}
}

func TestNeedsToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listen, role, host string
		want               bool
	}{
		{"127.0.0.1:8722", config.RoleAPI, "", false},
		{"[::1]:8722", config.RoleAPI, "", false},
		{"localhost:8722", config.RoleAPI, "", false},
		{"127.0.0.1:8722", config.RoleAPI, "turns.example", true},
		{"0.0.0.0:8722", config.RoleAPI, "", true},
		{"host.example:8722", config.RoleAPI, "", true},
		{"0.0.0.0:8722", config.RoleWorker, "", false},
		{"", config.RoleAPI, "turns.example", false},
	} {
		cfg := config.Default()
		cfg.Listen, cfg.Roles = c.listen, []string{c.role}
		if c.host != "" {
			cfg.AllowedHosts = []string{c.host}
		}
		if got := cfg.NeedsToken(); got != c.want {
			t.Errorf("%+v: NeedsToken is %t", c, got)
		}
	}
}
