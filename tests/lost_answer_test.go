package tests_test

import (
	"fmt"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

// TestLostAnswers cuts the connection at every write of a turn, from the
// message's acceptance to its end.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storagetest.Cut{
		"after the commit": storagetest.Unanswer, "before the server has it": storagetest.Lose, "on the way": storagetest.Abandon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, p := newHouseBehindProxy(t)
			h.agent("clerk", marks, "lane: conversation")
			h.model.Then(standardTurn)
			h.startWorker()
			all := places(h.standardSteps(p))
			for round := range faults(1, 20) {
				for _, place := range all {
					h.cutAt(p, cut, place, fmt.Sprintf("%s (%d)", place.name, round+1))
				}
			}
		})
	}
}

// cutAt cuts one message's way at a place.
func (h *house) cutAt(p *storagetest.Proxy, cut storagetest.Cut, at place, body string) {
	h.t.Helper()
	began := time.Now()
	happened := p.CutNext(cut, at.at())
	message, refusals := h.accept("clerk", body)
	<-happened
	h.awaitClosed(message)
	h.answered(message, body)
	h.t.Logf("%-12s %6.2f s %q", at.name, time.Since(began).Seconds(), refusals)
}
