package httpapi

import (
	"crypto/tls"
	"net/http"
	"testing"

	"turnkeeper/storage/operate"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		values []string
		secret string
		given  bool
		wrong  bool
	}{
		{"none", nil, "", false, false},
		{"a token", []string{"Bearer tk_1"}, "tk_1", true, false},
		{"the scheme in other letters", []string{"bEARER tk_1"}, "tk_1", true, false},
		{"blanks around it", []string{"Bearer   tk_1 "}, "tk_1", true, false},
		{"blanks within it", []string{"Bearer tk_1 tk_2"}, "tk_1 tk_2", true, false},
		{"no token", []string{"Bearer"}, "", false, true},
		{"a blank token", []string{"Bearer  "}, "", false, true},
		{"nothing", []string{""}, "", false, true},
		{"no scheme", []string{"tk_1"}, "", false, true},
		{"another scheme", []string{"Basic tk_1"}, "", false, true},
		{"a longer scheme", []string{"Bearers tk_1"}, "", false, true},
		{"two", []string{"Bearer tk_1", "Bearer tk_1"}, "", false, true},
		{"two, the second empty", []string{"Bearer tk_1", ""}, "", false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			secret, given, err := bearer(http.Header{"Authorization": test.values})
			if secret != test.secret || given != test.given || (err != nil) != test.wrong {
				t.Errorf("%q, given %v, %v", secret, given, err)
			}
		})
	}
}

func TestWhatACallerMay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		token              *operate.Token
		sends, sees, seesO bool
		all                bool
	}{
		{"without a token", nil, true, true, true, true},
		{"of all agents", &operate.Token{Scopes: []string{ScopeSend}}, true, true, true, true},
		{"of one agent", &operate.Token{Scopes: []string{ScopeRead, ScopeSend}, Agents: []string{"clerk"}}, true, true, false, false},
		{"of another agent", &operate.Token{Scopes: []string{ScopeRead}, Agents: []string{"clerks"}}, false, false, false, false},
		{"of no agent", &operate.Token{Agents: []string{}}, false, false, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := caller{test.token}
			if c.may(ScopeSend) != test.sends || c.sees("clerk") != test.sees || c.sees("desk") != test.seesO || c.seesAll() != test.all {
				t.Errorf("sends %v, sees clerk %v and desk %v, all %v", c.may(ScopeSend), c.sees("clerk"), c.sees("desk"), c.seesAll())
			}
		})
	}
}

func TestWhereABrowserIsSent(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"":                      "/",
		"/":                     "/",
		"/turns?state=failed#x": "/turns?state=failed",
		"/turns/7":              "/turns/7",
		"turns":                 "/",
		"//evil.example/":       "/",
		"///evil.example/":      "/",
		"/\\evil.example":       "/",
		"\\\\evil.example":      "/",
		"/\t/evil.example":      "/",
		"/\n/evil.example":      "/",
		"/\r/evil.example":      "/",
		"https://evil.example":  "/",
		"https:/turns":          "/",
		"javascript:alert(1)":   "/",
		"?next=/":               "/",
		"/%":                    "/",
		"/sign-in":              "/",
		"/sign-in/":             "/",
		"/./sign-in":            "/",
		"/sign-in?next=/":       "/",
		"/sign-in-not":          "/sign-in-not",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

func TestBehindTLS(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header http.Header
		tls    *tls.ConnectionState
		want   bool
	}{
		{"plain", http.Header{}, nil, false},
		{"TLS itself", http.Header{}, &tls.ConnectionState{}, true},
		{"a proxy that says so", http.Header{"X-Forwarded-Proto": {"HTTPS"}}, nil, true},
		{"a proxy that says otherwise", http.Header{"X-Forwarded-Proto": {"http"}}, nil, false},
		{"a list", http.Header{"X-Forwarded-Proto": {"https,http"}}, nil, false},
		{"Forwarded", http.Header{"Forwarded": {"for=1.2.3.4;Proto=HTTPS"}}, nil, true},
		{"Forwarded, plain", http.Header{"Forwarded": {"proto=http"}}, nil, false},
		{"a page of TLS", http.Header{"Origin": {"https://turns.example"}}, nil, true},
		{"a plain page", http.Header{"Origin": {"http://turns.example"}}, nil, false},
		{"a page of a name like it", http.Header{"Origin": {"http://https://"}}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := (&call{Request: &http.Request{Header: test.header, TLS: test.tls}}).behindTLS(); got != test.want {
				t.Errorf("behind TLS: %v", got)
			}
		})
	}
}
