package tests_test

import (
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

// TestDeadConnections lets the connection die without a word at each write of a
// turn: nothing more goes through, and nothing closes. The programs find out by
// their own bounds, half a minute for most; package storage tests these bounds
// in the short form.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	if !longFaults {
		t.Skip("takes minutes: make faults")
	}
	for name, cut := range map[string]storagetest.Cut{"after the commit": storagetest.Hush, "before the server has it": storagetest.Freeze} {
		for _, place := range places(6) {
			t.Run(name+", "+place.name, func(t *testing.T) {
				t.Parallel()
				h, p := newHouseBehindProxy(t)
				h.agent("clerk", marks)
				h.model.Then(standardTurn)
				h.startWorker(patientWorker...)
				h.cutAt(p, cut, place, "dead at "+place.name)
				p.Break() // what is dead would be waited for at the end
			})
		}
	}
}

// TestTheNetworkGoesSilent lets every connection that there is die without a
// word, under load. New ones can be made.
func TestTheNetworkGoesSilent(t *testing.T) {
	t.Parallel()
	if !longFaults {
		t.Skip("takes minutes: make faults")
	}
	h, p := newHouseBehindProxy(t)
	h.agent("clerk", marks, "lane: conversation")
	h.model.Then(standardTurn)
	h.startWorker("--takeover-after", "0")
	load := h.startLoad(time.Second)
	for silences := range 3 {
		h.await("some are answered", "select count(*) > $1 from replies", 5*(silences+1))
		p.FreezeAll()
	}
	load.finish()
	p.Break()
}
