package turnctl

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/cli/clitest"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

// A fact is a change of an ordinary turn.
type fact struct {
	name   string
	change func(*explainer)
}

// endedTurn returns an ordinary turn that has ended, with what an explanation reads beside it.
func endedTurn() *explainer {
	x := &explainer{TurnView: answeredTurn(), Clock: utcNow}
	x.workers = []presence.Heartbeat{{WorkerID: "host-1", Slots: 10, TakeoverAfter: time.Minute, StartedAt: began}}
	x.Turn.Trigger, x.Message.Trigger = turnkeeper.TriggerMessage, turnkeeper.TriggerMessage
	x.Message.Agent, x.Message.Conversation, x.Message.State, x.Message.TurnID = "watcher", "main",
		turnkeeper.MessageSucceeded, 42
	x.Message.Body = "What is new?"
	x.Turn.GrantedAt, x.Turn.DueAt, x.Turn.Dispatches, x.Turn.ExecutedCalls = after(9*time.Minute), time.Time{}, 1, 1
	x.Turn.InferenceRounds, x.Turn.ChargedRounds, x.Turn.Usage = 2, 2, turnkeeper.Usage{InputTokens: 1200,
		OutputTokens: 34}
	x.Rounds = append([]turnkeeper.Round{{
		Number: 1, Charged: true, Provider: "demo", Model: "script", Attempts: 1, FinishReason: "tool_calls",
		Text: "I look.", Latency: time.Second,
		Usage: turnkeeper.Usage{InputTokens: 500, OutputTokens: 20},
		Recipe: &turnkeeper.Recipe{
			Window: turnkeeper.Window{Size: 32768, Answer: 4096, Safety: 1638, System: 120, Tools: 800, History: 2500,
				Turn: 300, Notice: 7, Factor: 1},
		},
		Calls: []turnkeeper.ToolCall{{
			Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, Name: "look", Arguments: `{"at":"all"}`,
			Effect: turnkeeper.EffectOnce,
			State:  turnkeeper.CallSucceeded, Starts: 1, Shown: "Nothing.", Preview: "Nothing.",
			Duration: 20 * time.Millisecond,
		}},
	}}, x.Rounds...)
	x.Rounds[1].Number = 2
	x.Dispatches = []turnkeeper.Dispatch{{
		Token: 3, GrantID: "g", TurnID: 42, JobID: 77, WorkerID: "host-1", GrantedAt: after(9 * time.Minute),
		Until:   after(13 * time.Minute),
		EndedAt: x.Turn.EndedAt, Outcome: "finished",
	}}
	return x
}

// runningTurn returns an ordinary turn that runs.
func runningTurn() *explainer {
	x := endedTurn()
	x.Turn.State, x.Turn.StopReason, x.Turn.EndedAt, x.Turn.WorkerID = turnkeeper.TurnRunning, "", time.Time{}, "host-1"
	x.Turn.LeaseUntil = after(13 * time.Minute)
	x.Message.State = turnkeeper.MessageRunning
	x.Reply, x.Rounds = nil, x.Rounds[:1]
	x.Dispatches[0].EndedAt, x.Dispatches[0].Outcome = time.Time{}, ""
	return x
}

func call(x *explainer) *turnkeeper.ToolCall { return &x.Rounds[0].Calls[0] }

func failed(n int) (all []turnlog.FailedAttempt) {
	for i := range n {
		all = append(all, turnlog.FailedAttempt{
			Round: 1 + i/4, Attempt: 1 + i, Provider: "test", Model: fmt.Sprintf("model-%d", i), Class: "transport",
			Error:   fmt.Sprintf("error %d", i),
			Latency: time.Duration(i) * time.Second, Usage: turnkeeper.Usage{InputTokens: int64(i)},
		})
	}
	return all
}

// lines returns a text of n lines.
func lines(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("line %d", i+1))
	}
	return strings.Join(all, "\n")
}

func endedFacts() (all []fact) {
	add := func(name string, change func(*explainer)) { all = append(all, fact{name, change}) }
	for _, reason := range []turnkeeper.StopReason{
		turnkeeper.StopMaxRounds, turnkeeper.StopMaxDuration, turnkeeper.StopMaxToolCalls,
		turnkeeper.StopInferenceError, turnkeeper.StopBudget,
		turnkeeper.StopCancelled, turnkeeper.StopWorkerLost, turnkeeper.StopFinished, turnkeeper.StopWithheld, "later",
	} {
		for _, state := range []turnkeeper.TurnState{turnkeeper.TurnDegraded, turnkeeper.TurnFailed} {
			add(fmt.Sprintf("%s by %q", state, reason), func(x *explainer) {
				x.Turn.State, x.Turn.StopReason = state, reason
				x.bounds = &turnkeeper.Bounds{MaxRounds: 5, MaxDuration: 7 * time.Minute, MaxToolCalls: 9}
			})
		}
	}
	add("a limit that is not known", func(x *explainer) { x.Turn.StopReason = turnkeeper.StopMaxRounds })
	add("degraded before a tool ran", func(x *explainer) {
		x.Turn.State, x.Turn.StopReason, x.Turn.ExecutedCalls = turnkeeper.TurnDegraded,
			turnkeeper.StopInferenceError, 0
	})
	add("finished as asked", func(x *explainer) { x.Turn.StopReason = turnkeeper.StopFinished })
	for losses := range 3 {
		add(fmt.Sprintf("%d workers lost", losses), func(x *explainer) {
			x.Turn.State, x.Turn.StopReason, x.Turn.Losses, x.Turn.ErrorClass = turnkeeper.TurnDegraded,
				turnkeeper.StopWorkerLost, losses, "worker_lost"
		})
	}
	for _, class := range []string{"auth", "bad_output"} {
		add("failed by the class "+class, func(x *explainer) {
			x.Turn.State, x.Turn.StopReason, x.Turn.ErrorClass, x.Turn.Error = turnkeeper.TurnFailed,
				turnkeeper.StopInferenceError, class, "no\nuse\x1b[2J."
		})
	}
	return slices.Concat(all, messageFacts(), roundFacts(), callFacts(), treeFacts())
}

// messageFacts are facts about the message, the reply and the end.
func messageFacts() (all []fact) {
	add := func(name string, change func(*explainer)) { all = append(all, fact{name, change}) }
	state := func(x *explainer, turn turnkeeper.TurnState, message turnkeeper.MessageState) {
		x.Turn.State, x.Message.State = turn, message
	}
	add("a user", func(x *explainer) { x.Turn.User, x.Message.User = "anna", "ann\x1ba" })
	add("a third attempt", func(x *explainer) { x.Turn.Attempt = 3 })
	add("a long body", func(x *explainer) { x.Message.Body = strings.Repeat("word ", 80) + "\nend" })
	add("a schedule", func(x *explainer) {
		x.Turn.Trigger, x.Message.Trigger, x.Message.Schedule, x.Message.Slot = turnkeeper.TriggerSchedule,
			turnkeeper.TriggerSchedule, "nightly", after(time.Minute)
	})
	for _, end := range []turnkeeper.TurnState{turnkeeper.TurnSucceeded, turnkeeper.TurnFailed} {
		add(fmt.Sprintf("a schedule, %s without a reply", end), func(x *explainer) {
			x.Turn.State, x.Turn.Trigger, x.Reply = end, turnkeeper.TriggerSchedule, nil
		})
	}
	add("no reply", func(x *explainer) { x.Reply = nil })
	add("a silent reply", func(x *explainer) { x.Reply.Body = "" })
	add("a reply of another text", func(x *explainer) { x.Reply.Body = "Other.\n\tMore.\n" })
	add("a labelled reply", func(x *explainer) { x.Reply.Labels = []string{"private", "untrusted"} })
	add("thoughts", func(x *explainer) { x.Turn.InnerDialogue = "Hm.\nSo." })
	add("retried as a message", func(x *explainer) { x.as = 88 })
	add("a retry", func(x *explainer) { x.of = 77 })
	add("retried in a turn", func(x *explainer) { x.Message.TurnID = 43 })
	add("failed, and waiting", func(x *explainer) {
		x.Reply = nil
		state(x, turnkeeper.TurnFailed,
			turnkeeper.MessageWaiting)
	})
	add("failed, and waiting for models", func(x *explainer) {
		state(x, turnkeeper.TurnFailed, turnkeeper.MessageWaiting)
		x.Message.WaitsFor = []string{"test/one", "test/two"}
	})
	add("failed for good", func(x *explainer) { state(x, turnkeeper.TurnFailed, turnkeeper.MessageFailed) })
	add("cancelled before a grant", func(x *explainer) {
		state(x, turnkeeper.TurnCancelled, turnkeeper.MessageCancelled)
		x.Turn.Dispatches, x.Dispatches = 0, nil
	})
	add("cancelled after an effect", func(x *explainer) {
		state(x, turnkeeper.TurnCancelled,
			turnkeeper.MessageCancelled)
	})
	add("cancelled without an effect", func(x *explainer) {
		state(x, turnkeeper.TurnCancelled, turnkeeper.MessageCancelled)
		call(x).Effect = turnkeeper.EffectNone
	})
	for _, r := range []operate.RequestedEnd{
		{How: turnlog.EndCancel, Turn: 42, AskedAt: after(9 * time.Minute)}, {How: turnlog.EndFinish, Turn: 40,
			Reason: "enough...", AskedAt: after(9 * time.Minute)},
		{How: turnlog.EndCancel, Turn: 40, Reason: "no need.", AskedAt: after(9 * time.Minute)},
	} {
		add(fmt.Sprintf("asked to %s, with turn %d", r.How, r.Turn), func(x *explainer) { x.End = &r })
		add(fmt.Sprintf("ended by a %s, with turn %d", r.How, r.Turn), func(x *explainer) {
			x.End, x.Turn.State, x.Turn.StopReason = &r, turnkeeper.TurnCancelled, turnkeeper.StopFinished
		})
	}
	add("tokens of each kind", func(x *explainer) {
		x.Turn.Usage = turnkeeper.Usage{InputTokens: 1, OutputTokens: 2, CachedTokens: 3000, CacheWriteTokens: 500,
			ReasoningTokens: 4000, Estimated: true}
	})
	add("no tokens", func(x *explainer) { x.Turn.Usage = turnkeeper.Usage{} })
	add("a trace",
		func(x *explainer) { x.Message.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" })
	add("deleted rows", func(x *explainer) {
		x.Turn.EventsExpiredAt, x.Turn.LeasesExpiredAt, x.Dispatches = after(time.Minute), after(2*time.Minute), nil
		x.Outputs = []turnkeeper.Output{{ID: "out", ExpiredAt: after(3 * time.Minute)}}
	})
	add("a database that was away", func(x *explainer) {
		x.Refused = []turnlog.RefusedWrite{{For: 90 * time.Second, EndedAt: after(9 * time.Minute)},
			{For: 3 * time.Second, SQLState: "53100", EndedAt: after(8 * time.Minute)}}
	})
	add("an expired ask", func(x *explainer) {
		ask := operate.Ask{}
		ask.ID, ask.Kind, ask.Tool, ask.ClosedAt = 5, "approve", "pay", after(9*time.Minute)
		x.expired = []operate.Ask{ask}
	})
	return all
}

// roundFacts are facts about model calls, requests and dispatches.
func roundFacts() (all []fact) {
	add := func(name string, change func(*explainer)) { all = append(all, fact{name, change}) }
	recipe := func(name string, change func(*turnkeeper.Recipe)) {
		add("request: "+name, func(x *explainer) { change(x.Rounds[0].Recipe) })
	}
	add("no rounds", func(x *explainer) { x.Rounds, x.Turn.InferenceRounds = nil, 0 })
	add("no rounds, and failed calls", func(x *explainer) { x.Rounds, x.Failed = nil, failed(2) })
	for _, n := range []int{1, 5, 6, 7} {
		add(fmt.Sprintf("%d failed model calls", n), func(x *explainer) { x.Failed = failed(n) })
	}
	add("a failed call of no model", func(x *explainer) { x.Failed = failed(1); x.Failed[0].Model = "" })
	for _, n := range []int{2, 3, 4, 5} {
		add(fmt.Sprintf("%d lines of an error and a stream", n), func(x *explainer) {
			x.Failed = failed(1)
			x.Failed[0].Error, x.Failed[0].Text = lines(n), " "+lines(n)+"\n"
		})
		add(fmt.Sprintf("%d lines of an answer and a result", n), func(x *explainer) {
			x.Rounds[0].Text, call(x).Preview = lines(n), lines(n)
		})
	}
	add("one round", func(x *explainer) { x.Rounds, x.Turn.InferenceRounds = x.Rounds[1:], 1 })
	add("repeated calls of two models", func(x *explainer) {
		x.Rounds[0].Attempts, x.Rounds[1].Attempts, x.Rounds[1].Model, x.Rounds[1].Latency = 2, 3, "other",
			3*time.Second
	})
	add("no attempt", func(x *explainer) { x.Rounds[0].Attempts = 0 })
	add("a round that is not charged", func(x *explainer) { x.Rounds[0].Charged, x.Rounds[0].FinishReason = false, "" })
	add("no request", func(x *explainer) { x.Rounds[0].Recipe = nil })
	epoch := func(name string, change func(*turnkeeper.Epoch)) {
		recipe(name, func(r *turnkeeper.Recipe) {
			if r.Start == nil {
				r.Start = &turnkeeper.Epoch{}
			}
			change(r.Start)
		})
	}
	recipe("of an epoch that began before", func(r *turnkeeper.Recipe) { r.Start = nil })
	for _, reason := range []turnkeeper.EpochReason{"", prompt.EpochRoom, prompt.EpochSummary,
		prompt.EpochModel, prompt.EpochRefused, prompt.EpochHistory, prompt.EpochPurged} {
		epoch(fmt.Sprintf("epoch %q", reason), func(e *turnkeeper.Epoch) { e.Reason = reason })
	}
	epoch("of a schedule", func(e *turnkeeper.Epoch) { e.Reason, e.Chain = prompt.EpochHistory, "hourly" })
	epoch("of a schedule, in its turn", func(e *turnkeeper.Epoch) { e.Reason, e.Chain = prompt.EpochModel, "hourly" })
	epoch("dropped results", func(e *turnkeeper.Epoch) { e.Dropped = "1-3" })
	epoch("lean", func(e *turnkeeper.Epoch) { e.LeanPast = 38 })
	epoch("omitted", func(e *turnkeeper.Epoch) { e.Omitted = 1 })
	epoch("summary", func(e *turnkeeper.Epoch) { e.Summary = 38 })
	epoch("compacted", func(e *turnkeeper.Epoch) { e.Room = 1 })
	recipe("cut", func(r *turnkeeper.Recipe) { r.Cut = true })
	for _, d := range []*prompt.Divergence{nil,
		{Kind: prompt.DifferentTool, Number: 2, Name: "look", Byte: 1, After: "it"},
		{Kind: prompt.DifferentTool, Number: 2, Name: "look", Byte: 1, Before: "it"},
		{Kind: prompt.DifferentSystem, Number: 1, Name: "system", Byte: 5, Before: "You \x1btest.",
			After: "You \n\tdo."},
		{Kind: prompt.DifferentMessage, Number: 3, Name: "user", Byte: 2, Before: "it", After: "is"},
	} {
		add(fmt.Sprintf("request: compared %+v", d), func(x *explainer) {
			c := comparison{Comparison: &prompt.Comparison{Turn: 41, Round: 2, Differs: d}}
			if d != nil {
				c.before, c.after = d.Before, d.After
			}
			x.differs = map[int]comparison{1: c}
		})
	}
	add("request: not compared", func(x *explainer) {
		x.differs = map[int]comparison{1: {unknown: errors.New("a part of the request is not stored")}}
	})
	epoch("reasoned", func(e *turnkeeper.Epoch) { e.Reasoned = true })
	epoch("bare", func(e *turnkeeper.Epoch) { e.BareTurn = 1 })
	recipe("corrected", func(r *turnkeeper.Recipe) { r.Window.Factor = 1.005 })
	recipe("reported", func(r *turnkeeper.Recipe) { r.Window.Reported = 1 })
	add("no dispatches", func(x *explainer) { x.Dispatches = nil })
	for _, outcome := range []string{"finished", "lost", "handed_back", "deferred", "waiting", "unclaimed"} {
		for _, worker := range []turnkeeper.WorkerID{"host-2\x1b", ""} {
			add(fmt.Sprintf("a dispatch %s by %q", outcome, worker), func(x *explainer) {
				d := x.Dispatches[0]
				d.Outcome, d.WorkerID, d.Token = outcome, worker, 2
				x.Dispatches = append([]turnkeeper.Dispatch{d}, x.Dispatches...)
			})
		}
	}
	add("a dispatch of a clock that was set back", func(x *explainer) { x.Dispatches[0].EndedAt = began })
	return all
}

// callFacts are facts about tool calls.
func callFacts() (all []fact) {
	add := func(name string, change func(*explainer)) { all = append(all, fact{name, change}) }
	tool := func(name string, change func(*turnkeeper.ToolCall)) {
		add("call: "+name, func(x *explainer) { change(call(x)) })
	}
	tool("detached", func(c *turnkeeper.ToolCall) { c.Awaited = true })
	tool("sub-agent", func(c *turnkeeper.ToolCall) { c.Awaited, c.Name = true, turnkeeper.ToolSpawnAgent })
	tool("started again", func(c *turnkeeper.ToolCall) { c.Starts = 2 })
	tool("of no time", func(c *turnkeeper.ToolCall) { c.Duration = 0 })
	tool("with other arguments", func(c *turnkeeper.ToolCall) { c.RunArgs = `{"at":"one"}` })
	tool("with long arguments", func(c *turnkeeper.ToolCall) {
		c.Arguments, c.RunArgs = strings.Repeat("x", 200), strings.Repeat("y", 200)
	})
	tool("with model calls", func(c *turnkeeper.ToolCall) {
		c.Usage = turnkeeper.Usage{InputTokens: 3000,
			OutputTokens: 4}
	})
	tool("with a late result", func(c *turnkeeper.ToolCall) {
		c.LateResult = "done\x1b[2J " + strings.Repeat("late ",
			60)
	})
	tool("with an output that is not there", func(c *turnkeeper.ToolCall) { c.OutputID = "out" })
	output := turnkeeper.Output{ID: "out", SizeBytes: 5000, MediaType: "text/html", Tokens: 1250, Retrieved: 1}
	other := turnkeeper.Output{ID: "other", SizeBytes: 1}
	expired := output
	expired.ExpiredAt = after(time.Minute)
	for name, o := range map[string]turnkeeper.Output{"an output": output, "an expired output": expired} {
		add("call: with "+name, func(x *explainer) {
			call(x).OutputID, x.Outputs = "out", []turnkeeper.Output{other,
				o}
		})
	}
	tool("in the background", func(c *turnkeeper.ToolCall) {
		c.OutputID, c.Shown = "out", "Tool Output ID: out\nTool: look\nStatus: running"
	})
	add("no calls", func(x *explainer) { x.Rounds[0].Calls = nil })
	add("calls of two tools", func(x *explainer) {
		a, b := *call(x), *call(x)
		a.State, b.Name, b.Duration = turnkeeper.CallFailed, "order\x1b", 0
		x.Rounds[0].Calls = append(x.Rounds[0].Calls, a, b, a)
	})
	slices.SortStableFunc(all, func(a, b fact) int {
		return strings.Compare(a.name,
			b.name)
	}) // the order of a map is random
	return all
}

// treeFacts are facts about sub-agents.
func treeFacts() (all []fact) {
	add := func(name string, change func(*operate.Tree)) {
		all = append(all, fact{"tree: " + name, func(x *explainer) {
			x.Tree = treeTurn().Tree
			change(x.Tree)
		}})
	}
	add("of a root", func(t *operate.Tree) { t.Lineage = turnlog.Lineage{} })
	add("with a budget of tokens", func(t *operate.Tree) { t.Limits.Calls = 0 })
	add("with a budget of calls", func(t *operate.Tree) { t.Limits.Tokens = 0 })
	add("without a budget", func(t *operate.Tree) { t.Limits = turnlog.TreeLimits{} })
	add("with agents that were given up", func(t *operate.Tree) {
		t.SubAgents[1].Failure, t.SubAgents[3].EndedAt, t.Agent = turnlog.SpawnTreeFull, after(time.Minute), ""
	})
	return all
}

func openFacts() (all []fact) {
	add := func(name string, change func(*explainer)) { all = append(all, fact{name, change}) }
	wait := func(w waiting.Wait) func(*explainer) {
		return func(x *explainer) { x.Message.Waits = []waiting.Wait{w} }
	}
	add("queued", func(x *explainer) { x.Turn.State, x.Turn.WorkerID = turnkeeper.TurnQueued, "" })
	add("queued until a time", func(x *explainer) {
		x.Turn.State, x.Turn.DueAt = turnkeeper.TurnQueued,
			after(20*time.Minute)
	})
	add("deferred for a budget", func(x *explainer) {
		x.Turn.State, x.Turn.DueAt = turnkeeper.TurnQueued, after(20*time.Minute)
		x.Message.Waits = []waiting.Wait{{Reason: waiting.BudgetSpent, Turn: 41}, {Reason: waiting.ModelDown, Turn: 42}}
	})
	add("not taken up", func(x *explainer) { x.Turn.WorkerID = "" })
	for state, name := range map[turnkeeper.TurnState]string{
		turnkeeper.TurnQueued: "queued again", turnkeeper.TurnRunning: "running again",
		turnkeeper.TurnWaiting: "waiting again",
	} {
		add(name, func(x *explainer) {
			x.Turn.State, x.Turn.Error, x.Turn.ErrorClass = state, "the worker stopped", "handed_back"
		})
	}
	add("a silent worker", func(x *explainer) {
		x.Turn.Silence = &turnkeeper.Silence{For: time.Minute, Until: after(11 * time.Minute)}
	})
	add("a call under way", func(x *explainer) {
		x.Turn.UnderWay = &turnkeeper.UnderWay{Round: 2, Calls: []turnkeeper.OpenCall{{Name: "order\x1b"}}}
	})
	add("a refused write", func(x *explainer) {
		x.Turn.UnderWay = &turnkeeper.UnderWay{RefusedFor: time.Minute, RefusedTimes: 3, RefusedCode: "53100",
			RefusedWith: "disk\nfull"}
	})
	add("no workers", func(x *explainer) { x.workers = nil })
	add("a silent worker beside it", func(x *explainer) { x.workers[0].Silent = time.Hour })
	for _, how := range []turnlog.WantedEnd{turnlog.EndCancel, turnlog.EndFinish} {
		add("asked to "+string(how), func(x *explainer) {
			x.End = &operate.RequestedEnd{How: how, Turn: 42,
				AskedAt: after(9 * time.Minute)}
		})
	}
	for _, row := range waiting.Rows {
		w := golden.Filled[waiting.Wait](100)
		w.Reason, w.Turn = row.Reason, 42
		add("its wait: "+string(row.Reason), wait(w))
		w.Turn = 7
		add("the wait of a turn before it: "+string(row.Reason), wait(w))
		w.Turn = 42
		add("waiting: "+string(row.Reason), func(x *explainer) {
			x.Turn.State, x.Turn.WorkerID = turnkeeper.TurnWaiting, ""
			x.Message.Waits = []waiting.Wait{w, w}
		})
	}
	least := 5
	add("a level of the agent", func(x *explainer) {
		x.levels = []operate.AgentLevel{
			{Agent: "other", Level: survival.Critical}, {Agent: "watcher", Level: survival.Low,
				Rules: survival.Rules{survival.Low: {MinPriority: &least}}},
		}
	})
	add("a level without rules", func(x *explainer) {
		x.levels = []operate.AgentLevel{{Agent: "watcher",
			Level: survival.Low}}
	})
	add("a call of unknown outcome", func(x *explainer) { call(x).State = turnkeeper.CallUnknown })
	add("no time in models and tools", func(x *explainer) { x.Rounds[0].Latency, call(x).Duration = 0, 0 })
	add("no time in tools", func(x *explainer) { call(x).Duration = 0 })
	add("a clock that was set back", func(x *explainer) { x.Turn.CreatedAt = after(time.Hour) })
	for n := range 3 {
		add(fmt.Sprintf("waiting for %d sub-agents", n), func(x *explainer) {
			x.Turn.State, x.Tree = turnkeeper.TurnWaiting, treeTurn().Tree
			for i := range x.Tree.SubAgents { // only the second and third are its own
				x.Tree.SubAgents[i].EndedAt, x.Tree.SubAgents[i].Dropped = time.Time{}, i > n
			}
		})
	}
	for i, a := range waitingTurn().Awaited {
		add(fmt.Sprintf("awaited call %d", i), func(x *explainer) { x.Awaited = []operate.AwaitedCall{a} })
	}
	slices.SortStableFunc(all, func(a, b fact) int { return strings.Compare(a.name, b.name) })
	return all
}

// page returns the page of a turn, and its explanation.
func pages(x *explainer, full bool) string {
	var out bytes.Buffer
	s := &term.Screen{W: &out, Columns: 100}
	(&turnPage{Screen: s, Clock: x.Clock, full: full, TurnView: x.TurnView}).print()
	s.Line("")
	showExplanation(s, x.explain())
	return out.String()
}

// difference returns the lines that are only in one of two texts.
func difference(before, after string) string {
	var b strings.Builder
	for _, side := range []struct{ sign, here, there string }{{"-", before, after}, {"+", after, before}} {
		there := strings.Split(side.there, "\n")
		for line := range strings.SplitSeq(side.here, "\n") {
			if i := slices.Index(there, line); i >= 0 {
				there = slices.Delete(there, i, i+1)
			} else {
				b.WriteString(side.sign + " " + line + "\n")
			}
		}
	}
	return b.String()
}

// TestWhatEachFactChanges compares what each fact changes on the page of a turn and in its explanation with testdata.
func TestWhatEachFactChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		turn  func() *explainer
		facts []fact
	}{{"ended", endedTurn, endedFacts()}, {"open", runningTurn, openFacts()}} {
		ordinary := pages(c.turn(), false)
		var b strings.Builder
		b.WriteString(ordinary)
		for _, f := range c.facts {
			x := c.turn()
			f.change(x)
			changed := pages(x, false)
			clitest.Harmless(t, changed)
			fmt.Fprintf(&b, "\n== %s\n%s", f.name, difference(ordinary, changed))
			if whole := pages(x, true); whole != changed {
				fmt.Fprintf(&b, "-- in full\n%s", difference(changed, whole))
			}
		}
		golden.File(t, "testdata/facts-"+c.name+".txt", b.String())
	}
}

// TestWhatIsUncertain compares what is said of a call of each state, effect and number of starts with testdata.
func TestWhatIsUncertain(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, state := range []turnkeeper.CallState{
		turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
		turnkeeper.CallFailed, turnkeeper.CallSkipped,
		turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled,
	} {
		for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed,
			turnkeeper.EffectOnce} {
			for i := range 8 {
				x := endedTurn()
				x.Turn.State = turnkeeper.TurnDegraded
				c := call(x)
				c.State, c.Effect, c.Starts, c.Duration = state, effect, i&1, time.Duration(i&2)*time.Second
				x.Turn.Losses = i & 4 / 4
				fmt.Fprintf(&b, "%s, effect %s, %d starts, %s, %d losses: %q, %q\n", state, effect, c.Starts,
					c.Duration, x.Turn.Losses, x.uncertain(), x.next())
			}
		}
	}
	golden.File(t, "testdata/uncertain.txt", b.String())
}
