package turnkeepertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// TestExtracting checks that a search of a long result finds passages at the positions it
// names, wherever a worker fails.
func TestExtracting(t *testing.T) {
	var lines strings.Builder
	for i := range 300 {
		fmt.Fprintf(&lines, "Entry %d, 日本, of no account.\n", i)
	}
	lines.WriteString("The weight is 7 kg.")
	text := lines.String()
	report := tools.Func(tools.Spec{Name: "report", Description: "Gives a long report.", Effect: turnkeeper.EffectNone},
		func(context.Context, struct{}) (string, error) { return text, nil })
	for _, fails := range everywhere {
		t.Run(fails.name, func(t *testing.T) {
			fails.run(t, func(*testing.T) turnkeepertest.Scenario {
				return turnkeepertest.Scenario{
					Agent: "---\ntools: [report]\ncontext_window: 4096\nmax_output_tokens: 512\n---\nYou weigh.\n",
					Tools: []tools.Tool{report},
					Talk: []turnkeepertest.Exchange{{Say: "Weigh it.", Model: []turnkeepertest.Step{
						turnkeepertest.Call("report", `{}`),
						turnkeepertest.Call("get_tool_output",
							`{"id": "1", "mode": "extract", "query": "the weight in kg is?"}`),
						turnkeepertest.Text("7 kg."),
					}}},
					Check: func(t testing.TB, r *turnkeepertest.Result) {
						var x outputs.Extraction
						if err := json.Unmarshal([]byte(r.Calls("get_tool_output")[0].Shown), &x); err != nil {
							t.Fatalf("%v: %s", err, r.Calls("get_tool_output")[0].Shown)
						}
						if len(x.Snippets) != 1 || x.ChunksSearched != x.ChunksTotal || x.ChunksTotal < 2 ||
							r.Reply() != "7 kg." {
							t.Fatalf("the reply is %q; found was %+v", r.Reply(), x)
						}
						if s := x.Snippets[0]; s.Text != "The weight is 7 kg." || s.EndByte != int64(len(text)) ||
							text[s.StartByte:s.EndByte] != s.Text {
							t.Errorf("%+v", s)
						}
					},
				}
			})
		})
	}
}
