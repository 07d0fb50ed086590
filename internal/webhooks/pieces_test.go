package webhooks_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/webhooks"
)

// TestSignature uses the example of the Standard Webhooks specification.
func TestSignature(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"test": 2432232314}`)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := webhooks.Sign([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body); got != want {
		t.Errorf("got %s", got)
	}
	both := webhooks.Sign([][]byte{make([]byte, 24), key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
	if first, second, found := strings.Cut(both, " "); !found || second != want || first == want {
		t.Errorf("with two keys it is %s", both)
	}
}

func TestBackoff(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		1: 5 * time.Second, 2: 15 * time.Second, 3: 45 * time.Second, 8: 5 * 3 * 3 * 3 * 3 * 3 * 3 * 3 * time.Second,
		9: webhooks.Longest, 100: webhooks.Longest,
	} {
		if got := webhooks.Backoff(attempt, 0.5); got != want {
			t.Errorf("after attempt %d it waits %s, not %s", attempt, got, want)
		}
		low, high := webhooks.Backoff(attempt, 0), webhooks.Backoff(attempt, 0.999999)
		if low != want*3/4 || high <= want || high > want*5/4 {
			t.Errorf("after attempt %d it waits %s to %s", attempt, low, high)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 120 ": 2 * time.Minute, "-5": 0, "soon": 0, "1.5": 0,
		"999999999":   webhooks.Longest,
		"99999999999": webhooks.Longest, "99999999999999999999": webhooks.Longest, "-99999999999999999999": 0,
		"-10000000000": 0, "Wed, 04 Mar 2026 05:07:07 GMT": time.Minute, "Wed, 04 Mar 2026 05:00:00 GMT": 0,
		"Thu, 04 Mar 2027 05:06:07 GMT": webhooks.Longest,
	} {
		if got := webhooks.RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func TestExcerpt(t *testing.T) {
	for body, want := range map[string]string{
		"":                                  "",
		"no such\r\n\thook\x00 ":            "no such hook",
		"\xff\xfe binary":                   "",
		"cut gr\xc3":                        "cut gr",
		strings.Repeat("ü", 300):            strings.Repeat("ü", 200),
		"\u202e\x1b[31mred\x1b[0m":          "[31mred [0m",
		strings.Repeat("a", 200) + "b":      strings.Repeat("a", 200),
		strings.Repeat("a", 195) + "secret": strings.Repeat("a", 195) + "[reda", // masked before truncation
		"gone" + strings.Repeat(" ", 16<<10-4-3) + "sec": "gone", // the limit cuts a secret
	} {
		mask := func(s string) string { return strings.ReplaceAll(s, "secret", "[redacted]") }
		if got := webhooks.Excerpt([]byte(body), mask); got != want {
			t.Errorf("%q becomes %q", body, got)
		}
	}
}

func TestConcealer(t *testing.T) {
	conceal := webhooks.Concealer(
		"https://hooks.example/services/T0001/B%2F0002x/Xy12345678?token=ab%20cdefg&v=2#fragment")
	for text, want := range map[string]string{
		"no POST /services/T0001/B%2F0002x/Xy12345678?token=ab%20cdefg&v=2 here": "no POST [redacted] here",
		"no /services/T0001/B/0002x/Xy12345678 here":                             "no [redacted] here",
		`{"path":"\/services\/T0001\/B%2F0002x\/Xy12345678"}`:                    `{"path":"\/[redacted]\/T0001\/[redacted]\/[redacted]"}`,
		"no B/0002x here":                  "no [redacted] here",
		"token ab cdefg is not ab%20cdefg": "token [redacted] is not [redacted]",
		"hooks.example v=2":                "hooks.example v=2",
	} {
		if got := conceal(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	for _, address := range []string{"https://a", "https://a/", "https://a/x?y", "::"} {
		if got := webhooks.Concealer(address)("https://a/x?y"); got != "https://a/x?y" {
			t.Errorf("%s: %q", address, got)
		}
	}
}
