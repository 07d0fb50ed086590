package agentturn

import (
	"testing"
	"time"
)

// TestTimeOfAProbe checks that a model that answers within model_idle_timeout also answers a probe in time.
func TestTimeOfAProbe(t *testing.T) {
	for _, idle := range []time.Duration{time.Second, 20 * time.Second, 30 * time.Second, 45 * time.Second,
		5 * time.Minute} {
		if within := probeWithin(idle); within <= idle || within < probeTime {
			t.Errorf("with model_idle_timeout %s a probe may take %s", idle, within)
		}
	}
}
