package grants_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"

	"github.com/google/uuid"
)

// BenchmarkTick grants one message that waits.
func BenchmarkTick(b *testing.B) {
	h := newEnv(b)
	for b.Loop() {
		b.StopTimer()
		h.Submit("clerk", "", "go")
		id := turnkeeper.GrantID(uuid.NewString())
		b.StartTimer()
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			ready, err := tick.ReadyMessages(ctx, 100, nil)
			if err != nil {
				return err
			}
			return tick.Grant(ctx, ready, []turnkeeper.GrantID{id}, storagetest.TurnJob, storagetest.TTL)
		})
		b.StopTimer()
		turn := storagetest.One[turnkeeper.TurnID](h.DB, "select turn_id from turnkeeper.leases where grant_id = $1",
			id)
		job := storagetest.One[turnkeeper.JobID](h.DB,
			"select t.job_id from turnkeeper.leases l join turnkeeper.turns t on t.id = l.turn_id where l.grant_id = $1", id)
		h.Take(turn, id, job, "worker-1").Finish(b, "done")
		b.StartTimer()
	}
}
