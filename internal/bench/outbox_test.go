package bench

import (
	"testing"
	"time"
)

// A reply that is missing is waited for, until its id belongs to a transaction that was rolled back.
func TestRepliesThatCommitLate(t *testing.T) {
	o := &outbox{seen: map[int64]bool{}}
	now := time.Now()
	see := func(after time.Duration, ids ...int64) int64 {
		for _, id := range ids {
			o.seen[id] = true
		}
		o.skip(now.Add(after))
		return o.read
	}
	for _, step := range []struct {
		after time.Duration
		ids   []int64
		read  int64
	}{
		{0, []int64{2, 3}, 0}, {giveUp / 2, nil, 0}, {giveUp / 2, []int64{1}, 3}, // 1 was late
		{giveUp, []int64{5}, 3}, {giveUp*2 - 1, nil, 3}, {giveUp * 2, nil, 5}, // 4 never comes
		{giveUp * 9, nil, 5}, {giveUp * 9, []int64{7}, 5}, {giveUp*10 - 1, nil, 5},
	} {
		if read := see(step.after, step.ids...); read != step.read {
			t.Errorf("after %v, with %v: read up to %d, want %d", step.after, step.ids, read, step.read)
		}
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
