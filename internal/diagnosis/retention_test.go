package diagnosis

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/retention"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// TestWhenRetentionIsProposed judges databases of several sizes and ages, with and without a decision.
func TestWhenRetentionIsProposed(t *testing.T) {
	const days = 24 * time.Hour
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	unset := retention.Policy{Outputs: retention.ByDatabase, Events: retention.ByDatabase}
	for name, tt := range map[string]struct {
		set    retention.Policy
		kept   time.Duration
		bytes  int64
		oldest time.Duration
		want   Verdict
	}{
		"an old database that has grown": {unset, 0, grownBytes, grownFor + time.Second, Warn},
		"it is smaller":                  {unset, 0, grownBytes - 1, grownFor + time.Second, OK},
		"nothing is old":                 {unset, 0, grownBytes, grownFor, OK},
		"it is new":                      {unset, 30 * days, grownBytes, grownFor + time.Second, OK},
		"all is kept on purpose":         {retention.Policy{}, 0, grownBytes, grownFor + time.Second, OK},
		"messages are deleted": {retention.Policy{Messages: days, Outputs: retention.ByDatabase,
			Events: retention.ByDatabase}, 0, grownBytes, grownFor + time.Second, OK},
	} {
		d := &Report{}
		judgeRetention(d, tt.set, tt.kept, operate.StoredParts{Bytes: tt.bytes, Oldest: now.Add(-tt.oldest)},
			words.Clock{Now: now, Zone: time.UTC})
		if got := d.Checks[0]; got.Verdict != tt.want || (got.Advice == "") != (tt.want == OK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	d := &Report{}
	judgeRetention(d, unset, 30*days, operate.StoredParts{}, words.Clock{Now: now, Zone: time.UTC})
	if got := d.Checks[0].Found; !strings.HasSuffix(got,
		"messages for ever, outputs for 30 days, events for 30 days, leases for ever") {
		t.Error(got)
	}
}
