package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

func TestAToolCallThenText(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_once", "a"), inferencetest.Text("It is marked.")))
	e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "Make a mark."))
	e.WantEnd(turn, "succeeded", "none", 2)
	e.WantReply(turn, "It is marked.")
	e.Ledger.WantRuns("a", 1)
	asked := e.WantRequests(2)
	second := asked[1].Chat().Messages
	answer, result := second[len(second)-2], second[len(second)-1]
	if answer.Role != "assistant" || len(answer.ToolCalls) != 1 || answer.ToolCalls[0].ID != "call_a" {
		t.Errorf("the second request does not repeat the assistant's message: %+v", answer)
	}
	if result.Role != "tool" || result.ToolCallID != "call_a" || result.Text() != "marked a" {
		t.Errorf("the second request ends with %+v %s", result, result.Text())
	}
	if n := env.Query[int](e, "select count(*) from replies"); n != 1 {
		t.Errorf("there are %d replies", n)
	}
}

func TestEnqueueWaitsForTheReply(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk")
	e.Model.Then(env.Rounds(inferencetest.Text("Good morning.")))
	e.StartWorker()

	r := e.Run("", "enqueue", "--agent", "clerk", "--wait", "Hello")
	if r.Code != 0 || r.Stdout != "Good morning.\n" {
		t.Errorf("enqueue --wait ended with %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func TestAConversationGoesOn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), inferencetest.Text("Done.")))
	e.StartWorker()
	e.TurnOf(e.Enqueue("clerk", "first"))
	e.TurnOf(e.Enqueue("clerk", "second"))
	e.TurnOf(e.Enqueue("clerk", "elsewhere", "--conversation", "other"))

	roles := func(r inferencetest.Recorded) (roles []string) {
		for _, m := range r.Chat().Messages {
			roles = append(roles, m.Role)
		}
		return roles
	}
	asked := e.WantRequests(6)
	if diff := cmp.Diff([]string{"system", "user", "assistant", "tool", "assistant", "user"},
		roles(asked[2])); diff != "" {
		t.Errorf("the second message's first request (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"system", "user"}, roles(asked[4])); diff != "" {
		t.Errorf("another conversation's first request (-want +got):\n%s", diff)
	}
}

func TestAModelThatCallsToolsForEver(t *testing.T) {
	t.Parallel()
	for _, cap := range []int{1, 3, 5, 20} {
		t.Run(fmt.Sprintf("max_rounds %d", cap), func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, fmt.Sprintf("max_rounds: %d", cap), "max_tool_calls: 100")
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				return inferencetest.Calls(env.MarkerCall("mark_once", fmt.Sprintf("round %d", env.RoundOf(r))))
			})
			w := e.StartWorker()

			turn := e.TurnOf(e.Enqueue("clerk", "Go on for ever."))
			e.WantEnd(turn, "degraded", "max_rounds", cap)
			e.WantRequests(cap)
			// The last allowed round is announced if it is a continuation, and its calls do not run.
			ran := max(1, cap-1)
			if turn.Executed != ran {
				t.Errorf("%d calls ran, not %d", turn.Executed, ran)
			}
			first, _, _ := strings.Cut(turn.Reply.Body, "\n")
			if want := fmt.Sprintf("Tool results: %d succeeded, %d failed.", ran,
				len(turn.Calls())-ran); first != want {
				t.Errorf("the summary begins with %q, not %q", first, want)
			}
			if turn.Message.State != "degraded" || turn.Message.Attempts != 1 {
				t.Errorf("the message is %+v", turn.Message)
			}
			if n := env.Query[int](e, "select count(*) from river_job"); n != 0 {
				t.Errorf("%d jobs are left", n)
			}
			w.Await("max tool rounds reached, completing turn")
			e.WantNothingMore(cap)
		})
	}
}

func TestTheLastRoundIsAnnounced(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(env.MarkerReply("mark_none", "a"), env.MarkerReply("mark_none", "b"),
		inferencetest.Text("That is all I know.")))
	e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "What is there?"))
	e.WantEnd(turn, "succeeded", "none", 3)
	e.WantReply(turn, "That is all I know.")
	last := e.WantRequests(3)[2].Chat() // it still declares the agent's four tools, and the three that read results
	if string(last.ToolChoice) != `"none"` || len(last.Tools) != 7 {
		t.Errorf("the last round has tool_choice %s and %d tools", last.ToolChoice, len(last.Tools))
	}
	if end := last.Messages[len(last.Messages)-1]; !env.IsNotice(end) {
		t.Errorf("the last round is not announced: %s", end.Text())
	}
	if state := env.Query[int](e,
		"select count(*) from rounds where raw like '%System Notice%' or text like '%System Notice%'"); state != 0 {
		t.Error("the notice is stored")
	}
}

func TestThirtyCallsInOneResponse(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 5")
	var thirty []inferencetest.Call
	for i := range 30 {
		thirty = append(thirty, env.MarkerCall("mark_once", fmt.Sprint("call ", i)))
	}
	e.Model.Then(env.Rounds(inferencetest.Calls(thirty...), inferencetest.Text("Twelve marks are made."),
		inferencetest.Text("never asked")))
	e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "Make thirty marks."))
	e.WantEnd(turn, "degraded", "max_tool_calls", 2)
	e.WantRequests(2)
	states := map[string]int{}
	for i, c := range turn.Calls() {
		states[c.State]++
		e.Ledger.WantRuns(fmt.Sprint("call ", i), map[bool]int{true: 1, false: 0}[i < 12])
		if c.Result == "" {
			t.Errorf("call %s has no answer", c.ID)
		}
	}
	if diff := cmp.Diff(map[string]int{"succeeded": 12, "denied": 18}, states); diff != "" {
		t.Errorf("the calls (-want +got):\n%s", diff)
	}
	e.WantReply(turn, "Twelve marks are made.")

	// The next turn of the conversation replays all thirty calls with their results.
	e.Model.Then(env.Rounds(inferencetest.Text("Thirty there were.")))
	e.WantReply(e.TurnOf(e.Enqueue("clerk", "How many?")), "Thirty there were.")
	results := 0
	for _, m := range e.WantRequests(3)[2].Chat().Messages {
		if m.Role == "tool" {
			results++
		}
	}
	if results != 30 {
		t.Errorf("the next request has %d results", results)
	}
}

func TestCallsThatCannotRunAreAnswered(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_once]", "max_rounds: 4")
	same := inferencetest.Call{ID: "same", Name: "mark_once", Arguments: `{"label":"twice"}`}
	e.Model.Then(env.Rounds(
		inferencetest.Calls(
			inferencetest.Call{ID: "c1", Name: "mark_none", Arguments: `{}`},
			inferencetest.Call{ID: "c2", Name: "no_such_tool", Arguments: `{}`},
			inferencetest.Call{ID: "c3", Name: "mark_once", Arguments: `{"label":1}`},
			inferencetest.Call{ID: "c4", Name: "mark_once", Arguments: `{"label":"a","label":"b"}`},
			inferencetest.Call{ID: "c5", Name: "mark_once", Arguments: `{"label":"a"`},
		),
		inferencetest.Calls(same), inferencetest.Calls(same), inferencetest.Text("Enough."),
	))
	e.StartWorker()

	turn := e.TurnOf(e.Enqueue("clerk", "Try."))
	e.WantEnd(turn, "succeeded", "none", 4)
	for _, c := range turn.RoundLog[0].Calls {
		if c.State == "succeeded" || c.Starts != 0 || c.Result == "" {
			t.Errorf("call %s of %s is %s with %d starts: %q", c.WireID, c.Name, c.State, c.Starts, c.Result)
		}
	}
	if got := turn.RoundLog[0].Calls[1].Result; !strings.HasPrefix(got, "tool not found: no_such_tool") {
		t.Errorf("an unknown tool is answered with %q", got)
	}
	e.Ledger.WantRuns("twice", 1) // the second of two equal calls reuses the result of the first
	e.Ledger.WantRuns("a", 0)
	e.Ledger.WantRuns("b", 0)
}
