package builtin_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"turnkeeper/internal/endtest"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// TestHTTPGetEndsWithItsCall checks that a request ends with the context of its call.
func TestHTTPGetEndsWithItsCall(t *testing.T) {
	endtest.Each(t, func(t *testing.T, h *endtest.Hang) {
		server := httptest.NewServer(h)
		defer server.Close()
		arguments, _ := json.Marshal(map[string]string{"url": server.URL})
		_ = h.Check(t, func(ctx context.Context) error {
			_, err := tools.Run(ctx, builtin.NewHTTPGet(allow("127.0.0.1")), tools.Call{Agent: "helper",
				Arguments: arguments})
			return err
		})
	})
}
