package tools_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/limittest"
	"turnkeeper/tools"
)

// TestLimits tries each limit of tools and their results.
func TestLimits(t *testing.T) {
	registers := func(change func(*tools.Spec)) bool {
		spec := tools.Spec{Name: "t", Effect: turnkeeper.EffectNone, Timeout: time.Second}
		change(&spec)
		_, err := tools.NewRegistry(tools.New(spec, func(context.Context, tools.Call, struct{}) (tools.Result, error) {
			return tools.Result{}, nil
		}))
		return err == nil
	}
	limittest.Check(t, map[string]limittest.Row{
		"MaxResultChars": {At: 1_000_000, Takes: func(_ *testing.T, n int) bool {
			return registers(func(s *tools.Spec) { s.MaxResultChars = n })
		}},
		"MaxCache": {At: int(24 * time.Hour), Takes: func(_ *testing.T, n int) bool {
			return registers(func(s *tools.Spec) { s.Cache = time.Duration(n) })
		}},
		"maxAttached": {At: 32, Takes: func(t *testing.T, n int) bool {
			r, err := tools.Collect(t.Context(), tools.Result{Text: "x", Attached: make([]tools.Attachment, n)})
			if err != nil {
				t.Fatal(err)
			}
			return len(r.Attached) == n && r.Text == "x"
		}},
		"maxPanicChars": {At: 500, Takes: func(t *testing.T, n int) bool {
			tool := tools.New(tools.Spec{Name: "t", Effect: turnkeeper.EffectNone}, func(context.Context, tools.Call,
				struct{}) (tools.Result, error) {
				panic(strings.Repeat("ü", n-1) + "!")
			})
			got := tools.Execute(t.Context(), tool, tools.Call{Arguments: json.RawMessage("{}")},
				tools.ExecuteOptions{Timeout: time.Minute})
			return strings.HasSuffix(got.Result.Text, "!")
		}},
		"DefaultGrace": {Test: "TestExecuteAbandons"},
		"MaxInputs":    {None: "the agent's turn counts them"},
		"FreshnessOff": {None: "it is no limit"},
	})
}
