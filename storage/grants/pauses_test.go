package grants_test

import (
	"testing"
	"time"

	"turnkeeper/internal/modelhealth"
	"turnkeeper/storage/storagetest"
)

// TestPausesOfModels checks that Go and the schema have the same pause after a failure, and the same window of a pair.
func TestPausesOfModels(t *testing.T) {
	h := newEnv(t)
	for n := range 200 {
		pause := storagetest.One[time.Duration](h, "select turnkeeper.failure_pause($1)", n+1)
		window := storagetest.One[time.Duration](h, "select turnkeeper.pair_window($1)", n+1)
		if pause != modelhealth.Backoff(n+1) || window != modelhealth.PairWindow(n+1) {
			t.Errorf("after failure %d the schema has a pause of %s and a window of %s", n+1, pause, window)
		}
	}
}
