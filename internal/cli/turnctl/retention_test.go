package turnctl

import (
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/retention"
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
		want   string
	}{
		"an old database that has grown": {unset, 0, grownBytes, grownFor + time.Second, checkWarn},
		"it is smaller":                  {unset, 0, grownBytes - 1, grownFor + time.Second, checkOK},
		"nothing is old":                 {unset, 0, grownBytes, grownFor, checkOK},
		"it is new":                      {unset, 30 * days, grownBytes, grownFor + time.Second, checkOK},
		"all is kept on purpose":         {retention.Policy{}, 0, grownBytes, grownFor + time.Second, checkOK},
		"messages are deleted":           {retention.Policy{Messages: days, Outputs: retention.ByDatabase, Events: retention.ByDatabase}, 0, grownBytes, grownFor + time.Second, checkOK},
	} {
		d := &diagnosis{}
		judgeRetention(d, tt.set, tt.kept, operate.StoredParts{Bytes: tt.bytes, Oldest: now.Add(-tt.oldest)}, term.Clock{Now: now, Zone: time.UTC})
		if got := d.Checks[0]; got.Verdict != tt.want || (got.Advice == "") != (tt.want == checkOK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	d := &diagnosis{}
	judgeRetention(d, unset, 30*days, operate.StoredParts{}, term.Clock{Now: now, Zone: time.UTC})
	if got := d.Checks[0].Found; !strings.HasSuffix(got, "messages for ever, outputs for 30 days, events for 30 days, leases for ever") {
		t.Error(got)
	}
}
