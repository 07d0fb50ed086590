package request

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestBulkyBodies checks that a body with millions of values is refused before it is decoded.
func TestBulkyBodies(t *testing.T) {
	many := "[" + strings.Repeat("[],", 3_000_000) + "0]"
	for body, says := range map[string]string{
		`{"body":` + many +
			`}`: "the request's body is not taken: it has more than 100000 JSON values",
		strings.Repeat("[", 100) + strings.Repeat("]",
			100): "it has more than 64 levels of nested JSON objects and arrays",
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		c := Call{W: httptest.NewRecorder(), Request: r}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var into map[string]any
		err := c.Read(16<<20, &into)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20s: %v", body, err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
			t.Errorf("%.20s: %d MiB were allocated", body, allocated>>20)
		}
	}
}
