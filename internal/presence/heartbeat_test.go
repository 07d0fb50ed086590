package presence_test

import (
	"testing"
	"time"

	"turnkeeper/internal/presence"
)

func TestASilentWorkerIsSilentWhateverItsTakeover(t *testing.T) {
	t.Parallel()
	for _, takeover := range []time.Duration{0, time.Second, presence.SilentAfter, time.Hour} {
		h := presence.Heartbeat{Slots: 1, TakeoverAfter: takeover, Silent: presence.SilentAfter}
		if got := h.State(); got != presence.Alive {
			t.Errorf("takeover after %s, silent for %s: %s", takeover, h.Silent, got)
		}
		h.Silent++
		if got := h.State(); got != presence.Silent {
			t.Errorf("takeover after %s, silent for %s: %s", takeover, h.Silent, got)
		}
	}
}
