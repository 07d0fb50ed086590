package core_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// brokenModel replies with an error that is not retried.
func brokenModel() inferencetest.Reply {
	return inferencetest.Fault(http.StatusBadRequest, "invalid_request_error", "the model is on fire")
}

// Text before tool calls is not the reply.
func TestTextBeforeToolsIsNoReply(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Model.Then(env.Rounds(
		inferencetest.Message("Let me check that.", env.MarkerCall("mark_once", "a")),
		inferencetest.Message("Now the other one.", env.MarkerCall("mark_once", "b")),
		brokenModel()))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Make two marks."))
	e.WantEnd(turn, "degraded", "inference_error", 2)
	e.WantReply(turn, "Tool results: 2 succeeded, 0 failed.\n- mark_once: succeeded\n- mark_once: succeeded")
}

// A turn that ends at a bound before any tool has run has no summary.
func TestAReplyWithoutAnyToolResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		model    func(inferencetest.Recorded) inferencetest.Reply
	}{
		"budget": {[]string{"max_output_tokens: 100", "budget: {turn_tokens: 101}"},
			env.Rounds(inferencetest.Text("never asked"))},
		"max_tool_calls": {[]string{"max_tool_calls: 0"}, env.Rounds(env.MarkerReply("mark_once", "a"))},
		"max_rounds": {[]string{"max_rounds: 2"},
			env.Rounds(inferencetest.Message("I try.", inferencetest.Call{Name: "no_such_tool", Arguments: "{}"}),
				inferencetest.Message(" \n", inferencetest.Call{Name: "no_such_tool", Arguments: "{}"}))},
		"max_duration":      {[]string{"max_duration: 1s"}, env.Rounds(inferencetest.Hang())},
		"content is denied": {nil, env.Rounds(brokenModel())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", append([]string{env.MarkerTools}, c.settings...)...)
			e.Model.Then(c.model)
			e.StartWorker()
			message := e.Enqueue("clerk", "Hello")
			untilClosed(e, message)
			turn := e.TurnOf(message)
			if turn.Reply == nil {
				t.Fatal("there is no reply")
			}
			body := turn.Reply.Body
			if strings.Contains(body, "Tool results") || strings.Contains(body, "on fire") ||
				strings.Contains(body, "I try") ||
				!strings.HasPrefix(body, "This message could not be answered: ") || strings.Count(body, ".") != 1 ||
				strings.Contains(body, "\n") {
				t.Errorf("the reply is not one plain sentence: %q", body)
			}
			e.Ledger.WantRuns("a", 0)
		})
	}
}

// The last round is announced. Its text is the reply, whatever calls it makes.
func TestTextAndCallsInTheAnnouncedLastRound(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 2", "on_degraded: silent")
	e.Model.Then(env.Rounds(
		inferencetest.Message("Let me check that.", env.MarkerCall("mark_once", "a")),
		inferencetest.Message("One mark is made.", env.MarkerCall("mark_once", "b"))))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Make two marks."))
	e.WantEnd(turn, "degraded", "max_rounds", 2)
	e.WantReply(turn, "One mark is made.")
	if state := turn.RoundLog[1].Calls[0].State; state != "denied" {
		t.Errorf("the call of the last round is %s", state)
	}
	e.Ledger.WantRuns("b", 0)
}

// If there are more calls than allowed, the model answers once more, with the results of the allowed calls.
func TestMoreCallsThanAllowedAreAnsweredOnceMore(t *testing.T) {
	t.Parallel()
	var many []inferencetest.Call
	for i := range 14 {
		many = append(many, env.MarkerCall("mark_once", fmt.Sprint("call ", i)))
	}
	for name, c := range map[string]struct {
		last   inferencetest.Reply
		reason string
		rounds int
		reply  string
	}{
		"text": {inferencetest.Text("Twelve marks are made."), "max_tool_calls", 2, "Twelve marks are made."},
		"text and calls": {inferencetest.Message("Twelve marks are made.", many[13]), "max_tool_calls", 2,
			"Twelve marks are made."},
		"calls only": {inferencetest.Calls(many[13]), "max_tool_calls", 2,
			"Tool results: 12 succeeded, 3 failed.\n- mark_once: succeeded\n"},
		"nothing": {inferencetest.Text(" \n"), "max_tool_calls", 1,
			"Tool results: 12 succeeded, 2 failed.\n- mark_once: succeeded\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, "max_rounds: 9")
			e.Model.Then(env.Rounds(inferencetest.Message("Let me mark.", many...), c.last,
				inferencetest.Text("never asked")))
			e.StartWorker()
			turn := e.TurnOf(e.Enqueue("clerk", "Make fourteen marks."))
			e.WantEnd(turn, "degraded", c.reason, c.rounds)
			if turn.Reply == nil || !strings.HasPrefix(turn.Reply.Body+"\n", c.reply) {
				t.Errorf("the reply is %+v", turn.Reply)
			}
			if turn.Executed != 12 {
				t.Errorf("%d calls ran", turn.Executed)
			}
			asked := e.Model.Requests()
			if len(asked) < 2 {
				t.Fatal("the model was not asked for its last answer")
			}
			second := asked[1].Chat()
			results := 0
			for _, m := range second.Messages {
				if m.Role == "tool" && strings.HasPrefix(m.Text(), "marked call ") {
					results++
				}
			}
			if end := second.Messages[len(second.Messages)-1]; results != 12 || string(second.ToolChoice) != `"none"` ||
				!strings.Contains(end.Text(), "the last one") {
				t.Errorf("the last request has %d results, tool_choice %s, and ends with %s", results,
					second.ToolChoice, end.Text())
			}
		})
	}
}

func TestOnDegraded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, reply string }{
		"summary": {"on_degraded: summary",
			"Tool results: 1 succeeded, 1 failed.\n- mark_once: succeeded\n- no_such_tool: denied: tool not found: no_such_tool"},
		"text": {"on_degraded: We could not finish this. A colleague will call you.",
			"We could not finish this. A colleague will call you."},
		"silent": {"on_degraded: silent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, c.setting)
			e.Model.Then(env.Rounds(inferencetest.Message("Let me see.", env.MarkerCall("mark_once", "a"),
				inferencetest.Call{Name: "no_such_tool", Arguments: "{}"}), brokenModel()))
			e.StartWorker()
			message := e.Enqueue("clerk", "Go.")
			turn := e.TurnOf(message)
			e.WantEnd(turn, "degraded", "inference_error", 1)
			e.WantReply(turn, c.reply)
			if got := env.Query[string](e,
				"select outcome || ' ' || stop_reason || ' ' || jsonb_array_length(calls) from replies where message_id = $1", message); got != "degraded inference_error 2" {
				t.Errorf("the outbox has %q", got)
			}
			r := e.Run("", "enqueue", "--agent", "clerk", "--wait", "Go on.")
			if r.Code != 7 || strings.TrimSuffix(r.Stdout, "\n") != c.reply || !strings.Contains(r.Stderr, "degraded") {
				t.Errorf("enqueue --wait ended with %d\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

func TestOnFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, reply string }{
		"text":   {"on_failed: Please call us on 12345.", "Please call us on 12345."},
		"silent": {"on_failed: silent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", c.setting)
			e.Model.Then(env.Rounds(brokenModel()))
			e.StartWorker()
			message := e.Enqueue("clerk", "Go.")
			untilClosed(e, message)
			turn := e.TurnOf(message)
			e.WantEnd(turn, "failed", "inference_error", 0)
			e.WantReply(turn, c.reply)
			if turn.ErrorClass == "" || !strings.Contains(turn.Error, "on fire") {
				t.Errorf("the diagnostics have %q, %q", turn.ErrorClass, turn.Error)
			}
			if n := env.Query[int](e,
				"select count(*) from replies where outcome = 'failed' and error_class <> '' and body = $1",
				c.reply); n != 1 {
				t.Errorf("there are %d such replies", n)
			}
			// it can be retried, and then has its own reply
			e.Model.Then(env.Rounds(inferencetest.Text("Now it works.")))
			again := env.Turnctl[struct {
				MessageID int64 `json:"message_id"`
			}](e, "retry", fmt.Sprint(message))
			e.Exec("update leases set not_before = null")
			e.Exec("notify turnkeeper_inbox")
			e.WantReply(e.TurnOf(again.MessageID), "Now it works.")
		})
	}
}

// untilClosed waits until the message is closed. It clears every backoff, so retries start at once.
func untilClosed(e *env.Env, message int64) {
	e.T.Helper()
	e.Poll("the message is closed", func() bool {
		e.Exec("update leases set not_before = clock_timestamp() where not_before > clock_timestamp()")
		e.Exec("update messages set due_at = accepted_at where id = $1 and due_at > accepted_at", message)
		e.Exec("notify turnkeeper_inbox")
		return env.Query[bool](e, "select closed_at is not null from messages where id = $1", message)
	})
}

// The summary has a tool's output only if the agent allows it, whatever the outcome of the call.
func TestSummaryOutput(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"summary_output: false": "Tool results: 1 succeeded, 1 failed.\n- mark_once: succeeded\n- mark_none: failed",
		"summary_output: true":  "Tool results: 1 succeeded, 1 failed.\n- mark_once: RAW RESULT 7\n- mark_none: failed: RAW ERROR 8",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, setting)
			e.Ledger.SetAnswer("a", "RAW RESULT 7")
			e.Ledger.Fail("b", "RAW ERROR 8")
			e.Model.Then(env.Rounds(inferencetest.Calls(env.MarkerCall("mark_once", "a"), env.MarkerCall("mark_none",
				"b")), brokenModel()))
			e.StartWorker()
			message := e.Enqueue("clerk", "Go.")
			e.WantReply(e.TurnOf(message), want)
			if calls := env.Query[string](e, "select calls::text from replies where message_id = $1",
				message); strings.Contains(calls, "RAW") {
				t.Errorf("the reply's calls hold what the tool said: %s", calls)
			}
		})
	}
}

// The reply lists calls of unknown outcome below the model's text, even if the model does not mention them.
func TestUnknownCallsAreListedBelowTheText(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.MarkerTools)
	e.Ledger.Hold("a")
	e.Model.Then(env.Rounds(inferencetest.Message("I pay now.", env.MarkerCall("mark_once", "a")),
		inferencetest.Text("I do not know whether it is paid.")))
	first := e.StartWorker()
	message := e.Enqueue("clerk", "Pay.")
	e.Ledger.Await("a", 1)
	e.Kill(first)
	e.StartWorker()
	turn := e.TurnOf(message)
	e.WantEnd(turn, "degraded", "worker_lost", 2)
	e.WantReply(turn, "I do not know whether it is paid.\n\n- mark_once: unknown: it may or may not have happened")
	type call struct {
		Name, ID, Effect, State, Error string
		Ordinal                        int
		DurationMs                     *int64 `json:"duration_ms"`
	}
	var calls []call
	if err := json.Unmarshal([]byte(env.Query[string](e, "select calls::text from replies where message_id = $1",
		message)), &calls); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 1 || calls[0].Name != "mark_once" || calls[0].ID != "round-1-tool-1" || calls[0].Ordinal != 1 ||
		calls[0].Effect != "once" ||
		calls[0].State != "unknown" || calls[0].Error != "it may or may not have happened" ||
		calls[0].DurationMs != nil {
		t.Errorf("the calls are %+v", calls)
	}
	e.Ledger.Release()
}

// A message that kills its workers before any tool has run gets a plain reply.
func TestAMessageThatKillsItsWorkersBeforeAnyTool(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"on_degraded: summary": "This message could not be answered: the service stopped each time it worked on it; the operator was told.",
		"on_degraded: Sorry.":  "Sorry.",
		"on_degraded: silent":  "",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", setting)
			e.Model.Then(env.Rounds(inferencetest.Hang()))
			message := int64(0)
			for death := 1; death <= 3; death++ {
				w := e.StartWorker()
				if message == 0 {
					message = e.Enqueue("clerk", "Die.")
				}
				e.AwaitRequests(death)
				e.Kill(w)
			}
			e.StartWorker()
			turn := e.TurnOf(message)
			e.WantEnd(turn, "degraded", "worker_lost", 0)
			e.WantReply(turn, want)
		})
	}
}

// With one round and no error, the reply is the text or the summary.
func TestOneRound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer inferencetest.Reply
		reply  string
	}{
		"text":    {inferencetest.Message("I make a mark.", env.MarkerCall("mark_once", "a")), "I make a mark."},
		"no text": {env.MarkerReply("mark_once", "a"), "Tool results: 1 succeeded, 0 failed.\n- mark_once: succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteAgent("clerk", env.MarkerTools, "continuation: false", "on_degraded: silent")
			e.Model.Then(env.Rounds(c.answer, inferencetest.Text("never asked")))
			w := e.StartWorker()
			turn := e.TurnOf(e.Enqueue("clerk", "Hello"))
			e.WantEnd(turn, "succeeded", "none", 1)
			e.WantReply(turn, c.reply)
			e.WantRequests(1)
			w.Await("tool continuation disabled, completing turn")
			if r := e.Run("", "enqueue", "--agent", "clerk", "--wait", "Again."); r.Code != 0 {
				t.Errorf("enqueue --wait ended with %d\n%s", r.Code, r.Stderr)
			}
		})
	}
}

// A scheduled turn has a reply only if the model gave one.
func TestTheReplyOfADegradedSlot(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", env.HourlySchedule, env.MarkerTools, "max_rounds: 2", "freshness_window: 0s",
		"on_degraded: Sorry.", "on_failed: Sorry.")
	e.Model.Then(env.Rounds(
		inferencetest.Message("Let me look.", env.MarkerCall("mark_none", "a")),
		inferencetest.Message("The price fell.", env.MarkerCall("mark_none", "b"))))
	e.StartWorker()
	e.MissSlots(time.Second)
	e.AwaitSlots(1)
	if got := env.Query[string](e,
		"select string_agg(outcome || ': ' || body, '|') from replies"); got != "degraded: The price fell." {
		t.Errorf("the replies are %q", got)
	}
	e.Model.Then(env.Rounds(inferencetest.Message("Let me look.", env.MarkerCall("mark_once", "c")), brokenModel()))
	e.MissSlots(time.Second)
	e.AwaitSlots(2)
	if n := env.Query[int](e, "select count(*) from replies"); n != 1 {
		t.Errorf("there are %d replies", n)
	}
	if got := env.Query[string](e,
		"select state || ': ' || inner_dialogue from turns order by id desc limit 1"); got != "degraded: Let me look." {
		t.Errorf("the turn is %q", got)
	}
}

// A parent sees how a sub-agent ended and which calls may have happened, even if the sub-agent gave no text.
func TestADegradedSubAgentWithoutWords(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteTeam()
	e.WriteAgent("scout", env.MarkerTools, "on_degraded: silent")
	e.Model.Then(env.ModelPerAgent(map[string]func(inferencetest.Recorded) inferencetest.Reply{
		"boss":  env.ReportResult(env.Spawn("scout find it")),
		"scout": env.Rounds(inferencetest.Message("Let me look.", env.MarkerCall("mark_once", "a")), brokenModel()),
	}))
	e.StartWorker()
	turn := e.TurnOf(e.Enqueue("boss", "Get it done."))
	for _, want := range []string{"[The agent scout could not finish as asked (inference_error), and gave no text. Its calls:]", "- mark_once: succeeded"} {
		if turn.Reply == nil || !strings.Contains(turn.Reply.Body, want) {
			t.Errorf("the parent got %+v, without %q", turn.Reply, want)
		}
	}
}
