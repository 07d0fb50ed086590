package grants_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// A query for lost calls postpones only the calls of its batch. So a call whose job is gone is found
// after a batch of calls that wait for a worker and whose jobs exist. Calls that run or are over are
// not in any batch.
func TestALookAtWaitingCallsReachesThemAll(t *testing.T) {
	h := newEnv(t)
	run, over, well, bad := h.Waiting("run"), h.Waiting("over"), h.Waiting("a"), h.Waiting("b")
	h.Exec(
		"update turnkeeper.detached_calls set claim = 'c', worker_id = 'w', claimed_at = now(), deadline = now() + interval '1 h' where turn_id = $1", run.Grant.TurnID)
	h.Exec("update turnkeeper.detached_calls set ended_at = now() where turn_id = $1", over.Grant.TurnID)
	h.Exec(
		"delete from turnkeeper.river_job where id = (select job_id from turnkeeper.detached_calls where turn_id = $1)",
		bad.Grant.TurnID)
	for _, when := range []string{"-1 min", "1 day"} { // due, or postponed before the clock was set back
		h.Exec(`update turnkeeper.detached_calls set look_at = clock_timestamp() + $5::interval
			+ case turn_id when $1 then interval '1 s' when $2 then interval '2 s' when $3 then interval '3 s' when $4 then interval '4 s' end`,
			run.Grant.TurnID, over.Grant.TurnID, well.Grant.TurnID, bad.Grant.TurnID, when)
		var found []turnkeeper.TurnID
		for range 5 { // in batches of one; the scheduler's are of a hundred
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				lost, err := tick.LostCalls(ctx, 1)
				for _, c := range lost {
					found = append(found, c.Ref.TurnID)
				}
				return err
			})
		}
		if len(found) == 0 || found[0] != bad.Grant.TurnID {
			t.Errorf("%s: found %v; it is looked at again in %s", when, found, storagetest.One[string](h,
				"select (look_at - clock_timestamp())::text from turnkeeper.detached_calls where turn_id = $1",
				bad.Grant.TurnID))
		}
	}
}
