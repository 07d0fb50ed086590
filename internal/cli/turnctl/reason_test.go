package turnctl

import (
	"strings"
	"testing"

	"turnkeeper"
)

// TestWhyATurnEndedAfterAModelCall checks that explain speaks of tools only if some ran.
func TestWhyATurnEndedAfterAModelCall(t *testing.T) {
	for name, c := range map[string]struct {
		state turnkeeper.TurnState
		calls int
		want  string
	}{
		"failed":                  {turnkeeper.TurnFailed, 0, "before any tool had run"},
		"degraded after tools":    {turnkeeper.TurnDegraded, 2, "after tools had run"},
		"degraded in its round 1": {turnkeeper.TurnDegraded, 0, "no answer that could be used"},
	} {
		x := &explainer{}
		x.Turn.State, x.Turn.StopReason, x.Turn.ExecutedCalls = c.state, turnkeeper.StopInferenceError, c.calls
		if got := x.reason(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
