package config

import (
	"errors"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkListen accepts HOST:PORT or an empty text.
func checkListen(text string) error {
	if text == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(text)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || notNumber != nil || n > 65535:
		return errors.New("it must be HOST:PORT, such as 127.0.0.1:8722")
	case host == "":
		return errors.New("it must have a host: 127.0.0.1 for this machine only, 0.0.0.0 for every address")
	default:
		return nil
	}
}

// NeedsToken reports whether the HTTP API is on, and all requests to it need a token.
func (c *Config) NeedsToken() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || !c.HasRole(RoleAPI) {
		return false
	}
	ip, _ := netip.ParseAddr(host) // the zero address is not a loopback address
	return len(c.AllowedHosts) > 0 || !ip.IsLoopback() && host != "localhost"
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// hostNames makes a setting of a comma-separated list of host names.
func hostNames(field func(*Config) *[]string, s Setting) Setting {
	s.Type, s.Bounds = "list", "host names without ports"
	s.set = func(c *Config, text string) error {
		list := []string{}
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name == "" {
				continue
			}
			if !hostName.MatchString(name) {
				return errors.New("it must be host names without ports, separated by commas")
			}
			list = append(list, name)
		}
		slices.Sort(list)
		*field(c) = slices.Compact(list)
		return nil
	}
	s.get = func(c *Config) string { return strings.Join(*field(c), ",") }
	return s
}
