package turnkeepertest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
	"turnkeeper/turnkeepertest"
)

// TestSoundTools checks that tools that keep their promises pass wherever a worker fails.
func TestSoundTools(t *testing.T) {
	const what = "order of tea"
	for _, test := range []struct {
		name  string
		tool  func(*shop) tools.Tool
		check func(t testing.TB, r *turnkeepertest.Result, s *shop)
	}{
		{
			"keyed", func(s *shop) tools.Tool { return s.order(turnkeeper.EffectKeyed, passedOn) },
			func(t testing.TB, r *turnkeepertest.Result, s *shop) {
				if n := s.Count(what); n != 1 || r.Reply() != "Done." || r.Turns[0].State != turnkeeper.TurnSucceeded {
					t.Errorf("ordered %d times, reply %q, turn %s", n, r.Reply(), r.Turns[0].State)
				}
			},
		},
		{
			"once", func(s *shop) tools.Tool { return s.order(turnkeeper.EffectOnce, forgotten) },
			func(t testing.TB, r *turnkeepertest.Result, s *shop) {
				call := r.Calls("order")[0]
				if n := s.Count(what); n > 1 || n == 0 && call.State != turnkeeper.CallUnknown {
					t.Errorf("ordered %d times, and the call is %s", n, call.State)
				}
				unknown, degraded := call.State == turnkeeper.CallUnknown,
					r.Replies[0].Outcome == turnkeeper.TurnDegraded
				if unknown != degraded {
					t.Errorf("the call is %s and the reply is %s", call.State, r.Replies[0].Outcome)
				}
			},
		},
		{
			"keyed and detached", func(s *shop) tools.Tool {
				return detached{s.order(turnkeeper.EffectKeyed, passedOn)}
			},
			func(t testing.TB, r *turnkeepertest.Result, s *shop) {
				if n := s.Count(what); n != 1 || r.Reply() != "Done." || r.Turns[0].State != turnkeeper.TurnSucceeded {
					t.Errorf("ordered %d times, reply %q, turn %s", n, r.Reply(), r.Turns[0].State)
				}
			},
		},
		{
			"once and detached", func(s *shop) tools.Tool {
				return detached{s.order(turnkeeper.EffectOnce, forgotten)}
			},
			func(t testing.TB, r *turnkeepertest.Result, s *shop) {
				call := r.Calls("order")[0]
				if n := s.Count(what); n > 1 || n == 0 && call.State != turnkeeper.CallUnknown {
					t.Errorf("ordered %d times, and the call is %s", n, call.State)
				}
			},
		},
		{
			"once with a look-up", func(s *shop) tools.Tool {
				return reconciled{s.order(turnkeeper.EffectOnce, passedOn), s}
			},
			func(t testing.TB, r *turnkeepertest.Result, s *shop) {
				call := r.Calls("order")[0]
				if n := s.Count(what); n > 1 || call.State == turnkeeper.CallUnknown {
					t.Errorf("ordered %d times, and the call is %s", n, call.State)
				}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, fails := range everywhere {
				t.Run(fails.name, func(t *testing.T) {
					fails.run(t, func(*testing.T) turnkeepertest.Scenario {
						s := &shop{}
						scenario := ordering(test.tool(s), s)
						if strings.HasSuffix(test.name, "detached") { // the turn waits only for its result
							scenario.Talk[0].Model[0] = turnkeepertest.Calls(turnkeepertest.ToolCall(
								"order", item{"tea"}))
						}
						scenario.Check = func(t testing.TB, r *turnkeepertest.Result) { test.check(t, r, s) }
						return scenario
					})
				})
			}
		})
	}
}

// TestTransactionalTool checks that a transactional tool's writes are committed with its
// result, once, wherever a worker fails.
func TestTransactionalTool(t *testing.T) {
	for _, fails := range everywhere {
		t.Run(fails.name, func(t *testing.T) {
			fails.run(t, func(*testing.T) turnkeepertest.Scenario {
				rows := 0
				note := tools.Func(tools.Spec{Name: "order", Description: "Notes an order.", Transactional: true},
					func(ctx context.Context, _ item) (string, error) {
						if !turnkeepertest.OnCommit(ctx, func() { rows++ }) {
							t.Error("the tool has no transaction")
						}
						return "noted", nil
					})
				scenario := ordering(note, &shop{})
				scenario.Check = func(t testing.TB, r *turnkeepertest.Result) {
					if rows != 1 || r.Turns[0].State != turnkeeper.TurnSucceeded {
						t.Errorf("noted %d times, and the turn %s", rows, r.Turns[0].State)
					}
				}
				return scenario
			})
		})
	}
}

// TestLostAnswersLeaveNoDoubt checks that a lost answer to a commit leaves no call
// unknown.
func TestLostAnswersLeaveNoDoubt(t *testing.T) {
	turnkeepertest.LoseAnswersEverywhere(t, func(*testing.T) turnkeepertest.Scenario {
		s := &shop{}
		scenario := ordering(s.order(turnkeeper.EffectOnce, forgotten), s)
		scenario.Check = func(t testing.TB, r *turnkeepertest.Result) {
			if turn := r.Turns[0]; turn.State != turnkeeper.TurnSucceeded || turn.Dispatches != 1 ||
				s.Count("order of tea") != 1 {
				t.Errorf("the turn %s after %d dispatches, with %d orders", turn.State, turn.Dispatches,
					s.Count("order of tea"))
			}
		}
		return scenario
	})
}

// detached makes a tool's calls detached.
type detached struct{ tools.Tool }

func (d detached) Spec() tools.Spec {
	spec := d.Tool.Spec()
	spec.Detached, spec.Timeout = true, time.Hour
	return spec
}
