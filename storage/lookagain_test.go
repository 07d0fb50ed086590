package storage_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/storage"
)

// A look puts off only what it has looked at: a call whose job is gone is found behind
// a batch of calls that wait for a worker and whose jobs are there.
func TestALookAtWaitingCallsReachesThemAll(t *testing.T) {
	h := newHouse(t)
	well, bad := h.waits("a"), h.waits("b")
	h.exec("delete from turnkeeper.river_job where id = (select job_id from turnkeeper.detached_calls where turn_id = $1)", bad.grant.TurnID)
	h.exec("update turnkeeper.detached_calls set look_at = clock_timestamp() - case when turn_id = $1 then interval '2 s' else interval '1 s' end", well.grant.TurnID)
	var found []turnkeeper.TurnID
	for range 5 { // each look is of a batch of one; the scheduler's are of a hundred
		h.inTick(func(ctx context.Context, tick *storage.Tick) error {
			lost, err := tick.LostCalls(ctx, 1)
			for _, c := range lost {
				found = append(found, c.Ref.TurnID)
			}
			return err
		})
	}
	if len(found) == 0 || found[0] != bad.grant.TurnID {
		t.Errorf("found %v; it is looked at again in %s", found, one[string](h,
			"select (look_at - clock_timestamp())::text from turnkeeper.detached_calls where turn_id = $1", bad.grant.TurnID))
	}
}
