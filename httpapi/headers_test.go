package httpapi_test

import (
	"net/http"
	"testing"
)

// TestEveryAnswerOfTheAPIIsProtected checks the headers of answers that succeed, fail and have no route: nothing is
// cached, guessed or framed.
func TestEveryAnswerOfTheAPIIsProtected(t *testing.T) {
	h := newEnv(t)
	for path, status := range map[string]int{
		"/healthz": http.StatusOK, "/v1/turns": http.StatusOK, "/v1/turns/999": http.StatusNotFound,
		"/v1/turns?limit=x": http.StatusBadRequest,
		"/v1/nothing":       http.StatusNotFound,
	} {
		got := h.ask("GET", path, "")
		if got.status != status {
			t.Errorf("%s: status %d, want %d", path, got.status, status)
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
		} {
			if values := got.header.Values(name); len(values) != 1 || values[0] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, values, want)
			}
		}
	}
}
