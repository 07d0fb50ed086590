package turnkeeper_test

import (
	"testing"
	"time"

	"turnkeeper"
)

func TestASilentWorkerIsSilentWhateverItsTakeover(t *testing.T) {
	t.Parallel()
	for _, takeover := range []time.Duration{0, time.Second, turnkeeper.SilentAfter, time.Hour} {
		h := turnkeeper.Heartbeat{Slots: 1, TakeoverAfter: takeover, Silent: turnkeeper.SilentAfter}
		if got := h.State(); got != turnkeeper.WorkerAlive {
			t.Errorf("takeover after %s, silent for %s: %s", takeover, h.Silent, got)
		}
		h.Silent++
		if got := h.State(); got != turnkeeper.WorkerSilent {
			t.Errorf("takeover after %s, silent for %s: %s", takeover, h.Silent, got)
		}
	}
}
