package core_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// answerWith answers with a text and a finish reason, streamed by characters or whole, as the request asks.
func answerWith(text, finish string) inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		reason := "null"
		if finish != "" {
			reason = env.Quote(finish)
		}
		if !x.Chat().Stream {
			inferencetest.Status(200, fmt.Sprintf(
				`{"choices":[{"message":{"role":"assistant","content":%s},"finish_reason":%s}],"usage":{"prompt_tokens":9,"completion_tokens":9}}`,
				env.Quote(text), reason))(x)
			return
		}
		var chunks []string
		for _, r := range text {
			chunks = append(chunks, piece(string(r)))
		}
		if finish != "" {
			chunks = append(chunks, fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%s}]}`, reason))
		}
		inferencetest.SSE(append(chunks, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":9}}`)...)(x)
	}
}

// bothWays runs a test with streamed and with whole answers, of a server of which the worker knows nothing.
func bothWays(t *testing.T, test func(t *testing.T, e *env.Env)) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			e := env.New(t)
			e.WriteFile("turnkeeper.yaml", fmt.Sprintf(
				"default_model: test/scripted\nproviders:\n  test: {base_url: %q, api_key_env: TEST_API_KEY, stream: %v}\n", e.ModelURL, stream))
			e.WriteAgent("clerk", "tools: [mark_none, mark_once]", "max_rounds: 4")
			test(t, e)
		})
	}
}

// TestReasoningInTheTextReachesNobody checks replies, streamed text and later requests against servers that leave
// reasoning in the text.
func TestReasoningInTheTextReachesNobody(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, e *env.Env) {
		const secret = "they must not see this"
		e.Model.Add(
			answerWith(secret+"</think>\n\nfirst", "stop"),
			answerWith("<think>"+secret+"</think>second", "stop"),
			env.MarkerReply("mark_none", "look"), answerWith("<think>"+secret, "stop"),
			answerWith("<think>"+secret+"</think>", "stop"), answerWith("third", "stop"),
			answerWith("<think>"+secret+"</think>fourth", "stop"),
		)
		e.StartWorker()
		for _, want := range []string{"first", "second", "third", "fourth"} {
			turn := e.TurnOf(e.Enqueue("clerk", "Say "+want+"."))
			e.WantReply(turn, want)
			if turn.State != "succeeded" {
				t.Errorf("the turn of %q is %s", want, turn.State)
			}
		}
		for _, r := range e.WantRequests(7) {
			if strings.Contains(string(r.Body), secret) {
				t.Errorf("request %d has the reasoning: %s", r.N, r.Body)
			}
		}
		if n := env.Query[int64](e,
			`select count(*) from turnkeeper.turn_events d where d.type = 'block_delta' and d.data::text like '%not see%'
			and (select s.data->>'kind' from turnkeeper.turn_events s where (s.turn_id, s.block) = (d.turn_id, d.block) and s.type = 'block_start') <> 'thinking'`); n != 0 {
			t.Errorf("%d text events have reasoning", n)
		}
	})
}

// TestAToolCallInTheTextIsAnsweredWithAHint checks that markup never reaches the sender, that the model gets a hint,
// and that an operator learns the server's setting.
func TestAToolCallInTheTextIsAnsweredWithAHint(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, e *env.Env) {
		markup := answerWith(
			"Let me look.\n<tool_call>\n{\"name\": \"mark_none\", \"arguments\": {\"label\": \"a\"}}\n</tool_call>",
			"stop")
		e.Model.Add(markup, answerWith("in plain words", "stop"), markup, markup)
		e.StartWorker()
		turn := e.TurnOf(e.Enqueue("clerk", "Look."))
		e.WantEnd(turn, "succeeded", "none", 1)
		e.WantReply(turn, "in plain words")
		degraded := e.TurnOf(e.Enqueue("clerk", "Look again."))
		e.WantEnd(degraded, "degraded", "inference_error", 0)
		e.WantReply(degraded, "This message could not be answered: the agent came to no result; the operator was told.")
		requests := e.WantRequests(4)
		for _, n := range []int{1, 3} {
			messages := requests[n].Chat().Messages
			if last := messages[len(messages)-1]; !env.IsNotice(last) || !strings.Contains(last.Text(),
				"a tool call written as text") {
				t.Errorf("request %d has no hint: %s", n+1, last.Content)
			}
			if strings.Contains(string(requests[n].Body), "tool_call>") {
				t.Errorf("request %d has the markup: %s", n+1, requests[n].Body)
			}
		}
		for _, id := range []int64{turn.ID, degraded.ID} {
			said := strings.Join(strings.Fields(e.Turnctl("explain", fmt.Sprint(id)).Stdout), " ")
			if !strings.Contains(said, "--tool-call-parser hermes") || !strings.Contains(said, "--jinja") {
				t.Errorf("explain names no setting: %s", said)
			}
		}
		if sent := e.Turnctl("show", fmt.Sprint(turn.ID), "--request", "1"); sent.Code != 0 ||
			sent.Stdout != string(requests[1].Body) {
			t.Errorf("show --request is not what was sent: %d %s%s\n%s", sent.Code, sent.Stdout, sent.Stderr,
				requests[1].Body)
		}
	})
}

// TestAnAnswerWithoutAFinishReasonIsTaken checks that a server that never sends one answers messages, with one warning.
func TestAnAnswerWithoutAFinishReasonIsTaken(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, e *env.Env) {
		e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
			return answerWith("hello "+env.NewestMessage(r), "")
		})
		worker := e.StartWorker()
		for _, body := range []string{"Ann", "Ben"} {
			turn := e.TurnOf(e.Enqueue("clerk", body))
			e.WantEnd(turn, "succeeded", "none", 1)
			e.WantReply(turn, "hello "+body)
		}
		e.WantRequests(2)
		if n := strings.Count(worker.Output.String(), "has no finish_reason"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, worker.Output.String())
		}
	})
}

// refusing returns a server that refuses requests whose record has something, or lacks it.
func refusing(status int, message string, refuses func(assistant map[string]json.RawMessage) bool,
	answers ...inferencetest.Reply) func(inferencetest.Recorded) inferencetest.Reply {
	given := 0
	return func(r inferencetest.Recorded) inferencetest.Reply {
		var body struct {
			Messages []map[string]json.RawMessage `json:"messages"`
		}
		_ = json.Unmarshal(r.Body, &body)
		for _, m := range body.Messages {
			if string(m["role"]) == `"assistant"` && refuses(m) {
				return inferencetest.Fault(status, "invalid_request_error", message)
			}
		}
		given++
		return answers[min(given, len(answers))-1]
	}
}

// TestARefusedRecordFailsNoMessage checks that a server that refuses what requests repeat of earlier answers answers
// each message, that the refusal costs one request, and that show --request tells what was sent.
func TestARefusedRecordFailsNoMessage(t *testing.T) {
	t.Parallel()
	hasCalls := func(m map[string]json.RawMessage) bool { return m["tool_calls"] != nil }
	reasoned := func(x *inferencetest.Exchange) {
		message :=
			`{"role":"assistant","content":"hm","reasoning_content":"I think","reasoning_details":[{"type":"reasoning.encrypted","data":"c2lnbmVk"}]}`
		if x.Chat().Stream {
			inferencetest.SSE(`{"choices":[{"index":0,"delta":` + message + `,"finish_reason":"stop"}]}`)(x)
		} else {
			inferencetest.Status(200, `{"choices":[{"message":`+message+`,"finish_reason":"stop"}]}`)(x)
		}
	}
	cases := map[string]struct {
		status   int
		message  string
		refuses  func(map[string]json.RawMessage) bool
		answers  []inferencetest.Reply
		requests []int // until each message is answered
	}{
		"reasoning demanded": {400, "The `reasoning_content` in the thinking mode must be passed back to the API.",
			func(m map[string]json.RawMessage) bool {
				return m["reasoning_content"] == nil || string(m["reasoning_content"]) == `""`
			}, []inferencetest.Reply{answerWith("hm", "stop")}, []int{1, 3, 4, 5}},
		"signatures refused": {400, "messages.1.content.0: Invalid `signature` in `thinking` block",
			func(m map[string]json.RawMessage) bool {
				return m["reasoning_details"] != nil
			}, []inferencetest.Reply{reasoned}, []int{1, 3, 5, 7}},
		"calls refused": {422, "tool_call_id is not valid", hasCalls,
			[]inferencetest.Reply{env.MarkerReply("mark_none", "look"), answerWith("hm", "stop")}, []int{3, 4, 5, 6}},
		"refused without a reason": {400, "bad request", hasCalls,
			[]inferencetest.Reply{env.MarkerReply("mark_none", "look"), answerWith("hm", "stop")}, []int{3, 4, 5, 6}},
		"a template that fails": {500, "Jinja Exception: Conversation roles must alternate", hasCalls,
			[]inferencetest.Reply{env.MarkerReply("mark_none", "look"), answerWith("hm", "stop")}, []int{3, 4, 5, 6}},
	}
	for _, name := range testrun.Sample(slices.Sorted(maps.Keys(cases)), 2) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, e *env.Env) {
				e.Model.Then(refusing(c.status, c.message, c.refuses, c.answers...))
				e.StartWorker()
				for i, want := range c.requests {
					message := e.Enqueue("clerk", fmt.Sprintf("Message %d.", i))
					turn := e.TurnOf(message)
					e.WantReply(turn, "hm")
					if turn.State != "succeeded" {
						t.Errorf("turn %d is %s", turn.ID, turn.State)
					}
					all := e.WantRequests(want)
					if n := env.Query[int64](e, "select faults from turnkeeper.messages where id = $1",
						message); n != 0 {
						t.Errorf("%d attempts count against message %d", n, message)
					}
					rounds := fmt.Sprint(env.Query[int64](e,
						"select count(*) from turnkeeper.rounds where turn_id = $1", turn.ID))
					if sent := e.Turnctl("show", fmt.Sprint(turn.ID), "--request", rounds); sent.Code != 0 ||
						sent.Stdout != string(all[want-1].Body) {
						t.Errorf("show --request is not what was sent: %d %s%s\n%s", sent.Code, sent.Stdout,
							sent.Stderr, all[want-1].Body)
					}
				}
			})
		})
	}
}
