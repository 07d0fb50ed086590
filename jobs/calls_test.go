package jobs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/riverqueue/river"

	"turnkeeper"
	"turnkeeper/jobs"
)

// The SQL function ring_detached inserts the job of a detached call. Its row must equal the one
// that River inserts.
func TestTheJobOfADetachedCallIsAsRiverMakesIt(t *testing.T) {
	s := newSite(t)
	client, err := jobs.NewClient(jobs.ClientConfig{Pool: s.QueuePool(), WorkerID: "w"})
	if err != nil {
		t.Fatal(err)
	}
	inserted, err := client.Insert(t.Context(), jobs.CallArgs{TurnID: 7, Round: 2, Ordinal: 3, Attempt: 1},
		&river.InsertOpts{Queue: jobs.CallQueueOf("build_é")})
	if err != nil {
		t.Fatal(err)
	}
	want := s.row(inserted.Job.ID)
	got := s.row(one[int64](s, "select turnkeeper.ring_detached($1, 2, 3, 1, 'build_é')", turnkeeper.TurnID(7)))
	for _, row := range []map[string]any{want, got} {
		for _, own := range []string{"id", "created_at", "scheduled_at"} {
			if row[own] == nil {
				t.Errorf("%s is missing in %v", own, row)
			}
			delete(row, own)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-River +ours):\n%s", diff)
	}
}
