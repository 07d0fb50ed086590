package agentturn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/tools"
)

// TestToolsThatAreLeftBehind checks that a tool that ignores its context does not delay
// the turn's end, and that it is reported and counted until it returns.
func TestToolsThatAreLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := once("deaf").does(func(context.Context, tools.Call) (tools.Result, error) {
			time.Sleep(time.Hour)
			return tools.Result{Text: "too late"}, nil
		})
		b := newBench(t, asks("deaf", "deaf"), says("So be it.")).with(deaf)
		b.bounds.ToolTimeout = 10 * time.Second
		runner := b.runner()
		record, journal := b.store.dispatch()
		start := time.Now()
		outcome, err := runner.Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def}, journal)
		if err != nil || outcome.State != turnkeeper.TurnSucceeded || outcome.Reply != "So be it." {
			t.Errorf("%+v, %v", outcome, err)
		}
		if took := time.Since(start); took > 2*(10*time.Second+time.Second) {
			t.Errorf("the turn took %s", took)
		}
		for _, call := range b.store.calls() {
			if call.State != turnkeeper.CallFailed || call.Shown != "tool error: 'deaf' timed out after 10 s" {
				t.Errorf("the call is %s: %s", call.State, call.Shown)
			}
		}
		if n := runner.LeftBehind(); n != 2 {
			t.Errorf("%d tools are left behind", n)
		}
		left := b.log.FilterMessageSnippet("did not return at its timeout and still runs").All()
		if len(left) != 2 || left[1].ContextMap()["left_behind"] != int64(2) {
			t.Errorf("the log says %v", left)
		}
		time.Sleep(2 * time.Hour)
		if n := runner.LeftBehind(); n != 0 || b.log.FilterMessageSnippet("returned after its timeout").Len() != 2 {
			t.Errorf("%d tools are left behind, and the log says %v", n, b.log.All())
		}
	})
}
