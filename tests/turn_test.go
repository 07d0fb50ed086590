package tests_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/inference/inferencetest"
)

func TestAToolCallThenText(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_once", "a"), text("It is marked.")))
	h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "Make a mark."))
	h.ended(turn, "succeeded", "none", 2)
	h.replied(turn, "It is marked.")
	h.ledger.ran("a", 1)
	asked := h.requests(2)
	second := asked[1].Chat().Messages
	answer, result := second[len(second)-2], second[len(second)-1]
	if answer.Role != "assistant" || len(answer.ToolCalls) != 1 || answer.ToolCalls[0].ID != "call_a" {
		t.Errorf("the second request does not repeat the assistant's message: %+v", answer)
	}
	if result.Role != "tool" || result.ToolCallID != "call_a" || result.Text() != "marked a" {
		t.Errorf("the second request ends with %+v %s", result, result.Text())
	}
	if n := query[int](h, "select count(*) from replies"); n != 1 {
		t.Errorf("there are %d replies", n)
	}
}

func TestEnqueueWaitsForTheReply(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk")
	h.model.Then(rounds(text("Good morning.")))
	h.startWorker()

	r := h.run("", "enqueue", "--agent", "clerk", "--wait", "Hello")
	if r.code != 0 || r.stdout != "Good morning.\n" {
		t.Errorf("enqueue --wait ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func TestAConversationGoesOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_none", "a"), text("Done.")))
	h.startWorker()
	h.turnOf(h.enqueue("clerk", "first"))
	h.turnOf(h.enqueue("clerk", "second"))
	h.turnOf(h.enqueue("clerk", "elsewhere", "--conversation", "other"))

	roles := func(r recorded) (roles []string) {
		for _, m := range r.Chat().Messages {
			roles = append(roles, m.Role)
		}
		return roles
	}
	asked := h.requests(6)
	if diff := cmp.Diff([]string{"system", "user", "assistant", "tool", "assistant", "user"}, roles(asked[2])); diff != "" {
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
			h := newHouse(t)
			h.agent("clerk", marks, fmt.Sprintf("max_rounds: %d", cap), "max_tool_calls: 100")
			h.model.Then(func(r recorded) reply {
				return calls(call("mark_once", fmt.Sprintf("round %d", roundOf(r))))
			})
			w := h.startWorker()

			turn := h.turnOf(h.enqueue("clerk", "Go on for ever."))
			h.ended(turn, "degraded", "max_rounds", cap)
			h.requests(cap)
			// The last allowed round is announced where it is a continuation, and
			// what it calls all the same is not run.
			ran := max(1, cap-1)
			if turn.Executed != ran {
				t.Errorf("%d calls ran, not %d", turn.Executed, ran)
			}
			first, _, _ := strings.Cut(turn.Reply.Body, "\n")
			if want := fmt.Sprintf("Tool results: %d succeeded, %d failed.", ran, len(turn.calls())-ran); first != want {
				t.Errorf("the summary begins with %q, not %q", first, want)
			}
			if turn.Message.State != "answered" || turn.Message.Attempts != 1 {
				t.Errorf("the message is %+v", turn.Message)
			}
			if state := query[string](h, "select state from river_job"); state != "completed" {
				t.Errorf("the job is %s", state)
			}
			w.await("max tool rounds reached, completing turn")
			h.nothingMoreHappens(cap)
		})
	}
}

// nothingMoreHappens shows that a closed message is not taken up again: a later
// one is answered, and the model was not asked about anything else.
func (h *house) nothingMoreHappens(asked int) {
	h.t.Helper()
	h.model.Then(rounds(text("later")))
	h.exec("update leases set not_before = null")
	later := h.turnOf(h.enqueue("clerk", "And now?"))
	h.replied(later, "later")
	h.requests(asked + 1)
	if n := query[int](h, "select count(*) from turns"); n != 2 {
		h.t.Errorf("there are %d turns, not 2", n)
	}
}

func TestTheLastRoundIsAnnounced(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks)
	h.model.Then(rounds(callOnce("mark_none", "a"), callOnce("mark_none", "b"), text("That is all I know.")))
	h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "What is there?"))
	h.ended(turn, "succeeded", "none", 3)
	h.replied(turn, "That is all I know.")
	last := h.requests(3)[2].Chat()
	if string(last.ToolChoice) != `"none"` || len(last.Tools) != 4 {
		t.Errorf("the last round has tool_choice %s and %d tools", last.ToolChoice, len(last.Tools))
	}
	if end := last.Messages[len(last.Messages)-1]; !isNotice(end) {
		t.Errorf("the last round is not announced: %s", end.Text())
	}
	if state := query[int](h, "select count(*) from rounds where raw like '%System Notice%' or text like '%System Notice%'"); state != 0 {
		t.Error("the notice is stored")
	}
}

func TestThirtyCallsInOneResponse(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.agent("clerk", marks, "max_rounds: 5")
	var thirty []inferencetest.Call
	for i := range 30 {
		thirty = append(thirty, call("mark_once", fmt.Sprint("call ", i)))
	}
	h.model.Then(rounds(calls(thirty...), text("never asked")))
	h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "Make thirty marks."))
	h.ended(turn, "degraded", "max_tool_calls", 1)
	h.requests(1)
	states := map[string]int{}
	for i, c := range turn.calls() {
		states[c.State]++
		h.ledger.ran(fmt.Sprint("call ", i), map[bool]int{true: 1, false: 0}[i < 12])
		if c.Result == "" {
			t.Errorf("call %s has no answer", c.ID)
		}
	}
	if diff := cmp.Diff(map[string]int{"succeeded": 12, "denied": 18}, states); diff != "" {
		t.Errorf("the calls (-want +got):\n%s", diff)
	}
	if first, _, _ := strings.Cut(turn.Reply.Body, "\n"); first != "Tool results: 12 succeeded, 18 failed." {
		t.Errorf("the reply begins with %q", first)
	}

	// The next turn of the conversation replays all thirty, every one answered.
	h.model.Then(rounds(text("Thirty there were.")))
	h.replied(h.turnOf(h.enqueue("clerk", "How many?")), "Thirty there were.")
	results := 0
	for _, m := range h.requests(2)[1].Chat().Messages {
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
	h := newHouse(t)
	h.agent("clerk", "tools: [mark_once]", "max_rounds: 4")
	same := inferencetest.Call{ID: "same", Name: "mark_once", Arguments: `{"label":"twice"}`}
	h.model.Then(rounds(
		calls(
			inferencetest.Call{ID: "c1", Name: "mark_none", Arguments: `{}`},
			inferencetest.Call{ID: "c2", Name: "no_such_tool", Arguments: `{}`},
			inferencetest.Call{ID: "c3", Name: "mark_once", Arguments: `{"label":1}`},
			inferencetest.Call{ID: "c4", Name: "mark_once", Arguments: `{"label":"a","label":"b"}`},
			inferencetest.Call{ID: "c5", Name: "mark_once", Arguments: `{"label":"a"`},
		),
		calls(same), calls(same), text("Enough."),
	))
	h.startWorker()

	turn := h.turnOf(h.enqueue("clerk", "Try."))
	h.ended(turn, "succeeded", "none", 4)
	for _, c := range turn.RoundLog[0].Calls {
		if c.State == "succeeded" || c.Starts != 0 || c.Result == "" {
			t.Errorf("call %s of %s is %s with %d starts: %q", c.WireID, c.Name, c.State, c.Starts, c.Result)
		}
	}
	if got := turn.RoundLog[0].Calls[1].Result; !strings.HasPrefix(got, "tool not found: no_such_tool") {
		t.Errorf("an unknown tool is answered with %q", got)
	}
	h.ledger.ran("twice", 1) // the second of two equal calls gets the first one's result
	h.ledger.ran("a", 0)
	h.ledger.ran("b", 0)
}
