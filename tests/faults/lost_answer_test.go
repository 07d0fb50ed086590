package faults_test

import (
	"fmt"
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// The connection is cut at every write of a turn, from the acceptance of its message to its end.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]storagetest.Cut{
		"after the commit": storagetest.Unanswer, "before the server has it": storagetest.Lose,
		"on the way": storagetest.Abandon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, p := newEnvBehindProxy(t)
			e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
			e.Model.Then(standardTurn)
			e.StartWorker()
			all := places(countStandardSteps(e, p))
			for round := range env.FaultCount(1, 20) {
				for _, place := range all {
					cutAt(e, p, cut, place, fmt.Sprintf("%s (%d)", place.name, round+1))
				}
			}
		})
	}
}

// cutAt cuts the handling of one message at a place.
func cutAt(e *env.Env, p *storagetest.Proxy, cut storagetest.Cut, at place, body string) {
	e.T.Helper()
	began := time.Now()
	happened := p.CutNext(cut, at.at())
	message, refusals := acceptMessage(e, "clerk", body)
	select {
	case <-happened:
	case <-time.After(time.Minute):
		e.T.Fatalf("nothing was sent at %s in a minute", at.name)
	}
	e.AwaitClosed(message)
	wantAnswered(e, message, body)
	e.T.Logf("%-12s %6.2f s %q", at.name, time.Since(began).Seconds(), refusals)
}
