package agentturn_test

import (
	"context"
	"testing"
	"testing/synctest"

	"turnkeeper"
	"turnkeeper/tools"
)

// TestAToolErrorNeverEndsTheTurn checks that a tool's error with any text is a result for
// the model.
func TestAToolErrorNeverEndsTheTurn(t *testing.T) {
	for _, text := range []string{"denied: not enough time left in this turn",
		"denied: over the limit of 5 requests a minute"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("look"), says("It is busy.")).with(read("look").does(func(context.Context,
					tools.Call) (tools.Result, error) {
					return tools.Result{Text: text, IsError: true}, nil
				}))
				if got := b.run(t.Context()); got.State != turnkeeper.TurnSucceeded || got.Reply != "It is busy." {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
