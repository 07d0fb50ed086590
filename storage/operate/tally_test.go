package operate_test

import (
	"fmt"
	"slices"
	"testing"
)

// TestTheTallyAgreesWithEachTurn compares the counts of waiting turns by reason with what each turn waits for.
func TestTheTallyAgreesWithEachTurn(t *testing.T) {
	h := newEnv(t)
	for i, set := range []string{
		"state = 'waiting', grant_id = null, lease_until = null",
		"state = 'waiting', grant_id = null, lease_until = null, waits_for = '{test/up}', due_at = now() + interval '1 hour'",
		"state = 'waiting', grant_id = null, lease_until = null, waits_for = '{test/down}', due_at = now() + interval '1 hour'",
		"state = 'queued', grant_id = null, lease_until = null, error_class = 'budget', due_at = now() + interval '1 hour'",
		"state = 'queued', grant_id = null, lease_until = null, error_class = 'needs_newer_worker', due_at = now() + interval '1 hour'",
		"state = 'queued', grant_id = null, lease_until = null, due_at = now() + interval '1 hour'",
	} {
		d := h.Turn(fmt.Sprint("message ", i))
		h.Exec(
			fmt.Sprintf(
				"update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where turn_id = %d", d.Grant.TurnID))
		h.Exec(fmt.Sprintf("update turnkeeper.turns set lane = 'lane' || id, %s where id = %d", set, d.Grant.TurnID))
	}
	queue, err := h.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var tally, each []string
	for _, w := range queue.Waits {
		tally = append(tally, fmt.Sprint(w.Reason, " ", w.Turns))
	}
	turns, err := h.OpenTurns(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, turn := range turns {
		for _, w := range turn.Waits {
			if w.Turn == turn.ID {
				counts[string(w.Reason)]++
			}
		}
	}
	for reason, n := range counts {
		each = append(each, fmt.Sprint(reason, " ", n))
	}
	slices.Sort(each)
	if !slices.Equal(tally, each) || len(tally) < 4 {
		t.Errorf("the tally is %q, and the turns wait for %q", tally, each)
	}
}
