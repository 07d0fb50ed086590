package page

import (
	"crypto/tls"
	"net/http"
	"testing"
)

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
			if got := behindTLS(&http.Request{Header: test.header, TLS: test.tls}); got != test.want {
				t.Errorf("behind TLS: %v", got)
			}
		})
	}
}
