package granting_test

import (
	"testing"
	"time"

	"turnkeeper/internal/granting"
)

const (
	us    = time.Microsecond
	sec   = time.Second
	lease = 4 * time.Minute
	began = -20 * sec
	never = time.Duration(1 << 62)
)

// TestLossesThatCount has lost grants with leases of four minutes. The columns of times are the grant, its loss, the
// worker's newest heartbeat, its stop, and since when silence counts for all workers. They are relative to the moment
// when the scheduler looks, which is also the loss of a grant that is still held.
func TestLossesThatCount(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) time.Time {
		if d == never {
			return time.Time{}
		}
		return now.Add(d)
	}
	const gone, here = false, true
	for name, c := range map[string]struct {
		granted, lost, beat, stopped, from time.Duration
		present, counts                    bool
	}{
		// the lease expired
		"lost at the end of its lease":             {-lease, 0, 0, never, never, here, true},
		"lost before the end of its lease":         {-lease + us, 0, 0, never, never, here, false},
		"lost long ago, at the end of its lease":   {-time.Hour, -time.Hour + lease, 0, never, never, here, true},
		"lost at its end, and its worker returned": {-lease, 0, us, never, never, gone, true},

		// the worker stopped
		"its worker has stopped":                      {began, 0, 0, 0, never, gone, true},
		"its worker has stopped, but not its process": {began, 0, 0, 0, never, here, true},
		"its worker has stopped since":                {began, -sec, 0, 0, never, here, true},

		// the worker is silent
		"its process has died":                    {began, 0, began, never, never, gone, true},
		"its process has died after a heartbeat":  {began, 0, 0, never, never, gone, true},
		"its process is alive":                    {began, 0, began, never, never, here, false},
		"silent for a whole lease":                {began, 0, -lease, never, never, here, true},
		"silent for almost a lease":               {began, 0, -lease + us, never, never, here, false},
		"silence counts for a whole lease":        {began, 0, -time.Hour, never, -lease, here, true},
		"silence counts for almost a lease":       {began, 0, -time.Hour, never, -lease + us, here, false},
		"silent since silence counts":             {began, 0, -lease, never, -time.Hour, here, true},
		"its process died while silence does not": {began, 0, -time.Hour, never, 0, gone, true},

		// the worker returned
		"a heartbeat came at the loss":   {began, -sec, -sec, never, never, gone, true},
		"a heartbeat came after it":      {began, -sec, -sec + us, never, never, gone, false},
		"a heartbeat came and no other":  {-time.Hour, -time.Hour + us, -time.Hour + 2*us, never, never, gone, false},
		"a heartbeat by a clock ahead":   {began, -sec, 10 * sec, never, never, gone, false},
		"a heartbeat yet to come":        {began, -sec, 10*sec + us, never, never, gone, true},
		"the same, its process is alive": {began, -sec, 10*sec + us, never, never, here, false},

		// the worker is unknown
		"no worker":                      {began, 0, never, never, never, gone, true},
		"an unknown worker":              {began, 0, never, never, never, here, false},
		"unknown for almost a lease":     {began, 0, never, never, -lease + us, here, false},
		"unknown for a whole lease":      {began, 0, never, never, -lease, here, true},
		"an unknown worker that is gone": {began, 0, never, never, -lease + us, gone, true},
	} {
		loss := granting.Loss{
			GrantedAt: at(c.granted), Until: at(c.granted + lease), LostAt: at(c.lost), BeatAt: at(c.beat),
			StoppedAt: at(c.stopped), SilenceFrom: at(c.from), Present: c.present, Now: now,
		}
		if got := loss.Counts(); got != c.counts {
			t.Errorf("%s: it counts: %t", name, got)
		}
	}
}

func TestALeaseIsHeldByItsGrant(t *testing.T) {
	if !(granting.Lease{GrantID: "g"}).Held() || (granting.Lease{Token: 7, WorkerID: "w"}).Held() {
		t.Error("a lease is held by its grant")
	}
}
