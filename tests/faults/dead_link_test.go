package faults_test

import (
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// The connection dies silently at each write of a turn: nothing more goes through, and nothing closes. The
// programs notice by their own timeouts, most of half a minute. In the short form, only one write is tested.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storagetest.Cut{"after the commit": storagetest.Hush,
		"before the server has it": storagetest.Freeze} {
		all := places(6)
		if !env.LongFaults {
			all = all[5:6] // a write of the journal
		}
		for _, place := range all {
			t.Run(name+", "+place.name, func(t *testing.T) {
				t.Parallel()
				e, p := newEnvBehindProxy(t)
				e.WriteAgent("clerk", env.MarkerTools)
				e.Model.Then(standardTurn)
				e.StartWorker()
				cutAt(e, p, cut, place, "dead at "+place.name)
				p.Break() // otherwise the end of the test waits for the dead connections
			})
		}
	}
}

// All open connections die silently under load. New connections work.
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
