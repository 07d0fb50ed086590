package httpapi_test

import (
	"net/http"
	"net/url"
	"testing"
)

// TestAddressesThatAreNoText checks that paths and queries with invalid text get a client error, not a server error.
func TestAddressesThatAreNoText(t *testing.T) {
	h := newEnv(t)
	for path, status := range map[string]int{
		"/v1/outputs/%00": 404, "/v1/outputs/%ff": 404, "/v1/webhooks/%00/deliveries": 404,
		"/v1/webhooks/a%c3/deliveries": 404,
		"/v1/models/%00":               404, "/v1/responses/%00": 404, "/v1/turns/%00/events": 404,
		"/v1/turns?agent=%00": 400, "/v1/turns?agent=%ff": 400, "/v1/outbox?agent=%00": 400, "/v1/lanes?%00=1": 400,
		"/v1/outbox?after=9%zz": 400, "/v1/outbox?after=9;limit=1": 400,
		"/v1/turns?agent=gr%c3%bc%c3%9fe": 200, "/v1/turns?agent=a+b%26": 200,
	} {
		a := h.ask("GET", path, "")
		if a.status != status {
			t.Errorf("%s is answered %d %s, want %d", path, a.status, a.body, status)
		}
	}
	for path, status := range map[string]int{"/turns?agent=%00": 400, "/inbox?agent=%ff": 400, "/outputs/%00": 404} {
		h.ask("GET", path, "", "Accept", "text/html").wantPage(t, status)
	}
	for _, values := range []url.Values{{"reason": {"\xff"}}, {"reason": {"a\x00"}}, {"a\x00": {"b"}}} {
		h.submit("/scheduler/pause", values).wantPage(t, http.StatusBadRequest,
			"The form is not valid UTF-8 text without NUL characters")
	}
}
