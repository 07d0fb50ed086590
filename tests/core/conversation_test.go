package core_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// requestText formats the messages of a request, one per line: role, text, calls.
func requestText(r inferencetest.Recorded) string {
	var b strings.Builder
	for _, m := range r.Chat().Messages {
		fmt.Fprintf(&b, "%s: %s", m.Role, m.Text())
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, " <%s %s>", c.Function.Name, c.Function.Arguments)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wantNoRepeatedRole fails the test if two user messages, or two assistant messages, follow each other: some
// providers refuse that.
func wantNoRepeatedRole(t *testing.T, r inferencetest.Recorded) {
	t.Helper()
	last := ""
	for _, m := range r.Chat().Messages {
		if m.Role == last && m.Role != "tool" {
			t.Errorf("two messages of role %s follow each other:\n%s", m.Role, requestText(r))
		}
		last = m.Role
	}
}

// wantRebuilt fails the test unless the request of a round is rebuilt from the database as it was sent.
func wantRebuilt(e *env.Env, turn int64, round int, sent inferencetest.Recorded) {
	e.T.Helper()
	if got := rebuiltRequest(e, turn, round); got.Code != 0 || got.Stdout != string(sent.Body) {
		e.T.Errorf("turn %d, round %d: exit code %d\n%s\nrebuilt %s\nsent    %s", turn, round, got.Code, got.Stderr,
			got.Stdout, sent.Body)
	}
}

func lastRequest(e *env.Env) inferencetest.Recorded {
	all := e.Model.Requests()
	return all[len(all)-1]
}

// The next turn sees a payment that ran before its turn was cancelled, and one that was cut short, with their
// results.
func TestTheNextTurnSeesACancelledTurn(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string]string{"by calls": env.MarkerTools, "in words": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools)
			e.Ledger.SetAnswer("pay", "paid invoice 7")
			e.Ledger.Hold("more")
			defer e.Ledger.Release()
			e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
				if env.NewestMessage(r) == "Pay invoice 7." {
					return env.Rounds(env.MarkerReply("mark_once", "pay"), env.MarkerReply("mark_slow", "more"))(r)
				}
				return inferencetest.Text("It is paid.")
			})
			w := e.StartWorker()
			message := e.Enqueue("clerk", "Pay invoice 7.")
			e.Ledger.Await("more", 1)
			cancelTurn(e, "--message", strconv.FormatInt(message, 10))
			e.AwaitClosed(message)
			wantCancelled(e, message)
			if tools == "" { // without tools, calls are described in text
				e.WriteAgent("clerk", "tools: []")
				w.Terminate()
				e.StartWorker()
			}

			next := e.TurnOf(e.Enqueue("clerk", "Is it paid?"))
			e.WantReply(next, "It is paid.")
			sent := lastRequest(e)
			for _, sign := range []string{"user: Pay invoice 7.\n", "paid invoice 7", "cancelled",
				"may or may not have happened", "This turn was cancelled"} {
				if !strings.Contains(requestText(sent), sign) {
					t.Errorf("the request after a cancelled turn lacks %q:\n%s", sign, requestText(sent))
				}
			}
			if byCalls := strings.Contains(requestText(sent), `<mark_once {"label":"pay"}>`); byCalls != (tools != "") {
				t.Errorf("the request shows it as a call: %v\n%s", byCalls, requestText(sent))
			}
			wantNoRepeatedRole(t, sent)
			wantRebuilt(e, next.ID, 1, sent)
		})
	}
}

// Cancelled are a turn that waited without a worker, and one whose message never started.
func TestCancelledBetweenDispatches(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_once, mark_far_once]")
	e.Ledger.Hold("far")
	defer e.Ledger.Release()
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Go." {
			return env.Rounds(env.MarkerReply("mark_once", "near"), env.MarkerReply("mark_far_once", "far"))(r)
		}
		return inferencetest.Text("Seen.")
	})
	e.StartWorker()
	message := e.Enqueue("clerk", "Go.")
	e.Ledger.Await("far", 1)
	e.AwaitWaiting(1)
	behind := e.Enqueue("clerk", "Never begun.")
	cancelTurn(e, "--message", strconv.FormatInt(behind, 10))
	cancelTurn(e, "--message", strconv.FormatInt(message, 10))
	e.AwaitClosed(message, behind)
	next := e.TurnOf(e.Enqueue("clerk", "What was done?"))
	sent := lastRequest(e)
	for _, sign := range []string{"user: Go.\n", `<mark_far_once {"label":"far"}>`, "may or may not have happened",
		"This turn was cancelled"} {
		if !strings.Contains(requestText(sent), sign) {
			t.Errorf("the request lacks %q:\n%s", sign, requestText(sent))
		}
	}
	if strings.Contains(requestText(sent), "Never begun.") {
		t.Errorf("the request has a message that was cancelled before it started:\n%s", requestText(sent))
	}
	wantNoRepeatedRole(t, sent)
	wantRebuilt(e, next.ID, 1, sent)
}

// A failed message is shown once, with the result of its last attempt.
func TestTheNextTurnSeesAFailedTurn(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.Vars["TURNKEEPER_MAX_ATTEMPTS"] = "2"
	e.WriteAgent("clerk", env.MarkerTools)
	refused := inferencetest.Fault(http.StatusBadRequest, "invalid_request_error", "no such parameter")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch env.NewestMessage(r) {
		case "Plain.":
			return refused
		case "With a call.":
			return env.Rounds(inferencetest.Calls(inferencetest.Call{ID: "call_no", Name: "no_such_tool",
				Arguments: `{"n":7}`}), refused)(r)
		}
		return inferencetest.Text("I see.")
	})
	e.StartWorker()
	for _, body := range []string{"Plain.", "With a call."} {
		message := e.Enqueue("clerk", body)
		e.AwaitClosed(message)
		if turn := e.TurnOf(message); turn.State != "failed" {
			t.Fatalf("the turn is %s", turn.State)
		}
		next := e.TurnOf(e.Enqueue("clerk", "After "+body))
		sent := lastRequest(e)
		text := requestText(sent)
		if n := strings.Count(text, "user: "+body+"\n"); n != 1 {
			t.Errorf("the request has the message %d times:\n%s", n, text)
		}
		if !strings.Contains(text, "This turn failed") || !strings.Contains(text, "could not be answered") {
			t.Errorf("the request does not say that the turn failed, and why:\n%s", text)
		}
		if body == "With a call." && (!strings.Contains(text, `<no_such_tool {"n":7}>`) || !strings.Contains(text,
			"tool not found: no_such_tool")) {
			t.Errorf("the request lacks the call:\n%s", text)
		}
		wantNoRepeatedRole(t, sent)
		wantRebuilt(e, next.ID, 1, sent)
	}
}

// The calls of a cancelled turn are in the source of the summary, and in the short form of its turn.
func TestACancelledTurnIsSummarised(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "context_window: 6000", "max_output_tokens: 500")
	e.Ledger.SetAnswer("pay", "paid invoice 7")
	e.Ledger.Hold("more")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch {
		case strings.HasPrefix(r.Chat().Messages[0].Text(), "You condense"):
			return inferencetest.Text("Invoice 7 was paid in a turn that was cancelled.")
		case env.NewestMessage(r) == "Pay.":
			return env.Rounds(env.MarkerReply("mark_once", "pay"), env.MarkerReply("mark_slow", "more"))(r)
		}
		return inferencetest.Text(strings.Repeat("Something long. ", 130))
	})
	e.StartWorker()
	message := e.Enqueue("clerk", "Pay.")
	e.Ledger.Await("more", 1)
	cancelTurn(e, "--message", strconv.FormatInt(message, 10))
	e.AwaitClosed(message)
	e.Ledger.Release()
	for n := range 9 {
		turn := e.TurnOf(e.Send("clerk", fmt.Sprintf("Say %d.", n)))
		wantRebuilt(e, turn.ID, 1, lastRequest(e))
	}
	source := ""
	for _, r := range e.Model.Requests() {
		if strings.HasPrefix(r.Chat().Messages[0].Text(), "You condense") && source == "" {
			source = requestText(r)
		}
	}
	for _, sign := range []string{`mark_once {"label":"pay"}: paid invoice 7`, "may or may not have happened",
		"This turn was cancelled"} {
		if !strings.Contains(source, sign) {
			t.Errorf("the summary is made of a text without %q:\n%s", sign, source)
		}
	}
}

// The message of a run without a reply is not next to the next message.
func TestASilentRunIsFollowedByAnAssistant(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", `schedule: {cron: "@every 1h", message: "Look around.", history: all}`, env.MarkerTools,
		"max_rounds: 1")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if env.NewestMessage(r) == "Look around." {
			return inferencetest.JSON(http.StatusOK,
				json.RawMessage(
					`{"id":"c","object":"chat.completion","model":"scripted","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"mark_once","arguments":"{\"label\":\"a\"}"}}]}}]}`))
		}
		return inferencetest.Text("Hello.")
	})
	e.StartWorker()
	e.MissSlots(0)
	e.AwaitSlots(1)
	e.TurnOf(e.Enqueue("clerk", "Anything?"))
	wantNoRepeatedRole(t, lastRequest(e))
	if !strings.Contains(requestText(lastRequest(e)), "Look around.") {
		t.Errorf("the request lacks the run:\n%s", requestText(lastRequest(e)))
	}
}
