package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"turnkeeper/policy"
)

// Each destination is compared in its normal form. One without a normal form matches nothing.
func TestDestinations(t *testing.T) {
	const open = "https://example.com/open/**"
	for _, c := range []struct {
		pattern, to string
		want        bool
	}{
		{"*@example.com", "ann@example.com", true},
		{"*@example.com", "Ann.B+x@EXAMPLE.com", true},
		{"*@EXAMPLE.com", "ann@example.com", true},
		{"*@example.com", " ann@example.com. ", true},
		{"*@example.com", "<ann@example.com>", true},
		{"*@example.com", "Ann B <ann@example.com>", true},
		{"*@example.com", `"B, Ann" <ann@example.com>`, true},
		{"*@example.com", "ann@evil.com,bob@example.com", false},
		{"*@example.com", "ann@evil.com\nbob@example.com", false},
		{"*@example.com", "<ann@evil.com>bob@example.com", false},
		{"*@example.com", "bob@example.com <ann@evil.com>", false},
		{"*@example.com", `"ann@evil.com, x" <bob@example.com>`, false},
		{"*@example.com", `"x\" <ann@evil.com>" <bob@example.com>`, false},
		{"*@example.com", `"<ann" <bob@example.com>`, false},
		{"*@example.com", "<ann@example.com", false},
		{"*@example.com", "ann@example.com>", false},
		{"*@example.com", "(x) ann@example.com", false},
		{"*@example.com", `"ann x"@example.com`, false},
		{"*@example.com", "ann%evil.com@example.com", false},
		{"*@example.com", "evil.com!ann@example.com", false},
		{"*@example.com", "@example.com", false},
		{"*@example.com", ".ann@example.com", false},
		{"*@example.com", "ann@@example.com", false},
		{"*@example.com", "ann@example.com.evil.com", false},
		{"*@example.com", "ann@example.comx", false},
		{"*@example.com", "ann@example..com", false},
		{"*@example.com", "ann@[127.0.0.1]", false},
		{"*@bücher.example", "ann@xn--bcher-kva.example", true},
		{"*@xn--bcher-kva.example", "ann@BÜCHER.example", true},
		{"*@example.com", "ann@exam\u200bple.com", false},
		{"*@kiwi.com", "ann@\u212aiwi.com", true}, // the Kelvin sign is k in a host name
		{"kim@example.com", "\u212aim@example.com", false},
		{"ann@example.com", "ann@example.com", true},
		{"ann@example.com", "bob@example.com", false},
		{"*@example.com", "", false},
		{"ann*@example.com", "ann.b@example.com", true},
		{"ann*@example.com", "bob@example.com", false},
		{"*@example.com", "mailto:ann@example.com", false},
		{"#team-*", "#Team-1", true},
		{"#team-*", "#other", false},
		{"org/**", "org/a/b", true},
		{"org/**", "org/../b", false},
		{"@ann", "@ANN", true},
		{"kiwi", "\u212aiwi", false},
		{"https://*.example.com/hook", "https://a.example.com/hook", true},
		{"https://*.example.com/hook", "https://evil.com/a.example.com/hook", false},
		{"https://api.example.com/**", "https://api.example.com/a/b?c=d", true},
		{"https://api.example.com/**", "https://api.example.com", true},
		{"https://api.example.com/**", "https://api.example.com?a=b", true},
		{"https://api.example.com/**", "https://api.example.com.evil.com/a", false},
		{"https://api.example.com/**", "https://api.example.com@evil.com/a", false},
		{"https://api.example.com/**", "https://ann@api.example.com/a", false},
		{"https://*.example.com/**", "https://evil.com/x.example.com/a", false},
		{"https://*.example.com/**", "https://evil.com?x.example.com/a", false},
		{"https://*.example.com/**", "https://evil.com#x.example.com/a", false},
		{"https://a.b/**", "https://a.b/c d", false},
		{"https://a.b/**", "https://a.b/\u00a0", false},
		{"https://a.b/**", "https://a.b/\x00", false},
		{"https://a.b/**", "https://a.b/\ufffd", false},
		{open, "https://example.com/open/a", true},
		{open, "HTTPS://EXAMPLE.com.:443/open/a", true},
		{"HTTPS://EXAMPLE.com.:443/open/**", "https://example.com/open/a", true},
		{open, "https://example.com:0443/open/a", true},
		{open, "https://example.com:8443/open/a", false},
		{open, "http://example.com/open/a", false},
		{"https://example.com/ope%6e/**", "https://example.com/%6Fpen/a", true},
		{open, "https://example.com/Open/a", false}, // paths differ in case
		{open, "https://example.com/open/../shut", false},
		{open, "https://example.com/open/%2e%2e/shut", false},
		{open, "https://example.com/open/%2E./shut", false},
		{open, "https://example.com/open/%252e%252e/shut", false},
		{open, "https://example.com/open/..%2fshut", false},
		{open, "https://example.com/open/..%5cshut", false},
		{open, `https://example.com/open/..\shut`, false},
		{open, `https://example.com\open/a`, false},
		{open, "https://example.com/open/..;x/shut", false},
		{open, "https://example.com/open//../shut", false},
		{open, "https://example.com/open/a/../../shut", false},
		{open, "https://example.com/shut/../open/a", false}, // to a server that does not resolve it
		{open, "https://example.com/open/a/../b/./c", true},
		{open, "https://example.com/open/%zz", false},
		{open, "https:example.com/open/a", false},
		{open, "https:/example.com/open/a", false},
		{open, "//example.com/open/a", false},
		{open, "https:///example.com/open/a", false},
		{open, "https://example.com:/open/a", true},
		{open, "https://example.com:99999/open/a", false},
		{open, "https://ex%61mple.com/open/a", false},
		{open, "https://example。com/open/a", true},
		{open, "https://example.com/open/a,https://evil.com/", false},
		{open, "https://example.com/open/a;ann@evil.com", false},
		{open, "https://example.com/open/a,b", true},
		{"https://example.com/open", "https://example.com/open?x", false},
		{"https://example.com/**", "https://example.com/../a", true},
		{"https://bücher.example/**", "https://xn--bcher-kva.example/", true},
		{"https://[::1]/**", "https://[0:0::1]/a", true},
		{"https://[::1]/**", "https://[::1%25eth0]/a", false},
		{"https://10.0.0.*/**", "https://10.0.0.7/a", true},
		{"https://a.b/c", "https://a.b/c#x", false},
		{"https://a.b/**", "https://a.b/%20", true},
		{"https://a.b/**", "https://a.b/%1f", false},
		{"https://a.b/**", "https://a.b/%7F", false},
		{"https://a.b/**", "https://a.b/*", false}, // only patterns have a *
		{"#team-*", "#team-1,#team-2", true},
		{"#team-*", "#team-1;#other", false},
		{"org/**", "org//a", false},
		{"org/**", "org/./a", false},
		{"org/**", "org/*", false},
		{"", "", false},
		{"a b", "a b", false}, // no valid pattern
		{"*@example.com", "A\x00nn <ann@example.com>", false},
		{"*@example.com", `Ann" <ann@example.com>`, false},
		{"*@example.com", `"Ann <ann@example.com>`, false},
		{"*@example.com", `" <ann@example.com>`, false},
		{"*@example.com", "<ann@example.com>bob@evil.com", false},
		{"*@example.com", "<ann@example.com> ", true},
		{"*@example.com", "<@example.com>", false},
		{"*@" + strings.Repeat("a", 63) + ".com", "ann@" + strings.Repeat("a", 63) + ".com", true},
		{"*@" + strings.Repeat("a", 64) + ".com", "ann@" + strings.Repeat("a", 64) + ".com", false},
	} {
		if got := policy.MatchDestination(c.pattern, c.to); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.to, got, c.want)
		}
	}
	for pattern, want := range map[string]string{
		"*@example.com": "", "https://a/**": "", "*.*.*.*.*.com": "", strings.Repeat("a", 200): "",
		"https://*.example.com/x-*/**": "", "org/**": "",
		"": "1 to 200 bytes", "a b": "1 to 200 bytes", strings.Repeat("a", 201): "1 to 200 bytes",
		"*":  "every destination",
		"**": "end of a URL", "https://**.com": "end of a URL", "a**": "end of a URL", "*.*.*.*.*.*.com": "more than 5",
		"https://*/**": "every destination", "*@*": "every destination",
		"https://example.com/open/../x": "no . or ..", "https://example.com/%2e%2e/x": "no . or ..",
		"https://ann@example.com/**": "a user",
		"https://example.com/%zz":    "not a URL", `https://example.com/a\b`: `a \`,
		"https://example.com/%252e": "an encoded",
		"Ann<*@example.com>":        "an address alone", "a@b@c": "an address alone",
		"*@exa_mple..com":      "an address alone",
		"größe":                "letters and digits of ASCII",
		"https://exa mple.com": "1 to 200 bytes", "https://example..com/": "host",
		"*/*": "every destination", "*/**": "every destination", "*.*/**": "every destination", "/**": "no . or ..",
		"https:///**":    "not valid",
		"//a.b/c://d/**": "not a URL", "https://[fe80::1%25eth0]/**": "host", "*@*_x.com": "an address alone",
		"*@-a.com":         "an address alone",
		"https://a.b:0/**": "port", "git://a.b:0/**": "port", "https://a.b:1/**": "", "https://a.b:65535/**": "",
		"https://a.b:65536/**":                           "port",
		"https://a.b:" + strings.Repeat("9", 30) + "/**": "port", "https://a.b/..;x/**": "with parameters",
		"https://a.b//c/**": "",
	} {
		if fault := policy.CheckDestination(pattern); (fault == "") != (want == "") || !strings.Contains(fault, want) {
			t.Errorf("%q: %q, want %q", pattern, fault, want)
		}
	}
}

// TestNormalDestination checks the normal forms that patterns are compared with.
func TestNormalDestination(t *testing.T) {
	for text, want := range map[string][]string{
		"https://a.b":               {"https://a.b/"},
		"https://a.b/c/..":          {"https://a.b/", "https://a.b/c/"},
		"https://a.b/c/.":           {"https://a.b/c/", "https://a.b/c/"},
		"https://a.b/c/./d":         {"https://a.b/c/d", "https://a.b/c/d"},
		"https://a.b/c/../d/":       {"https://a.b/d/", "https://a.b/c/d/"},
		"https://a.b/../../c":       {"https://a.b/c", "https://a.b/c"},
		"https://a.b//c":            {"https://a.b//c"},
		"https://a.b//c/..":         nil,
		"https://a.b/.;x/c":         nil,
		"https://a.b/c;x/d":         {"https://a.b/c;x/d"},
		"https://a.b/%20%c3%a9%7e":  {"https://a.b/%20%C3%A9~"},
		"https://a.b:8080/?#":       {"https://a.b:8080/"},
		"https://a.b/?c#d":          {"https://a.b/?c#d"},
		"http://a.b:443/":           {"http://a.b:443/"},
		"wss://a.b:443/":            {"wss://a.b/"},
		"https://[::0:1]:443":       {"https://[::1]/"},
		"B, Ann <ann@example.com>":  nil, // a list, or a name
		"B; Ann <ann@example.com>":  nil,
		`"B, A" <Ann@Example.com.>`: {"ann@example.com"},
		"*@example.com":             nil,
		"ann@a\u2135.com":           nil, // its ASCII form is no label
		"ann@\U0002f868.com":        nil, // a character that hosts cannot have
		"#Team/A":                   {"#team/a"},
	} {
		if got := policy.NormalDestination(text); !slices.Equal(got, want) {
			t.Errorf("%q has the normal form %q, want %q", text, got, want)
		}
	}
}

// Every destination that a call names is checked: of each argument, and of lists in an argument.
func TestWhichDestinationsAreChecked(t *testing.T) {
	mail := policy.Flow{Destination: []string{"to", "cc", "bcc"}, Destinations: []string{"*@example.com"}}
	for arguments, want := range map[string]bool{
		`{"to":"a@example.com"}`:                                      true,
		`{"to":"a@example.com","cc":"b@example.com"}`:                 true,
		`{"to":"a@example.com","cc":"b@evil.com"}`:                    false,
		`{"to":"a@example.com","bcc":["b@example.com","b@evil.com"]}`: false,
		`{"to":"a@example.com","CC":"b@evil.com"}`:                    false,
		`{"to":"a@example.com","To":"b@evil.com"}`:                    false,
		`{"to":"a@example.com","cc":null,"bcc":[]}`:                   true,
		`{"to":"a@example.com","cc":""}`:                              false,
		`{"to":"a@example.com","cc":{"mail":"b@evil.com"}}`:           false,
		`{"to":"a@example.com","cc":[["b@example.com"]]}`:             false,
		`{"to":"a@example.com","cc":1}`:                               false,
		`{"to":"a@example.com, b@example.com"}`:                       true,
		`{"to":"a@example.com; B <b@example.com>"}`:                   true,
		`{"to":"a@example.com, b@evil.com"}`:                          false,
		`{"to":"a@example.com; b@evil.com"}`:                          false,
		`{"to":"a@example.com b@evil.com"}`:                           false,
		`{"to":"a@example.com,"}`:                                     false,
		`{"to":["a@example.com, b@evil.com"]}`:                        false,
		`{"to":"\"x, y\" <a@example.com>, b@example.com"}`:            true,
		`{"to":"\"x, a@example.com"}`:                                 false,
		`{"cc":"a@example.com"}`:                                      true,
		`{"to":null}`:                                                 false,
		`{"to":[]}`:                                                   false,
		`{"to":[null]}`:                                               false,
		`{"to":["a@example.com",null]}`:                               false,
		`{"subject":"a@example.com"}`:                                 false,
		`[]`:                                                          false,
	} {
		if got := mail.Allows(json.RawMessage(arguments)); got != want {
			t.Errorf("%s is allowed: %v, want %v", arguments, got, want)
		}
	}
	channels := policy.Flow{Destination: []string{"to"}, Destinations: []string{"*", "**"}}
	for arguments, want := range map[string]bool{`{"to":"team"}`: true, `{"to":1}`: false,
		`{"to":["team",{}]}`: false} {
		if got := channels.Allows(json.RawMessage(arguments)); got != want {
			t.Errorf("%s is allowed: %v, want %v", arguments, got, want)
		}
	}
}

// FuzzDestinations checks that a destination in its normal form has the same normal form, and that it matches a pattern
// only if its normal form does.
func FuzzDestinations(f *testing.F) {
	for _, text := range []string{"https://Example.com:443/a/../b%7e?x#y", "Ann <ann@Example.com>", "#team",
		"https://example.com/open/%2e%2e/shut"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, form := range policy.NormalDestination(text) {
			again := policy.NormalDestination(form)
			if len(again) == 0 || again[0] != form {
				t.Errorf("%q has the normal form %q, and that has %q", text, form, again)
			}
		}
	})
}
