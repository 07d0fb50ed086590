package faults_test

import (
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// TestDeadConnections lets the connection die without a word at each write of a
// turn: nothing more goes through, and nothing closes. The programs find out by
// their own bounds, half a minute for most. In short, one write does.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storagetest.Cut{"after the commit": storagetest.Hush, "before the server has it": storagetest.Freeze} {
		all := places(6)
		if !env.LongFaults {
			all = all[5:6] // a step of the journal
		}
		for _, place := range all {
			t.Run(name+", "+place.name, func(t *testing.T) {
				t.Parallel()
				e, p := newEnvBehindProxy(t)
				e.WriteAgent("clerk", env.MarkerTools)
				e.Model.Then(standardTurn)
				e.StartWorker()
				cutAt(e, p, cut, place, "dead at "+place.name)
				p.Break() // what is dead would be waited for at the end
			})
		}
	}
}

// TestTheNetworkGoesSilent lets every connection that there is die without a
// word, under load. New ones can be made.
func TestTheNetworkGoesSilent(t *testing.T) {
	t.Parallel()
	e, p := newEnvBehindProxy(t)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	e.Model.Then(standardTurn)
	e.StartWorker("--takeover-after", "0")
	load := startLoad(e, time.Second)
	for silences := range env.FaultCount(1, 3) {
		e.Await("some are answered", "select count(*) > $1 from replies", 5*(silences+1))
		p.FreezeAll()
	}
	load.finish()
	p.Break()
}
