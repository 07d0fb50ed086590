package bench

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// A reply that is missing is waited for, until its id belongs to a transaction that was rolled back.
func TestRepliesThatCommitLate(t *testing.T) {
	o := &outbox{missing: map[int64]time.Time{}}
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		id      int64
		missing []int64
	}{
		{0, 2, []int64{1}}, {0, 3, []int64{1}}, {giveUp / 2, 1, nil}, // 1 was late
		{giveUp, 6, []int64{4, 5}}, {giveUp*2 - 1, 5, []int64{4}}, {giveUp * 2, 7, nil}, // 4 never comes
	} {
		o.saw(step.id, now.Add(step.after))
		if missing := slices.Sorted(maps.Keys(o.missing)); !slices.Equal(missing, step.missing) {
			t.Errorf("after %v, with %d: %d are missing, want %d", step.after, step.id, missing, step.missing)
		}
	}
	if o.read != 7 {
		t.Errorf("read up to %d, want 7", o.read)
	}
}

// A section with 0 turns is not measured: it starts no process.
func TestNoTurns(t *testing.T) {
	b := &bench{Options: Options{Lanes: []int{1}}}
	var r Report
	for _, section := range b.sections() {
		if err := section(t.Context(), &r); err != nil || r.Figures != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
