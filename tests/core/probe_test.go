package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// A probedAnswer is an answer of a server that a probe asks.
type probedAnswer struct {
	message string // as JSON
	finish  string
	quiet   bool // no usage
}

func (a probedAnswer) reply() inferencetest.Reply {
	return func(x *inferencetest.Exchange) {
		finish, usage := "null", `{"prompt_tokens":5,"completion_tokens":5}`
		if a.finish != "" {
			finish = env.Quote(a.finish)
		}
		if a.quiet {
			usage = "null"
		}
		if x.Chat().Stream {
			inferencetest.SSE(fmt.Sprintf(`{"choices":[{"index":0,"delta":%s,"finish_reason":null}]}`, a.message),
				fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"finish_reason":%s}],"usage":%s}`, finish, usage))(x)
			return
		}
		inferencetest.Status(200, fmt.Sprintf(`{"choices":[{"index":0,"message":%s,"finish_reason":%s}],"usage":%s}`,
			a.message, finish, usage))(x)
	}
}

func adds(id, arguments string) string {
	return fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":"probe_add","arguments":%s}}`, id,
		env.Quote(arguments))
}

func callsOf(calls ...string) string { return `{"tool_calls":[` + strings.Join(calls, ",") + `]}` }

// wellProbed answers a probe as it should be answered. The steps are: one call, a text, two calls.
func wellProbed(step int) probedAnswer {
	return []probedAnswer{
		{message: callsOf(adds("a", `{"a":2,"b":3}`)), finish: "tool_calls"},
		{message: `{"content":"five"}`, finish: "stop"},
		{message: callsOf(adds("b", `{"a":1,"b":1}`), adds("c", `{"a":2,"b":2}`)), finish: "tool_calls"},
	}[step]
}

// probedStep returns the step of a probe's request.
func probedStep(r inferencetest.Recorded) int {
	messages := r.Chat().Messages
	switch {
	case len(messages) > 2:
		return 1
	case strings.Contains(messages[1].Text(), "twice"):
		return 2
	default:
		return 0
	}
}

// instead returns a server that answers one step in another way.
func instead(step int, answer probedAnswer) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		if probedStep(r) == step {
			return answer.reply()
		}
		return wellProbed(probedStep(r)).reply()
	}
}

// always returns a server that changes each right answer.
func always(change func(*probedAnswer)) func(inferencetest.Recorded) inferencetest.Reply {
	return func(r inferencetest.Recorded) inferencetest.Reply {
		answer := wellProbed(probedStep(r))
		change(&answer)
		return answer.reply()
	}
}

// probedServers holds servers by the names of their models, with the worst verdict of a probe and a part of what it
// says.
var probedServers = map[string]struct {
	server        func(inferencetest.Recorded) inferencetest.Reply
	verdict, said string
}{
	"right": {always(func(*probedAnswer) {}), "ok", "calls tools and takes their results (3 requests, 30 tokens)"},
	"silent": {instead(0, probedAnswer{message: `{"content":""}`, finish: "stop"}), "fail",
		"gave no usable answer when asked for a tool call"},
	"chatty": {instead(0, probedAnswer{message: `{"content":"It is 5."}`, finish: "stop"}), "fail",
		"answered with text in place of the tool call"},
	"hermes": {instead(0,
		probedAnswer{
			message: `{"content":"<tool_call>{\"name\":\"probe_add\",\"arguments\":{\"a\":2,\"b\":3}}</tool_call>"}`,
			finish:  "stop"}),
		"fail", "--tool-call-parser hermes"},
	"broken": {instead(0, probedAnswer{message: callsOf(adds("a", `{"a":2,`)), finish: "tool_calls"}), "fail",
		"sends arguments that are not JSON"},
	"empty": {instead(0, probedAnswer{message: callsOf(adds("a", `{}`)), finish: "tool_calls"}), "fail",
		"sends other arguments than it was asked for"},
	"pieces": {instead(2, probedAnswer{message: callsOf(`{"id":"a","function":{"arguments":"{\"a\":1,\"b\":1}"}}`,
		adds("b", `{"a":2,"b":2}`)), finish: "tool_calls"}),
		"fail", "cannot be put together"},
	"endless": {always(func(a *probedAnswer) { a.finish = "" }), "warn", "sends no finish_reason"},
	"strange": {always(func(a *probedAnswer) {
		a.finish = "banana"
	}), "fail", "sends the unknown finish_reason banana"},
	"stops": {always(func(a *probedAnswer) {
		a.finish = "stop"
	}), "warn", "sends finish_reason stop with tool calls"},
	"unused": {always(func(a *probedAnswer) { a.quiet = true }), "warn", "reports no usage"},
	"thinks": {instead(1, probedAnswer{message: `{"content":"hm</think>five"}`, finish: "stop"}), "warn",
		"--reasoning-parser"},
	"nameless": {always(func(a *probedAnswer) {
		a.message = strings.NewReplacer(`"a",`, `"",`, `"b",`, `"",`, `"c",`, `"",`).Replace(a.message)
	}),
		"warn", "sends tool calls without an id"},
	"repeats": {instead(2, probedAnswer{message: callsOf(adds("b", `{"a":1,"b":1}`), adds("b", `{"a":2,"b":2}`)),
		finish: "tool_calls"}), "warn", "several tool calls with one id"},
	"serial": {instead(2, wellProbed(0)), "warn", "fewer than two tool calls"},
	"again":  {instead(1, wellProbed(0)), "fail", "called a tool again"},
	"demands": {func(r inferencetest.Recorded) inferencetest.Reply {
		if probedStep(r) == 1 && !strings.Contains(string(r.Body), `"reasoning_content":"`) {
			return inferencetest.Fault(400, "invalid_request_error",
				"The `reasoning_content` in the thinking mode must be passed back to the API.")
		}
		return wellProbed(probedStep(r)).reply()
	}, "warn", "demands reasoning_content on each earlier answer"},
	"toolless": {func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Fault(400, "BadRequestError",
			`"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	}, "fail", "refused the request for a tool call"},
	"locked": {func(inferencetest.Recorded) inferencetest.Reply {
		return inferencetest.Status(401, `{}`)
	}, "fail", "set the right key"},
}

// TestAProbeSaysWhatAServerDoesWrong probes each server, with streamed and with whole answers.
func TestAProbeSaysWhatAServerDoesWrong(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, e *env.Env) {
		e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
			return probedServers[r.Chat().Model].server(r)
		})
		args := []string{"probe", "-o", "json"}
		for name := range probedServers {
			args = append(args, "test/"+name)
		}
		r := e.Run("", "worker", args...)
		if r.Code != 1 {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
		var view struct {
			Checks []struct{ Name, Verdict, Found, Advice string } `json:"checks"`
		}
		if err := json.Unmarshal([]byte(r.Stdout), &view); err != nil {
			t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
		}
		rank := map[string]int{"ok": 1, "warn": 2, "fail": 3}
		for name, want := range probedServers {
			worst, said := "", ""
			for _, c := range view.Checks {
				if c.Name == "probe test/"+name {
					said += c.Verdict + ": " + c.Found + " → " + c.Advice + "\n"
					if rank[c.Verdict] > rank[worst] {
						worst = c.Verdict
					}
				}
			}
			if worst != want.verdict || !strings.Contains(said, want.said) {
				t.Errorf("of %s, the probe says %s, want %s and %q:\n%s", name, worst, want.verdict, want.said, said)
			}
		}
		if v := e.Model.Violations(); len(v) > 0 {
			t.Errorf("the requests are wrong: %v", v)
		}
	})
}

// TestDoctorProbes checks that doctor runs the probe with a worker's program, for one model and for those of the
// agents.
func TestDoctorProbes(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "model: test/hermes", "fallback_models: [test/right]")
	e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		if s, ok := probedServers[r.Chat().Model]; ok {
			return s.server(r)
		}
		return wellProbed(probedStep(r)).reply()
	})
	for _, c := range []struct {
		args []string
		code int
		said []string
	}{
		// the tests' database fails other checks
		{[]string{"doctor", "--probe", "test/right"}, 1, []string{"ok probe test/right",
			"calls tools and takes their results"}},
		{[]string{"doctor", "--probe", "test/hermes"}, 1, []string{"FAIL probe test/hermes",
			"--tool-call-parser hermes"}},
		{[]string{"doctor", "--probe"}, 1, []string{"probe test/right", "probe test/hermes", "probe test/scripted"}},
		{[]string{"doctor", "test/right"}, 2, []string{"turnctl doctor --probe MODEL"}},
	} {
		r := e.Turnctl(c.args...)
		said := strings.Join(strings.Fields(r.Stdout+r.Stderr), " ")
		for _, want := range c.said {
			if !strings.Contains(said, want) {
				t.Errorf("%v does not say %q: %s", c.args, want, said)
			}
		}
		if r.Code != c.code {
			t.Errorf("%v: exit code %d: %s", c.args, r.Code, said)
		}
	}
	if r := e.Run("", "worker", "probe", "test/right"); r.Code != 0 || !strings.Contains(r.Stdout,
		"calls tools and takes their results") {
		t.Errorf("worker probe: %+v", r)
	}
}
