package scheduler

import (
	"cmp"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
)

// inOrder sorts ready work in the order of grants: lowest rank first, then ID. It returns only the first of each
// lane, and at most limit items.
func inOrder(ready []granting.Candidate, limit int) []granting.Candidate {
	slices.SortStableFunc(ready, func(a, b granting.Candidate) int {
		return cmp.Or(a.Rank.Compare(b.Rank), cmp.Compare(a.MessageID, b.MessageID))
	})
	seen := make(map[turnkeeper.Lane]bool, len(ready))
	ready = slices.DeleteFunc(ready, func(r granting.Candidate) bool {
		again := seen[r.Lane]
		seen[r.Lane] = true
		return again
	})
	return ready[:min(len(ready), limit)]
}

// Backoff returns the pause after the n-th failure in a row: 2^n seconds, at most 120.
func Backoff(n int) time.Duration { return modelhealth.Backoff(n) }
