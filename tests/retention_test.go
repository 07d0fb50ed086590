package tests_test

import "testing"

// A worker removes what is older than it may keep, and nothing else.
func TestRetention(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(func(r recorded) reply { return text("Done.") })
	first := h.startWorker()
	old, young := h.enqueue("clerk", "Old."), h.enqueue("clerk", "Young.")
	h.awaitClosed(old, young)
	first.terminate()
	h.exec("update messages set accepted_at = accepted_at - interval '3 hours', closed_at = closed_at - interval '3 hours' where id = $1", old)
	h.exec("update replies set created_at = created_at - interval '3 hours' where message_id = $1", old)
	h.startWorker("--retention", "2h")
	h.await("the old message is gone", "select not exists (select from messages where id = $1)", old)
	h.replied(h.turnOf(young), "Done.")
	behind := h.enqueue("clerk", "Behind.")
	h.awaitClosed(behind)
	if token := query[int64](h, "select token from leases where lane = 'clerk'"); token != 3 {
		t.Errorf("the lane's token is %d after three grants", token)
	}
}
