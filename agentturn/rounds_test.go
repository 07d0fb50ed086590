package agentturn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

func TestToolCallThenText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("look"), says("It is done.")).with(read("look"))
		got := b.run(t.Context())

		want := turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: "It is done."}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		requests := b.requests()
		if len(requests) != 2 {
			t.Fatalf("%d requests, want 2", len(requests))
		}
		wantMessages := []inference.Message{
			{Role: inference.RoleUser, Text: "do it"},
			{Role: inference.RoleAssistant, Calls: []inference.Call{{ID: "call_look_1", Name: "look",
				Arguments: `{"n":1}`}}},
			{Role: inference.RoleTool, CallID: "call_look_1", Tool: "look", Text: "look ran"},
		}
		if diff := cmp.Diff(wantMessages, requests[1].Messages[1:]); diff != "" {
			t.Error(diff)
		}
		if system := requests[0].Messages[0]; system.Role != inference.RoleSystem ||
			!strings.HasPrefix(system.Text, "You test.\n\nTool results may be cut") {
			t.Errorf("system prompt %q", system.Text)
		}
		if b.logged("model request") != 2 || b.logged("model response") != 2 ||
			b.logged("tool continuation started") != 1 {
			t.Errorf("logs %v", b.log.All())
		}
		for i, r := range requests {
			if len(r.Tools) != 1 || r.ToolChoice == inference.ToolChoiceNone {
				t.Errorf("request %d: %d tools, choice %q", i+1, len(r.Tools), r.ToolChoice)
			}
		}
	})
}

func TestModelThatCallsToolsForEver(t *testing.T) {
	for _, max := range []int{1, 2, 3, 5, 20} {
		t.Run(fmt.Sprint("max_rounds ", max), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t).with(read("look"))
				b.bounds.MaxRounds, b.bounds.MaxToolCalls = max, 100
				for i := range 25 {
					b.script.Add(asks(fmt.Sprintf(`look {"n":%d}`, i)))
				}
				got := b.run(t.Context())

				requests := b.requests()
				if len(requests) != max {
					t.Errorf("%d requests, want %d", len(requests), max)
				}
				ran := max - 1
				if max == 1 {
					ran = 1 // the only round is also offered tools
				}
				first, _, _ := strings.Cut(got.Reply, "\n")
				wantFirst := fmt.Sprintf("Tool results: %d succeeded, %d failed.", ran, max-ran)
				if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopMaxRounds ||
					first != wantFirst {
					t.Errorf("outcome %+v, want the summary %q", got, wantFirst)
				}
				for i, r := range requests {
					final := i == max-1 && max > 1
					if (r.ToolChoice == inference.ToolChoiceNone) != final || len(r.Tools) != 1 {
						t.Errorf("request %d: choice %q with %d tools", i+1, r.ToolChoice, len(r.Tools))
					}
					last := r.Messages[len(r.Messages)-1]
					if announced := strings.Contains(last.Text, "the last one"); announced != final {
						t.Errorf("request %d ends with %q", i+1, last.Text)
					}
				}
				if b.logged("max tool rounds reached, completing turn") != 1 {
					t.Error("the cap is not logged")
				}
			})
		})
	}
}

func TestLastRound(t *testing.T) {
	tests := []struct {
		name  string
		last  func() inference.Response
		want  turnlog.Outcome
		calls []turnkeeper.CallState
	}{
		{
			name: "text is a success",
			last: func() inference.Response { return inference.Response{Text: "What I have."} },
			want: turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
				Reply: "What I have."},
			calls: []turnkeeper.CallState{turnkeeper.CallSucceeded},
		},
		{
			name: "text with calls is an answer",
			last: func() inference.Response { return asking("What I have.", `look {"n":9}`) },
			want: turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
				Reply: "What I have."},
			calls: []turnkeeper.CallState{turnkeeper.CallSucceeded, turnkeeper.CallDenied},
		},
		{
			name: "calls are no answer",
			last: func() inference.Response { return asking(" \n", `look {"n":9}`) },
			want: turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
				Reply: "Tool results: 1 succeeded, 1 failed.\n- look: succeeded\n- look: denied: tools could not be called in the last round of this turn."},
			calls: []turnkeeper.CallState{turnkeeper.CallSucceeded, turnkeeper.CallDenied},
		},
		{
			name: "nothing is no answer",
			last: func() inference.Response { return inference.Response{Text: "  \n"} },
			want: turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
				Reply: "Tool results: 1 succeeded, 0 failed.\n- look: succeeded"},
			calls: []turnkeeper.CallState{turnkeeper.CallSucceeded},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look := read("look")
				b := newBench(t, asks("look")).with(look)
				b.script.Then(inferStep(test.last()))
				b.bounds.MaxRounds = 2
				if diff := cmp.Diff(test.want, b.run(t.Context())); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(test.calls, b.states()); diff != "" {
					t.Error(diff)
				}
				if look.runs.count() != 1 {
					t.Errorf("the tool ran %d times", look.runs.count())
				}
				b.requests()
			})
		})
	}
}

func TestContinuationDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := read("look")
		b := newBench(t, asks("look"), says("never asked")).with(look)
		b.bounds.Continuation = false
		got := b.run(t.Context())
		want := turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone,
			Reply: "Tool results: 1 succeeded, 0 failed.\n- look: succeeded"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if len(b.requests()) != 1 || b.logged("tool continuation disabled, completing turn") != 1 {
			t.Errorf("%d requests; logs %v", len(b.requests()), b.log.All())
		}
	})
}

func TestPagingRounds(t *testing.T) {
	page := read("page")
	page.spec.Paging = true
	mixed := []string{"page", "page", "look"}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t).with(page, read("look"))
		b.script.Add(repeat(4, asks("page"))...)
		b.script.Add(asks(mixed...), says("read it all"))
		got := b.run(t.Context())
		if got.State != turnkeeper.TurnSucceeded || len(b.requests()) != 6 {
			t.Errorf("%+v after %d requests", got, len(b.requests()))
		}
		var charged []bool
		for _, round := range b.store.rounds() {
			charged = append(charged, round.Charged)
		}
		if diff := cmp.Diff([]bool{false, false, false, false, true, true}, charged); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("end at the ceiling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t).with(page)
			b.script.Then(asks("page"))
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxRounds || len(b.requests()) != 20 {
				t.Errorf("%+v after %d requests", got, len(b.requests()))
			}
			if states := b.states(); states[19] != turnkeeper.CallDenied {
				t.Errorf("the last round ran its call: %v", states)
			}
		})
	})
	t.Run("end at their own bound", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks(slices.Repeat([]string{"page"}, 65)...), says("read enough")).with(page)
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxToolCalls || got.Reply != "read enough" || len(b.requests()) != 2 ||
				page.runs.count() < 64 {
				t.Errorf("%+v after %d requests", got, len(b.requests()))
			}
			if states := b.states(); states[63] != turnkeeper.CallSucceeded || states[64] != turnkeeper.CallDenied {
				t.Errorf("states %v", states[62:])
			}
		})
	})
}

func TestThirtyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		look := read("look")
		b := newBench(t, asks(slices.Repeat([]string{"look"}, 30)...), says("Twelve I have seen."),
			says("never asked")).with(look)
		got := b.run(t.Context())
		if got.State != turnkeeper.TurnDegraded || got.StopReason != turnkeeper.StopMaxToolCalls ||
			got.Reply != "Twelve I have seen." {
			t.Errorf("%+v", got)
		}
		if look.runs.count() != 12 || len(b.requests()) != 2 {
			t.Errorf("%d runs, %d requests", look.runs.count(), len(b.requests()))
		}
		for i, call := range b.store.calls() {
			want := turnkeeper.CallSucceeded
			if i >= 12 {
				want = turnkeeper.CallDenied
			}
			if call.State != want {
				t.Errorf("call %d is %s, want %s", i+1, call.State, want)
			}
		}
	})
	t.Run("over two rounds, with text", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			look := read("look")
			b := newBench(t, asks(slices.Repeat([]string{"look"}, 11)...)).with(look)
			b.script.Add(inferStep(asking("Two more.", `look {"n":21}`, `look {"n":22}`)), says("Twelve I have seen."))
			got := b.run(t.Context())
			if got.StopReason != turnkeeper.StopMaxToolCalls || got.Reply != "Twelve I have seen." ||
				look.runs.count() != 12 {
				t.Errorf("%+v after %d runs", got, look.runs.count())
			}
		})
	})
}
