package agentturn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"turnkeeper/agentturn/prompt"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools/builtin"
)

// team returns a turn of an agent that may spawn a scout and a critic.
func team(t *testing.T, steps ...inferencetest.Step) *bench {
	b := newBench(t, steps...)
	b.tools = append(b.tools, builtin.NewReaders()...)
	b.def.SubAgents = []string{"scout", "critic"}
	return b
}

func charges(agent, task string) string {
	return fmt.Sprintf(`spawn_agent {"agent":%q,"task":%q}`, agent, task)
}

func good(reply string) turnlog.Outcome {
	return turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone, Reply: reply}
}

func keyOf(ordinal int) turnkeeper.CallKey { return turnkeeper.CallKey{Round: 1, Ordinal: ordinal} }

func TestASubAgentIsSpawnedAndWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "find it")), says("It is here."))
		began := time.Now()
		b.waits()
		if stood := time.Since(began); stood < time.Second || stood > 2*time.Second {
			t.Errorf("the turn stood still for %s", stood)
		}
		want := turnlog.Spawn{
			Message: turnID + 1, Agent: "scout", Task: "find it", Root: 7, Agents: []string{"tester", "scout"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 32}, Within: 24 * time.Hour,
		}
		place := traceparent.Of(b.store.turn(), "")
		// traces are not recorded here
		want.TraceParent = place.Below(place.SpanOf(traceparent.CallSpan(7, keyOf(1))), false)
		if diff := cmp.Diff([]turnlog.Spawn{want}, b.store.spawned()); diff != "" {
			t.Error(diff)
		}
		b.store.reply(farKey, good("under the stone"))
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded || o.Reply != "It is here." {
			t.Errorf("the turn ended %s with %q", o.State, o.Reply)
		}
		id := string(b.store.calls()[0].OutputID)
		got := results(b.requests()[1])
		if want := "[agent scout, succeeded, output " + id + "]\n\nunder the stone"; len(got) != 1 ||
			got[0] != want || id == "" {
			t.Errorf("the model is shown %q", got)
		}
		if o := b.store.outputs(); len(o) != 1 || o[0].Text != "under the stone" || string(o[0].ID) != id {
			t.Errorf("outputs %+v", o)
		}
	})
}

// TestAQuickReply checks that the turn takes a quick reply without waiting as a row.
func TestAQuickReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "find it")), says("It is here."))
		time.AfterFunc(700*time.Millisecond, func() { b.store.reply(farKey, good("at once")) })
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
			t.Errorf("the turn ended %s", o.State)
		}
		if n := b.store.turn().Dispatches; n != 1 {
			t.Errorf("%d dispatches", n)
		}
	})
}

// TestThreeSubAgentsAtOnce checks that sub-agents run concurrently, and that the model is
// asked when all have replied.
func TestThreeSubAgentsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "a"), charges("scout", "b"), "local", charges("critic", "c")),
			says("Done.")).with(read("local"))
		b.waits()
		if len(b.store.spawned()) != 3 {
			t.Fatalf("spawned %+v", b.store.spawned())
		}
		for i, ordinal := range []int{4, 1, 2} {
			if n := len(b.requests()); n != 1 {
				t.Fatalf("the model was asked %d times before all had replied", n)
			}
			b.store.reply(keyOf(ordinal), good(fmt.Sprint("reply ", ordinal)))
			if i < 2 {
				b.waits()
			}
		}
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
			t.Errorf("the turn ended %s", o.State)
		}
		got := results(b.requests()[1])
		for i, want := range []string{"reply 1", "reply 2", "local ran", "reply 4"} {
			if !strings.HasSuffix(got[i], want) {
				t.Errorf("result %d is %q", i+1, got[i])
			}
		}
	})
}

func TestASubAgentThatIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(`spawn_agent {"agent":"scout","task":"find it","async":true}`, "local"),
			asks("wait_for_tool_output {}"),
			asksFor("get_tool_output", "g", `{"id":"1","mode":"raw"}`), says("Done.")).with(read("local"))
		b.bounds.MaxRounds = 5
		b.waits()
		call := b.store.calls()[0]
		if !prompt.WentOn(call) || len(b.requests()) != 2 {
			t.Errorf("the call is %+v after %d requests", call, len(b.requests()))
		}
		b.store.reply(farKey, good("under the stone"))
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
			t.Errorf("the turn ended %s", o.State)
		}
		got := results(b.requests()[3])
		if !strings.Contains(got[2], "- spawn_agent (id: "+string(call.OutputID)) || got[3] != "under the stone" {
			t.Errorf("the model is shown %q", got)
		}
	})
}

func TestWhatBecomesOfASubAgent(t *testing.T) {
	replies := func(o turnlog.Outcome) func(*store) { return func(s *store) { s.reply(farKey, o) } }
	for name, c := range map[string]struct {
		ends  func(*store)
		state turnkeeper.CallState
		shown string // suffix of the result
	}{
		"degraded": {replies(turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds,
			Reply: "half of it"}),
			turnkeeper.CallSucceeded,
			"[The agent scout could not finish as asked (max_rounds); what it has:]\n\nhalf of it"},
		"failed for good": {replies(turnlog.Outcome{State: turnkeeper.TurnFailed,
			Reply: "This message could not be answered."}),
			turnkeeper.CallFailed,
			`{"error":"the agent gave no answer","agent":"scout","reason":"failed","detail":"This message could not be answered.","may_still_be_running":false,"message_id":8,"turn_id":8}`},
		"cancelled": {replies(turnlog.Outcome{State: turnkeeper.TurnCancelled, Reply: "This turn was cancelled."}),
			turnkeeper.CallFailed,
			`{"error":"the agent gave no answer","agent":"scout","reason":"cancelled","detail":"This turn was cancelled.","may_still_be_running":false,"message_id":8,"turn_id":8}`},
		"overdue": {func(s *store) { s.overdue(farKey) },
			turnkeeper.CallFailed,
			`{"error":"the agent gave no answer","agent":"scout","reason":"timeout","detail":"it did not reply in time, and is told to stop","may_still_be_running":true,"message_id":8,"turn_id":8}`},
		"purged": {func(s *store) { s.purged = true; s.reply(farKey, good("gone")) },
			turnkeeper.CallSucceeded, "[The agent scout has replied, and its reply was removed since.]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, asks(charges("scout", "find it")), says("Done."))
				b.waits()
				c.ends(b.store)
				if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
					t.Errorf("the turn ended %s", o.State)
				}
				if got := b.states(); got[0] != c.state {
					t.Errorf("the call %s", got[0])
				}
				if got := results(b.requests()[1])[0]; !strings.HasSuffix(got, c.shown) {
					t.Errorf("the model is shown %s", got)
				}
			})
		})
	}
}

func TestATreeThatIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "a"), charges("critic", "b")), says("Done."))
		b.bounds.MaxTreeSubAgents = 1
		b.waits()
		b.store.reply(farKey, good("found"))
		if o := b.run(t.Context()); o.State != turnkeeper.TurnSucceeded {
			t.Errorf("the turn ended %s", o.State)
		}
		const want = `{"error":"the agent was not spawned","agent":"critic","reason":"max_tree_sub_agents","detail":"this tree of agents has spawned as many agents as it may","may_still_be_running":false}`
		if got := results(b.requests()[1])[1]; got != want || b.states()[1] != turnkeeper.CallFailed {
			t.Errorf("the call is %s, and the model is shown %s", b.states()[1], got)
		}
	})
}

// TestALongReply checks that a long reply is cut or becomes a handle, as every result.
func TestALongReply(t *testing.T) {
	for name, c := range map[string]struct {
		chars int
		want  string
	}{
		"cut":    {9000, "[truncated — showing 6000/9000 chars. Call get_continuation"},
		"handle": {90_000, "Use get_tool_output("},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, asks(charges("scout", "find it")), says("Done."))
				b.waits()
				b.store.reply(farKey, good(strings.Repeat("x", c.chars)))
				b.run(t.Context())
				if got := results(b.requests()[1])[0]; !strings.Contains(got, c.want) ||
					strings.Count(got, "x") > 6100 {
					t.Errorf("the model is shown %.200q", got)
				}
			})
		})
	}
}

func TestSpawnsThatAreRefused(t *testing.T) {
	below := func(agents ...string) turnlog.Lineage {
		return turnlog.Lineage{Root: 1, Parent: 2, Call: farKey, Agents: agents, Limits: turnlog.TreeLimits{MaxDepth: 2,
			MaxAgents: 9}}
	}
	for name, c := range map[string]struct {
		lineage turnlog.Lineage
		calls   []string
		fanOut  int
		want    []string // reason of each refusal; empty: it is spawned
	}{
		"the first": {calls: []string{charges("scout", "x")}, want: []string{""}},
		"a grandchild": {lineage: below("boss", "tester"), calls: []string{charges("scout", "x")},
			want: []string{""}},
		"too deep": {lineage: below("boss", "lead", "tester"), calls: []string{charges("scout", "x")},
			want: []string{"max_sub_agent_depth"}},
		"a cycle": {lineage: below("scout", "tester"), calls: []string{charges("scout", "x"),
			charges("critic", "x")}, want: []string{"cycle", ""}},
		"one too many": {calls: []string{charges("scout", "x"), charges("critic", "y"), charges("scout", "z")},
			fanOut: 2, want: []string{"", "", "max_sub_agents"}},
		"nothing to do":     {calls: []string{charges("scout", " \n")}, want: []string{"task_empty"}},
		"not one of its":    {calls: []string{charges("stranger", "x")}, want: []string{"invalid arguments"}},
		"without arguments": {calls: []string{"spawn_agent {}"}, want: []string{"invalid arguments"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, asks(c.calls...), says("Done."))
				b.store.lineage = c.lineage
				if c.fanOut > 0 {
					b.bounds.MaxSubAgents = c.fanOut
				}
				b.run(t.Context())
				spawned := 0
				for i, call := range b.store.calls() {
					if c.want[i] == "" {
						spawned++
						if call.State != turnkeeper.CallRunning {
							t.Errorf("call %d is %s: %s", i+1, call.State, call.Shown)
						}
						continue
					}
					if call.State != turnkeeper.CallDenied || !strings.Contains(call.Shown, c.want[i]) {
						t.Errorf("call %d is %s: %s", i+1, call.State, call.Shown)
					}
				}
				if len(b.store.spawned()) != spawned {
					t.Errorf("spawned %+v", b.store.spawned())
				}
				for _, s := range b.store.spawned() {
					if want := append(slices.Clone(c.lineage.Within("tester")), s.Agent); !slices.Equal(s.Agents,
						want) || c.lineage.Root != 0 && s.Root != c.lineage.Root {
						t.Errorf("spawned %+v", s)
					}
				}
			})
		})
	}
}

// descriptions are those of the agents of a process.
type descriptions map[string]string

func (d descriptions) Describe(name string) (text string, known bool) {
	text, known = d[name]
	return text, known
}

// TestWhoIsOffered checks that spawn_agent is declared only if the agent can spawn, and
// with the agents that it may spawn, each with the description that the process has of it.
func TestWhoIsOffered(t *testing.T) {
	for name, c := range map[string]struct {
		lineage turnlog.Lineage
		change  func(*bench)
		agents  agentturn.Agents
		want    []string
		listed  string // empty: the names alone
	}{
		"all": {want: []string{"scout", "critic"}},
		"all are described": {agents: descriptions{"scout": "Finds things.", "critic": "Reads them.", "boss": "Rules."},
			want: []string{"scout", "critic"}, listed: "\n- scout: Finds things.\n- critic: Reads them."},
		"one has no description": {agents: descriptions{"scout": "", "critic": "Reads them."},
			want: []string{"scout", "critic"}, listed: "\n- scout\n- critic: Reads them."},
		"one is not here": {agents: descriptions{"scout": "Finds things."},
			want: []string{"scout", "critic"}, listed: "\n- scout: Finds things.\n- critic"},
		"not an ancestor": {lineage: turnlog.Lineage{Root: 1, Parent: 1, Agents: []string{"critic", "tester"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 3}}, want: []string{"scout"}},
		"at the bottom": {lineage: turnlog.Lineage{Root: 1, Parent: 1, Agents: []string{"boss", "tester"},
			Limits: turnlog.TreeLimits{MaxDepth: 1, MaxAgents: 3}}},
		"none may be":       {change: func(b *bench) { b.bounds.MaxSubAgents = 0 }},
		"no tree may be":    {change: func(b *bench) { b.bounds.MaxTreeSubAgents = 0 }},
		"no agents to list": {change: func(b *bench) { b.def.SubAgents = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, says("Done."))
				b.store.lineage = c.lineage
				b.config = func(cfg *agentturn.Config) { cfg.Agents = c.agents }
				if c.change != nil {
					c.change(b)
				}
				spawns := slices.Clone(b.def.SubAgents)
				b.run(t.Context())
				if !slices.Equal(b.def.SubAgents, spawns) { // other turns share it
					t.Errorf("the definition now lists %v", b.def.SubAgents)
				}
				var got []string
				for _, tool := range b.requests()[0].Tools {
					if tool.Name != turnkeeper.ToolSpawnAgent {
						continue
					}
					var schema struct {
						Properties struct{ Agent struct{ Enum []string } }
					}
					if err := json.Unmarshal(tool.Parameters, &schema); err != nil {
						t.Fatal(err)
					}
					got = schema.Properties.Agent.Enum
					listed := c.listed
					if listed == "" {
						listed = "\n- " + strings.Join(c.want, "\n- ")
					}
					if _, list, _ := strings.Cut(tool.Description, " Agents:"); list != listed {
						t.Errorf("the description lists %q, want %q", list, listed)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("offered are %v", got)
				}
			})
		})
	}
}

// TestATurnThatEndsWithoutTheReply checks that a turn that ends while its sub-agent works
// cancels the call.
func TestATurnThatEndsWithoutTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "find it")))
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(500*time.Millisecond, func() { stop(agentturn.ErrCancelled) })
		if o := b.run(ctx); o.State != turnkeeper.TurnCancelled {
			t.Errorf("the turn ended %s", o.State)
		}
		if call := b.store.calls()[0]; call.State != turnkeeper.CallCancelled ||
			call.Shown != agentturn.ShownReplyUnawaited {
			t.Errorf("the call is %+v", call)
		}
	})
}

// TestRepliesAreAwaitedBeforeTheCap checks that the bound on tool calls ends the turn
// only after the running sub-agents have replied.
func TestRepliesAreAwaitedBeforeTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "a"), charges("critic", "b")), says("The scout found it."))
		b.bounds.MaxToolCalls = 1
		b.waits()
		b.store.reply(farKey, good("found"))
		if o := b.run(t.Context()); o.StopReason != turnkeeper.StopMaxToolCalls || o.Reply != "The scout found it." {
			t.Errorf("%+v", o)
		}
	})
}

func TestEventsOfASubAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := team(t, asks(charges("scout", "find it")), says("Done."))
		b.store.lineage = turnlog.Lineage{
			Root: 1, Parent: 2, Call: turnkeeper.CallKey{Round: 3, Ordinal: 4}, Agents: []string{"boss", "tester"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 3},
		}
		b.waits()
		b.store.reply(farKey, good("here"))
		b.run(t.Context())
		var told []string
		for _, e := range b.store.events() {
			switch e.Type {
			case turnkeeper.EventTurnStart:
				var data turnevents.TurnStartData
				b.decode(e.Data, &data)
				told = append(told, fmt.Sprintf("%+v", *data.Parent))
			case turnkeeper.EventToolStarted, turnkeeper.EventToolResult:
				var data turnevents.ToolData
				b.decode(e.Data, &data)
				told = append(told, fmt.Sprintf("%s %+v", e.Type, *data.SubAgent))
			case turnkeeper.EventRoundStop:
				told = append(told, fmt.Sprint(e.Type, " ", e.Round))
			}
		}
		want := []string{
			"{Turn:2 Call:round-3-tool-4 Root:1}",
			"tool_started {Agent:scout Conversation:turn-7-round-1-tool-1 Message:8 Turn:0 Outcome:}",
			"tool_result {Agent:scout Conversation:turn-7-round-1-tool-1 Message:8 Turn:8 Outcome:succeeded}",
			"round_stop 1", "round_stop 2",
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}

// treeBudget records who asks it.
type treeBudget struct{ asked []agentturn.Spender }

func (b *treeBudget) Reserve(_ context.Context, who agentturn.Spender,
	_ turnkeeper.Usage) (agentturn.Reservation, error) {
	b.asked = append(b.asked, who)
	if len(b.asked) > 1 {
		return agentturn.Reservation{Blocked: true, Scope: "tree", Reason: "used up"}, nil
	}
	return agentturn.Reservation{}, nil
}

func (b *treeBudget) Settle(context.Context, agentturn.Reservation, turnkeeper.Usage) error {
	return nil
}

func TestTheBudgetOfATree(t *testing.T) {
	for name, c := range map[string]struct {
		lineage turnlog.Lineage
		root    turnkeeper.TurnID
		tokens  int64
	}{
		"the root": {root: 7, tokens: 500},
		"below": {lineage: turnlog.Lineage{Root: 1, Parent: 2, Agents: []string{"boss", "tester"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 3, Tokens: 900}}, root: 1, tokens: 900},
		"below one without": {lineage: turnlog.Lineage{Root: 1, Parent: 2, Agents: []string{"boss", "tester"},
			Limits: turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := team(t, asks("local"), says("Done.")).with(read("local"))
				b.store.lineage = c.lineage
				b.def.Budget.TreeTokens = 500
				budget := &treeBudget{}
				b.budget = budget
				if o := b.run(t.Context()); o.StopReason != turnkeeper.StopBudget ||
					o.State != turnkeeper.TurnDegraded {
					t.Errorf("%+v", o)
				}
				if got := budget.asked[0]; got.Root != c.root || got.Limits.TreeTokens != c.tokens {
					t.Errorf("asked for %+v", got)
				}
			})
		})
	}
}

// A manager is a turn with sub-agents that it waits for and sub-agents in the background.
// Its model decides by the request alone, and its sub-agents reply between two
// dispatches.
type manager struct{ *bench }

func newManager(t *testing.T) *manager {
	m := &manager{team(t)}
	m.bounds.MaxRounds = 6
	m.with(once("send"))
	m.models["main/model"] = m
	return m
}

func (m *manager) Generate(_ context.Context, r inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	if err := strict(r); err != nil {
		m.t.Error(err)
	}
	switch len(results(r)) {
	case 0:
		return asking("", charges("scout", "a"), charges("critic", "b"),
			`spawn_agent {"agent":"scout","task":"c","async":true}`, "send"), nil
	case 4:
		return asking("", "wait_for_tool_output {}"), nil
	default:
		return inference.Response{Text: "All is known.", FinishReason: "stop"}, nil
	}
}

// answer lets the first sub-agent without a reply reply, and reports whether there was
// one.
func (m *manager) answer() bool {
	for _, call := range m.store.calls() {
		if child, ok := m.store.child(call.Key); ok && child.ClosedAt.IsZero() {
			m.store.reply(call.Key, good("reply to "+call.Key.String()))
			return true
		}
	}
	return false
}

func (m *manager) sound(where string) {
	m.t.Helper()
	for _, violation := range m.store.violations() {
		m.t.Errorf("%s: journal: %s", where, violation)
	}
	tasks := map[string]int{}
	for _, s := range m.store.spawned() {
		tasks[s.Task]++
	}
	if !cmp.Equal(tasks, map[string]int{"a": 1, "b": 1, "c": 1}) {
		m.t.Errorf("%s: spawned %v", where, tasks)
	}
	if len(m.store.outcomes()) == 0 || !m.store.turn().State.Terminal() {
		m.t.Errorf("%s: the turn is %s", where, m.store.turn().State)
		return
	}
	for _, call := range m.store.calls()[:3] {
		if call.State != turnkeeper.CallSucceeded || call.Preview != "reply to "+call.Key.String() {
			m.t.Errorf("%s: call %s is %s: %s", where, call.Key, call.State, call.Preview)
		}
	}
}

// TestKilledAnywhereWithSubAgents kills or shuts down a worker at every point of a turn
// with sub-agents, and checks that other workers continue it, spawn each sub-agent once
// and count each reply once.
func TestKilledAnywhereWithSubAgents(t *testing.T) {
	for name, harm := range map[string]func(cancel context.CancelCauseFunc){
		"killed":    func(context.CancelCauseFunc) { runtime.Goexit() },
		"shut down": func(cancel context.CancelCauseFunc) { cancel(agentturn.ErrShutdown) },
	} {
		t.Run(name, func(t *testing.T) {
			points := 0
			for hit := true; hit; points++ {
				synctest.Test(t, func(t *testing.T) {
					m := newManager(t)
					hit = false
					passed := 0
					m.fault = hook(func(string) {})
					for range 20 {
						if m.store.turn().State.Terminal() {
							break
						}
						ctx, cancel := context.WithCancelCause(t.Context())
						m.fault = hook(func(string) {
							if passed++; passed == points+1 {
								hit = true
								harm(cancel)
							}
						})
						done := make(chan struct{})
						go func() {
							defer close(done)
							if _, err := m.dispatch(ctx); err != nil && !errors.Is(err, turnkeeper.ErrFenced) {
								t.Errorf("%s at point %d: %v", name, points+1, err)
							}
						}()
						<-done
						cancel(nil)
						m.answer()
					}
					m.sound(fmt.Sprint(name, " at point ", points+1))
				})
			}
			if points < 40 {
				t.Errorf("only %d points were reached", points)
			}
		})
	}
}
