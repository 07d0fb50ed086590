package turnkeepertest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

const asking = `---
tools: [order]
approve: {order: only tea}
ask_audience: [ann]
---
You order what you are told.
`

// onlyTea compiles the only rule of the agent.
func onlyTea(string) (policy.Rule, error) { return teaRule{}, nil }

type teaRule struct{}

func (teaRule) Decide(call policy.Call) policy.Decision {
	if strings.Contains(string(call.Arguments), "tea") {
		return policy.Decision{}
	}
	return policy.Decision{Verdict: policy.Ask, Reason: "it is not tea"}
}

// approving returns a scenario in which a person decides about an order of coffee.
func approving(s *shop, answers ...turnkeepertest.Answer) turnkeepertest.Scenario {
	return turnkeepertest.Scenario{
		Agent: asking, Rules: onlyTea, Tools: []tools.Tool{s.order(turnkeeper.EffectOnce, passedOn)},
		Talk: []turnkeepertest.Exchange{
			{Say: "order tea", Model: []turnkeepertest.Step{turnkeepertest.Call("order", item{"tea"}),
				turnkeepertest.Text("Done.")}},
			{Say: "order coffee", Model: []turnkeepertest.Step{turnkeepertest.Call("order", item{"coffee"}),
				turnkeepertest.Text("Done.")}, Answers: answers},
		},
	}
}

func TestAPersonAnswersInARun(t *testing.T) {
	for name, c := range map[string]struct {
		answers []turnkeepertest.Answer
		happens string
		state   asks.State
	}{
		"approved": {[]turnkeepertest.Answer{turnkeepertest.Approve()}, "order of coffee", asks.Approved},
		"approved later": {[]turnkeepertest.Answer{turnkeepertest.Approve().After(5 * time.Minute)},
			"order of coffee", asks.Approved},
		"changed": {[]turnkeepertest.Answer{turnkeepertest.ApproveChanged(`{"item":"water"}`)},
			"order of water", asks.Approved},
		"denied":           {[]turnkeepertest.Answer{turnkeepertest.Deny("drink tea")}, "", asks.Denied},
		"no answer":        {[]turnkeepertest.Answer{turnkeepertest.NoAnswer()}, "", asks.Expired},
		"nothing scripted": {nil, "", asks.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			s := approving(&shop{}, c.answers...)
			s.Check = func(t testing.TB, r *turnkeepertest.Result) {
				if len(r.Asks) != 1 || r.Asks[0].State != c.state || r.Asks[0].Reason != "it is not tea" {
					t.Errorf("the asks are %+v", r.Asks)
				}
				if len(r.Effects) > 2 || r.Happened("order of tea") != 1 || c.happens != "" &&
					r.Happened(c.happens) != 1 || c.happens == "" && len(r.Effects) != 1 {
					t.Errorf("it happened: %+v", r.Effects)
				}
				if c.state == asks.Denied && !strings.HasSuffix(r.Calls("order")[1].Shown, "Comment: drink tea") {
					t.Errorf("the model is shown %q", r.Calls("order")[1].Shown)
				}
			}
			turnkeepertest.Run(t, s)
		})
	}
}

// An answer that an ask does not take is a problem of the scenario.
func TestAnAnswerThatDoesNotFit(t *testing.T) {
	s := approving(&shop{}, turnkeepertest.Reply(`"yes"`))
	problems := turnkeepertest.ProblemsOf(t, s)
	if !strings.Contains(strings.Join(problems, "\n"), "cannot be answered with answered") {
		t.Errorf("the problems are %q", problems)
	}
}

// A crash, a pause or a lost answer at any point changes nothing about what a person approved.
func TestAnApprovalSurvivesEverything(t *testing.T) {
	for _, way := range everywhere {
		t.Run(way.name, func(t *testing.T) {
			way.run(t, func(*testing.T) turnkeepertest.Scenario {
				s := approving(&shop{}, turnkeepertest.Approve())
				s.Check = func(t testing.TB, r *turnkeepertest.Result) {
					if r.Happened("order of coffee") > 1 || len(r.Asks) > 1 {
						t.Errorf("it happened: %+v, after %d asks", r.Effects, len(r.Asks))
					}
				}
				return s
			})
		})
	}
}

// A booking asks which seat to book.
func (s *shop) booking(effect turnkeeper.Effect) tools.Tool {
	return tools.New(tools.Spec{Name: "order", Description: "Books a seat.", Effect: effect, AsksInput: true},
		func(ctx context.Context, call tools.Call, _ item) (tools.Result, error) {
			switch {
			case call.Input == nil:
				return tools.Result{}, &tools.InputRequest{Question: "Which seat?",
					Schema: json.RawMessage(`{"type":"object","required":["seat"]}`), State: "x"}
			case call.Input.Answer == nil:
				return tools.Result{Text: "no seat", IsError: true}, nil
			}
			s.Do(ctx, call.IdempotencyKey, "seat "+string(call.Input.Answer))
			return tools.Result{Text: "booked"}, nil
		})
}

// A tool asks for input, and a worker fails at any point.
func TestInputSurvivesEverything(t *testing.T) {
	for _, effect := range []turnkeeper.Effect{turnkeeper.EffectKeyed, turnkeeper.EffectOnce} {
		for _, way := range everywhere {
			t.Run(string(effect)+" "+way.name, func(t *testing.T) {
				way.run(t, func(*testing.T) turnkeepertest.Scenario {
					s := &shop{}
					return turnkeepertest.Scenario{
						Tools: []tools.Tool{s.booking(effect)},
						Talk: []turnkeepertest.Exchange{{
							Say: "book",
							Model: []turnkeepertest.Step{turnkeepertest.Call("order", item{"seat"}),
								turnkeepertest.Text("Done.")},
							Answers: []turnkeepertest.Answer{turnkeepertest.Reply(`{"seat":7}`)},
						}},
						Check: func(t testing.TB, r *turnkeepertest.Result) {
							n, call := r.Happened(`seat {"seat":7}`), r.Calls("order")[0]
							if effect == turnkeeper.EffectKeyed && n != 1 || n > 1 || n == 0 &&
								call.State != turnkeeper.CallUnknown || len(r.Asks) > 1 {
								t.Errorf("it happened %d times, the call is %s, %d asks", n, call.State, len(r.Asks))
							}
						},
					}
				})
			})
		}
	}
}
