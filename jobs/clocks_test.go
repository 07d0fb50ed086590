package jobs_test

import (
	"context"
	"testing"
	"time"
)

// A turn's time counts from its grant, by the database's clock: also if its worker took it late, in a later dispatch,
// and after the database's clock was set back.
func TestATurnsTimeCountsFromItsGrant(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration // since the grant
		before string        // SQL
		left   time.Duration
	}{
		"at once": {0, "", 90 * time.Second},
		"late":    {40 * time.Second, "", 50 * time.Second},
		"late, in a later dispatch": {70 * time.Second,
			"update turnkeeper.turns set error_class = 'late_worker', dispatches = 2",
			20 * time.Second},
		"before the database's time": {-20 * time.Second, "", 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.enqueue("clerk", "", "hello")
			job := s.grant()
			for _, table := range []string{"turns", "leases"} {
				s.exec("update turnkeeper."+table+
					" set granted_at = granted_at - $1::interval, lease_until = lease_until - $1::interval", c.waited)
			}
			s.exec(c.before)
			var left time.Duration
			worker, _ := s.turnWorker(func(ctx context.Context, body string) (string, error) {
				if end, ok := ctx.Deadline(); ok {
					left = time.Until(end)
				}
				return echo(ctx, body)
			}, nil)
			if err := worker.Work(t.Context(), job); err != nil {
				t.Error(err)
			}
			s.reply(id)
			if left > c.left || left < c.left-15*time.Second {
				t.Errorf("the model had %s, want %s", left, c.left)
			}
		})
	}
}
