package tests_test

import (
	"testing"

	"turnkeeper/inference/inferencetest"
)

// What a worker that was lost had written of a result is removed by the next that
// starts; what is recorded stays.
func TestPartsThatWereLeftBehind(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "tools: [mark_large]")
	h.model.Then(rounds(callOnce("mark_large", "a"), text("done")))
	first := h.startWorker()
	h.ended(h.turnOf(h.enqueue("clerk", "Do it.")), "succeeded", "none", 2)
	if code := first.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	kept := query[int](h, "select count(*) from output_chunks")
	h.exec("insert into output_drafts (output_id, turn_id, grant_id) select 'left', turn_id, grant_id from lease_log")
	h.exec("insert into output_chunks (output_id, first_char, first_byte, content) values ('left', 0, 0, 'behind')")
	h.startWorker()
	h.await("what was left behind is gone", "select not exists (select from output_drafts) and not exists (select from output_chunks where output_id = 'left')")
	if n := query[int](h, "select count(*) from output_chunks"); n != kept || n < 16 {
		t.Errorf("%d chunks are left of %d", n, kept)
	}
}

// streamPeak is what a worker may take at its peak that reads nothing but streams.
const streamPeak = 96 << 20

// A gigabyte costs a worker little memory.
func TestAWorkerIsNotFilledByStreams(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", "tools: [misbehave]")
	h.model.Then(rounds(calls(inferencetest.Call{ID: "g", Name: "misbehave", Arguments: `{"how":"gigabyte"}`}), text("done")))
	w := h.startWorker()
	turn := h.turnOf(h.enqueue("clerk", "Read."))
	if got := answers(turn)["g"]; got.State != "succeeded" {
		t.Errorf("the call is %s: %.200s", got.State, got.Result)
	}
	w.checkPeak(streamPeak)
}
