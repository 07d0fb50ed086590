package turnkeepertest_test

import (
	"context"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// TestReadingOn checks that the pages of a cut result are its stored text, wherever a
// worker fails.
func TestReadingOn(t *testing.T) {
	text := strings.Repeat("0123456789", 1300)
	report := tools.Func(tools.Spec{Name: "report", Description: "Gives a long report.", Effect: turnkeeper.EffectNone},
		func(context.Context, struct{}) (string, error) { return text, nil })
	for _, fails := range everywhere {
		t.Run(fails.name, func(t *testing.T) {
			fails.run(t, func(*testing.T) turnkeepertest.Scenario {
				return turnkeepertest.Scenario{
					Tools: []tools.Tool{report},
					Talk: []turnkeepertest.Exchange{{Say: "Read it.", Model: []turnkeepertest.Step{
						turnkeepertest.Call("report", `{}`),
						turnkeepertest.Call("get_continuation", `{"tool_call_id": "1"}`),
						turnkeepertest.Call("get_continuation", `{"tool_call_id": "1", "offset": 12000}`),
						turnkeepertest.Text("Read."),
					}}},
					Check: func(t testing.TB, r *turnkeepertest.Result) {
						var read strings.Builder
						for _, call := range append(r.Calls("report"), r.Calls("get_continuation")...) {
							page, _, _ := strings.Cut(call.Shown, "\n\n[truncated — showing ")
							read.WriteString(page)
						}
						if read.String() != text || r.Reply() != "Read." {
							t.Errorf("%d of %d characters were read, the reply is %q", read.Len(), len(text), r.Reply())
						}
					},
				}
			})
		})
	}
}
