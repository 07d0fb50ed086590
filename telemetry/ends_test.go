package telemetry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/internal/endtest"
	"turnkeeper/internal/turnlog"
)

// TestTheLastExportEndsWithItsContext checks that a receiver that does not answer does not hold up the end of a process
// that must stop.
func TestTheLastExportEndsWithItsContext(t *testing.T) {
	t.Parallel()
	endtest.Each(t, func(t *testing.T, h *endtest.Hang) {
		server := httptest.NewServer(h)
		defer server.Close()
		told, err := start(t, nil, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, end := told.Dispatch(t.Context(), agentturn.DispatchBegin{Record: &turnlog.Record{
			Turn: turnkeeper.Turn{ID: 1, Agent: "clerk"}}})
		end(agentturn.DispatchEnd{})
		if err := h.Check(t, told.Close); !errors.Is(err, context.Canceled) {
			t.Errorf("its error is %v", err)
		}
	})
}
