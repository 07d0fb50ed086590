package turnctl

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/internal/cli/clitest"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/diagnosis"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/modelhealth"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

var (
	began  = time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC)
	utcNow = term.Clock{Now: began.Add(10 * time.Minute), Zone: time.UTC}
)

func after(d time.Duration) time.Time { return began.Add(d) }

// eventfulTurn returns a turn with two workers, a lost call, a cap, and text with control characters.
func eventfulTurn() operate.TurnView {
	return operate.TurnView{
		Turn: turnkeeper.Turn{
			ID: 41, MessageID: 12, Attempt: 2, Agent: "clerk", Conversation: "anna", Lane: "clerk/anna",
			Trigger:        turnkeeper.TriggerMessage,
			DefinitionHash: strings.Repeat("0123456789abcdef", 4), State: turnkeeper.TurnDegraded, Token: 8,
			GrantID: "22222222-2222-2222-2222-222222222222", JobID: 78, WorkerID: "host-2-bbbb",
			Dispatches: 2, Losses: 1,
			CreatedAt: began, GrantedAt: after(20 * time.Second), LeaseUntil: after(260 * time.Second),
			EndedAt:         after(42500 * time.Millisecond),
			InferenceRounds: 3, ChargedRounds: 2, ExecutedCalls: 3,
			Usage: turnkeeper.Usage{InputTokens: 12345, OutputTokens: 678, CachedTokens: 1000, CacheWriteTokens: 300,
				ReasoningTokens: 90, Estimated: true},
			StopReason: turnkeeper.StopMaxRounds, ErrorClass: "worker_lost",
			Error: "worker host-1-aaaa was silent for 15 s", LastSeq: 77,
		},
		Message: waiting.Message{Message: turnkeeper.Message{
			ID: 12, Agent: "clerk", Conversation: "anna", Lane: "clerk/anna", State: turnkeeper.MessageSucceeded,
			Attempts: 2, TurnID: 41,
			Body:       "Please order 3 boxes.\n\tThen say \x1b[31mwhen\x1b[0m they come; 日本語も書けます。 \u009b2J\u202e\x7f",
			Trigger:    turnkeeper.TriggerMessage,
			AcceptedAt: after(-time.Second), DueAt: after(-time.Second), ClosedAt: after(42500 * time.Millisecond),
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		}},
		Reply: &turnkeeper.Reply{
			ID: 5, MessageID: 12, TurnID: 41, Agent: "clerk", Conversation: "anna", Outcome: turnkeeper.TurnDegraded,
			Body: "Tool results: 1 succeeded, 0 failed, 1 unknown.\nclock: 09:30\norder: it may or may not have happened", CreatedAt: after(42500 * time.Millisecond),
			StopReason: turnkeeper.StopMaxRounds,
		},
		Failed: []turnlog.FailedAttempt{
			{
				Round: 1, Attempt: 1, Provider: "openai", Model: "gpt-5-mini", Class: "transport",
				Error: "model openai/gpt-5-mini: transport: the provider sent nothing for 20s\x1b[31m",
				Text:  "Let me che\x1b]0;x\a", Latency: 21 * time.Second, Usage: turnkeeper.Usage{InputTokens: 1200,
					OutputTokens: 4, Estimated: true},
				EndedAt: time.Date(2026, 3, 14, 9, 26, 1, 0, time.UTC),
			},
			{
				Round: 4, Attempt: 1, Provider: "openai", Model: "gpt-5-mini", Class: "interrupted",
				Error: "the turn's time is over",
				Usage: turnkeeper.Usage{InputTokens: 1500, Estimated: true}, EndedAt: time.Date(2026, 3, 14, 9, 27,
					1, 0, time.UTC),
			},
		},
		Rounds: []turnkeeper.Round{
			{
				Number: 1, Charged: true, Provider: "openai", Model: "gpt-5-mini", Attempts: 3,
				Latency:      4200 * time.Millisecond,
				FinishReason: "tool_calls", Usage: turnkeeper.Usage{InputTokens: 4000, OutputTokens: 200},
				Text:    "I look at the clock first, then I order. " + strings.Repeat("This is a long thought. ", 20),
				EndedAt: after(5 * time.Second),
				Recipe: &turnkeeper.Recipe{
					Version: 1, Provider: "openai", Model: "gpt-5-mini", SHA256: strings.Repeat("3", 64),
					Bytes: 16000, Epoch: turnkeeper.EpochID{Turn: 41, Round: 1},
					Start: &turnkeeper.Epoch{Reason: prompt.EpochDefinition, System: strings.Repeat("1", 64),
						Tools: strings.Repeat("2", 64), Past: []turnkeeper.TurnID{38, 39, 40},
						LeanPast: 39, Omitted: 12},
					Window: turnkeeper.Window{Size: 32768, Answer: 4096, Safety: 1638, System: 120, Tools: 800,
						History: 2500, Turn: 300, Factor: 1.125, Reported: 4000},
				},
				Calls: []turnkeeper.ToolCall{
					{
						Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: "call_a", ProviderID: "call_a",
						Name: "clock", Arguments: "{}", Effect: turnkeeper.EffectNone,
						State: turnkeeper.CallSucceeded, Duration: 3 * time.Millisecond, Shown: "09:30",
						Preview: "09:30", EndedAt: after(6 * time.Second),
					},
					{
						Key: turnkeeper.CallKey{Round: 1, Ordinal: 2}, WireID: "call_b", Name: "order",
						Arguments: `{"boxes":3,"note":"` + strings.Repeat("x", 200) + `"}`,
						Effect:    turnkeeper.EffectOnce, State: turnkeeper.CallUnknown, Starts: 1,
						StartedAt: after(6 * time.Second), EndedAt: after(21 * time.Second),
						Shown: "unknown", Preview: "the outcome is unknown: it may or may not have happened",
						LateResult: "ordered as #99\x07",
					},
				},
			},
			{
				Number: 2, Provider: "openai", Model: "gpt-5-mini", Attempts: 1, Latency: 800 * time.Millisecond,
				FinishReason: "tool_calls",
				Usage:        turnkeeper.Usage{InputTokens: 8345, OutputTokens: 478, Estimated: true},
				EndedAt:      after(30 * time.Second),
				Recipe: &turnkeeper.Recipe{
					Version: 1, Provider: "openai", Model: "gpt-5-mini", SHA256: strings.Repeat("4", 64),
					Bytes: 26000, Epoch: turnkeeper.EpochID{Turn: 41, Round: 2},
					Start: &turnkeeper.Epoch{Reason: prompt.EpochRoom, System: strings.Repeat("1", 64),
						Tools: strings.Repeat("2", 64), Omitted: 15, Summary: 39, Dropped: "1-2", Room: 9000},
					Final: true, Notice: "# System Notice\n\nThe last.", Cut: true,
					Window: turnkeeper.Window{Size: 32768, Answer: 4096, Safety: 1638, System: 420, Tools: 800,
						Turn: 7000, Notice: 40, Factor: 1},
				},
				Calls: []turnkeeper.ToolCall{
					{
						Key: turnkeeper.CallKey{Round: 2, Ordinal: 1}, WireID: "call_c", Name: "http_get",
						Arguments: `{"url":"https://example.org/"}`,
						Effect:    turnkeeper.EffectKeyed, State: turnkeeper.CallSucceeded, Starts: 2,
						StartedAt: after(31 * time.Second), EndedAt: after(33 * time.Second),
						Duration: 2100 * time.Millisecond, Shown: "<html>…", Preview: "<html>…", OutputID: "out_7",
						Usage: turnkeeper.Usage{InputTokens: 3000, OutputTokens: 40},
					},
					{
						Key: turnkeeper.CallKey{Round: 2, Ordinal: 2}, WireID: "call_d", Name: "shout", Arguments: "{}",
						Effect: turnkeeper.EffectOnce,
						State:  turnkeeper.CallDenied, Shown: "tool not found: shout", Preview: "tool not found: shout",
						EndedAt: after(31 * time.Second),
					},
				},
			},
		},
		Dispatches: []turnkeeper.Dispatch{
			{
				Lane: "clerk/anna", Token: 7, GrantID: "11111111-1111-1111-1111-111111111111", TurnID: 41, JobID: 77,
				WorkerID:  "host-1-aaaa",
				GrantedAt: began, Until: after(240 * time.Second), EndedAt: after(20 * time.Second), Outcome: "lost",
			},
			{
				Lane: "clerk/anna", Token: 8, GrantID: "22222222-2222-2222-2222-222222222222", TurnID: 41, JobID: 78,
				WorkerID:  "host-2-bbbb",
				GrantedAt: after(20 * time.Second), Until: after(260 * time.Second),
				EndedAt: after(42500 * time.Millisecond), Outcome: "finished",
			},
		},
		Outputs: []turnkeeper.Output{{
			ID: "out_7", TurnID: 41, Call: turnkeeper.CallKey{Round: 2, Ordinal: 1}, MediaType: "text/html",
			SizeBytes: 24591, Chars: 24000,
			Tokens: 7500, SHA256: strings.Repeat("ab", 32), Retrieved: 1,
		}},
	}
}

// openTurn returns an open turn of a schedule, without a reply.
func openTurn() operate.TurnView {
	return operate.TurnView{
		Turn: turnkeeper.Turn{
			ID: 42, MessageID: 13, Attempt: 1, Agent: "watcher", Conversation: "main", Lane: "watcher",
			Trigger:        turnkeeper.TriggerSchedule,
			DefinitionHash: strings.Repeat("f", 64), State: turnkeeper.TurnQueued, CreatedAt: after(9 * time.Minute),
			DueAt:      after(11 * time.Minute),
			ErrorClass: "budget", InnerDialogue: "Nothing changed.",
		},
		Message: waiting.Message{Message: turnkeeper.Message{
			ID: 13, Body: "Scheduled run of watcher.", Trigger: turnkeeper.TriggerSchedule, Schedule: "nightly",
			Slot:       after(-24 * time.Hour),
			AcceptedAt: after(9 * time.Minute),
		}},
	}
}

// waitingTurn returns a turn that waits for its awaited calls.
func waitingTurn() operate.TurnView {
	v := openTurn()
	v.Turn.State, v.Turn.DueAt, v.Turn.ErrorClass, v.Turn.InnerDialogue = turnkeeper.TurnWaiting, time.Time{}, "", ""
	call := turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: 1, Ordinal: 1}, WireID: "call_a", Name: "build", Arguments: `{"what":"all"}`,
		Effect: turnkeeper.EffectKeyed,
		State:  turnkeeper.CallRunning, Starts: 2, Shown: "Tool Output ID: abc", Awaited: true, OutputID: "abc",
	}
	v.Rounds = []turnkeeper.Round{{Number: 1, Charged: true, Provider: "demo", Model: "script", Attempts: 1,
		FinishReason: "tool_calls", Calls: []turnkeeper.ToolCall{call}}}
	v.End = &operate.RequestedEnd{How: turnlog.EndCancel, Turn: v.Turn.ID, Reason: "asked by the sender",
		AskedAt: after(10 * time.Minute)}
	v.Awaited = []operate.AwaitedCall{
		{Key: call.Key, Name: "build", Since: after(9 * time.Minute), Until: after(2 * time.Hour), Attempt: 2,
			WorkerID: "host-2-bbbb", ClaimedAt: after(9*time.Minute + 2*time.Second)},
		{Key: turnkeeper.CallKey{Round: 1, Ordinal: 2}, Name: "build\x1b", Since: after(9 * time.Minute),
			Until: after(24 * time.Hour), Attempt: 1},
		{Key: turnkeeper.CallKey{Round: 1, Ordinal: 3}, Name: "build", Since: after(9 * time.Minute), Attempt: 1,
			ArrivedAt: after(10 * time.Minute)},
		{Key: turnkeeper.CallKey{Round: 1, Ordinal: 4}, Name: "agent", Since: after(9 * time.Minute)},
	}
	return v
}

// treeTurn returns a turn with a parent and sub-agents.
func treeTurn() operate.TurnView {
	v := waitingTurn()
	v.Awaited = v.Awaited[3:]
	v.Awaited[0].Name = turnkeeper.ToolSpawnAgent
	call := func(n int) turnkeeper.CallKey { return turnkeeper.CallKey{Round: 1, Ordinal: n} }
	used := turnkeeper.Usage{InputTokens: 1200, OutputTokens: 300}
	agents := []turnlog.SubAgent{
		{Parent: 40, Call: call(1), Agent: v.Turn.Agent, Message: 13, State: turnkeeper.MessageRunning, Turn: v.Turn.ID,
			TurnState: v.Turn.State, Depth: 1, Usage: used},
		{Parent: v.Turn.ID, Call: call(1), Agent: "scout", Message: 15, State: turnkeeper.MessageWaiting, Depth: 2},
		{Parent: v.Turn.ID, Call: call(2), Agent: "critic", Message: 16, State: turnkeeper.MessageDegraded, Turn: 44,
			TurnState: turnkeeper.TurnDegraded, Depth: 2, Usage: used, EndedAt: after(10 * time.Minute)},
		{Parent: 40, Call: call(2), Agent: "scout\x1b", Message: 14, State: turnkeeper.MessageRunning, Turn: 43,
			TurnState: turnkeeper.TurnRunning, Depth: 1, Dropped: true},
		{Parent: 40, Call: call(3), Agent: "scout", Failure: turnlog.SpawnTreeFull, Depth: 1,
			EndedAt: after(9 * time.Minute)},
		{Parent: 40, Call: call(4), Agent: "gone", Message: 3, Depth: 1, EndedAt: after(9 * time.Minute)},
	}
	for i := range agents {
		agents[i].Since, agents[i].Until = after(9*time.Minute), after(25*time.Hour)
	}
	v.Tree = &operate.Tree{
		Root: 40, Agent: "boss", State: turnkeeper.TurnWaiting, SubAgents: agents, Usage: used.Add(used).Add(used),
		Lineage:    turnlog.Lineage{Root: 40, Parent: 40, Call: call(1), Agents: []string{"boss", v.Turn.Agent}},
		Limits:     turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 32, Tokens: 1_000_000, Calls: 40},
		UsedTokens: 4500, UsedCalls: 7,
	}
	return v
}

// expiredTurn returns a turn whose outputs, events and leases retention has deleted.
func expiredTurn() operate.TurnView {
	v := eventfulTurn()
	v.Turn.EventsExpiredAt, v.Turn.LeasesExpiredAt, v.Dispatches = after(time.Minute), after(2*time.Minute), nil
	for i := range v.Outputs {
		v.Outputs[i].ExpiredAt = after(3 * time.Minute)
	}
	return v
}

// answeredTurn returns a turn whose last round contains the reply.
func answeredTurn() operate.TurnView {
	v := openTurn()
	v.Turn.State, v.Turn.StopReason, v.Turn.EndedAt = turnkeeper.TurnSucceeded, turnkeeper.StopNone,
		after(9*time.Minute+time.Second)
	v.Turn.InnerDialogue, v.Turn.ErrorClass = "", ""
	v.Reply = &turnkeeper.Reply{ID: 6, MessageID: 13, TurnID: 42, Outcome: turnkeeper.TurnSucceeded,
		Body: "All is well.", CreatedAt: v.Turn.EndedAt}
	v.Rounds = []turnkeeper.Round{{Number: 1, Charged: true, Provider: "demo", Model: "script", Attempts: 1,
		FinishReason: "stop", Text: "All is well.\n"}}
	return v
}

func TestTurnPage(t *testing.T) {
	cases := []struct {
		name    string
		turn    operate.TurnView
		columns int
		colour  bool
		full    bool
	}{
		{"eventful.txt", eventfulTurn(), 0, false, false},
		{"eventful-narrow.txt", eventfulTurn(), 60, false, false},
		{"eventful-full.txt", eventfulTurn(), 100, false, true},
		{"eventful-colour.txt", eventfulTurn(), 100, true, false},
		{"open.txt", openTurn(), 0, false, false},
		{"waiting.txt", waitingTurn(), 0, false, false},
		{"tree.txt", treeTurn(), 0, false, false},
		{"answered-colour.txt", answeredTurn(), 100, true, false},
		{"expired.txt", expiredTurn(), 100, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &term.Screen{W: &out, Columns: c.columns, Colour: c.colour}
			(&turnPage{Screen: s, Clock: utcNow, full: c.full, TurnView: c.turn}).print()
			golden.File(t, "testdata/show-"+c.name, out.String())
			checkHarmless(t, out.String(), c.colour)
		})
	}
}

func TestTurnJSON(t *testing.T) {
	var out bytes.Buffer
	if err := shell.WriteJSON(&out, views.OfWholeTurn(eventfulTurn())); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/show-eventful.json", out.String())
	out.Reset()
	if err := shell.WriteJSON(&out, views.OfWholeTurn(treeTurn())); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/show-tree.json", out.String())
	out.Reset()
	if err := shell.WriteJSON(&out, views.OfWholeTurn(eventfulTurn())); err != nil {
		t.Fatal(err)
	}
	checkHarmless(t, out.String(), false)
	var back struct {
		Message    struct{ Body string }
		Rounds     int    `json:"inference_round_count"`
		Stop       string `json:"continuation_stop_reason"`
		DurationMs int64  `json:"turn_duration_ms"`
	}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Message.Body != eventfulTurn().Message.Body || back.Rounds != 3 || back.Stop != "max_rounds" ||
		back.DurationMs != 42500 {
		t.Errorf("read back: %+v", back)
	}
}

// checkHarmless fails the test if text contains control characters, other than those of colours if colour is set.
func checkHarmless(t *testing.T, text string, colour bool) {
	t.Helper()
	if colour {
		for _, code := range []term.Tone{term.Bold, term.Dim, term.Good, term.Warned, term.Bad, term.Active, "0"} {
			text = strings.ReplaceAll(text, "\x1b["+string(code)+"m", "")
		}
	}
	clitest.Harmless(t, text)
}

// exampleLists returns lists of example rows.
func exampleLists() map[string]func(*term.Screen) {
	turn, open := eventfulTurn(), openTurn()
	long := turn.Message
	long.ID, long.Body, long.State = 14, strings.Repeat("word ", 60), turnkeeper.MessageWaiting
	return map[string]func(*term.Screen){
		"turns": func(s *term.Screen) {
			running := open.Turn
			running.State, running.DueAt, running.WorkerID = turnkeeper.TurnRunning, time.Time{}, "host-1-aaaa"
			running.UnderWay = &turnkeeper.UnderWay{Round: 1, Calls: []turnkeeper.OpenCall{{Name: "order"}}}
			silent := running
			silent.Silence = &turnkeeper.Silence{For: 40 * time.Second}
			showTurns(s, utcNow, []waiting.Turn{{Turn: silent}, {Turn: running}, open.WithWaits(), turn.WithWaits()})
		},
		"inbox": func(s *term.Screen) {
			showMessages(s, utcNow, []waiting.Message{long, open.Message, turn.Message})
		},
		"outbox": func(s *term.Screen) {
			showReplies(s, utcNow, []turnkeeper.Reply{*turn.Reply})
		},
		"lanes": func(s *term.Screen) {
			showLanes(s, utcNow, []operate.LaneView{
				{Lease: granting.Lease{Lane: "clerk/anna", Token: 8, GrantID: "g", TurnID: 41,
					WorkerID: "host-2-bbbb", Until: after(14 * time.Minute)}, TurnState: turnkeeper.TurnRunning,
					Remaining: 4 * time.Minute, Waiting: 1234},
				{Lease: granting.Lease{Lane: "late", Token: 2, GrantID: "h", TurnID: 40,
					Until: after(9 * time.Minute)}, Remaining: -time.Minute},
				{Lease: granting.Lease{Lane: "lost", Token: 2, GrantID: "h", TurnID: 39, WorkerID: "host-1-aaaa",
					Until: after(14 * time.Minute)}, Remaining: 4 * time.Minute,
					Silence: &turnkeeper.Silence{For: 40 * time.Second, Until: after(10 * time.Minute)}},
				{Lease: granting.Lease{Lane: "patient", Token: 5}, TurnState: turnkeeper.TurnWaiting,
					OpenTurn: 42, Waiting: 1},
				{Lease: granting.Lease{Lane: "watcher", Token: 3, Failures: 2,
					NotBefore: after(10*time.Minute + 4*time.Second)}},
			})
		},
		"top": func(s *term.Screen) {
			drawTop(s, utcNow, topState{
				Totals: operate.Totals{Waiting: 1234, Oldest: 3 * time.Minute, Running: 1, Queued: 1, Ended: 42,
					Succeeded: 39, Degraded: 2, Failed: 1, Tokens: 123456, Now: utcNow.Now},
				Down: []modelhealth.Health{
					{Model: "test/large", DownSince: began, Until: after(10*time.Minute + 30*time.Second), Failures: 5,
						ErrorClass: "auth", Error: "wrong key", Agents: []string{"echo"}},
					{Model: "test/small", DownSince: began, Until: after(10*time.Minute + 10*time.Second), Failures: 5,
						ErrorClass: "overloaded", Error: "HTTP 503", Agents: []string{"echo"}},
				},
				Refused: &presence.Refusal{Turn: 7, For: time.Minute, Attempts: 3, SQLState: "53100",
					Message: "disk full"},
				Levels: []operate.AgentLevel{{Agent: "echo", Level: survival.Low},
					{Agent: "watcher", Level: survival.Critical, Pin: &operate.Pin{Level: survival.Critical, At: began,
						By: "ann", Reason: "a test"}}},
				Scheduler: operate.SchedulerSettings{PausedAt: began, PausedReason: "repairs"},
				Workers: []presence.Heartbeat{{WorkerID: "host-2-bbbb", Host: "two", PID: 2, Version: "v1", Slots: 10,
					TakeoverAfter: 15 * time.Second, StartedAt: began, Silent: 2 * time.Second}},
				Turns: []waiting.Turn{open.WithWaits()},
				Lanes: []operate.LaneView{{Lease: granting.Lease{Lane: "watcher", Token: 3},
					TurnState: turnkeeper.TurnQueued, OpenTurn: 42}},
			})
		},
		"models": func(s *term.Screen) {
			down := modelhealth.Health{Model: "test/down", DownSince: began,
				Until: after(10*time.Minute + 30*time.Second), Failures: 5, ErrorClass: "auth", Error: "wrong key",
				Agents: []string{"echo"}, Asked: true}
			probing, unused := down, down
			probing.Model, probing.Probe, probing.ProbeTurn = "test/probing", "grant", 42
			unused.Model, unused.Agents = "test/unused", nil
			showModels(s, utcNow, []modelhealth.Health{
				down, probing, {Model: "test/unknown", Agents: []string{"echo", "watcher"}}, unused,
				{Model: "test/up", Agents: []string{"echo"}, Asked: true},
			})
		},
		"schedules": func(s *term.Screen) {
			showSchedules(s, utcNow, []turnkeeper.Schedule{
				{Agent: "watcher", Name: "default", Cron: "0 9 * * *", TimeZone: "Europe/Berlin", Conversation: "main",
					Active: true, NextDue: after(23 * time.Hour), LastSlot: after(-time.Hour)},
				{Agent: "watcher", Name: "nightly", Cron: "0 2 * * *", CronOverride: "@hourly", TimeZone: "UTC",
					Conversation: "night", Active: true, PausedAt: began, PausedReason: "too many",
					NextDue: after(time.Minute)},
				{Agent: "old", Name: "default", Cron: "0 0 30 2 *", TimeZone: "UTC", Conversation: "main",
					LastError: "the schedule never comes due"},
			})
		},
		"workers": func(s *term.Screen) {
			showWorkers(s, utcNow, []presence.Heartbeat{
				{WorkerID: "a", Host: "one", PID: 1, Version: "v1", Slots: 10, TakeoverAfter: 15 * time.Second,
					StartedAt: began, Silent: 2 * time.Second},
				{WorkerID: "b", Host: "two", PID: 2, Version: "v1", Roles: []string{"api", "worker"},
					TakeoverAfter: 15 * time.Second, StartedAt: began},
				{WorkerID: "e", Host: "two", PID: 5, Version: "v1", Roles: []string{"api"},
					TakeoverAfter: 15 * time.Second, StartedAt: began},
				{WorkerID: "c", Host: "two", PID: 3, Version: "v1", Slots: 10, TakeoverAfter: time.Minute,
					StartedAt: began, Silent: 61 * time.Second},
				{WorkerID: "d", Host: "two", PID: 4, Version: "v1", Slots: 10, StartedAt: began,
					Silent: 50 * time.Minute, StoppedAt: began},
			})
		},
		"agents": func(s *term.Screen) {
			showAgents(s, utcNow, []turnkeeper.AgentRegistration{{Name: "clerk", Description: "Keeps a list.",
				DefinitionHash: strings.Repeat("c", 64), LanePerConversation: true,
				PausedSchedules: []string{"daily"}}})
		},
		"migrations": func(s *term.Screen) {
			showMigrations(s, []storage.Migration{{Version: 1, Name: "turnkeeper", Applied: true},
				{Version: 2, Name: "moves"}})
		},
		"scheduler": func(s *term.Screen) {
			showScheduler(s, utcNow, operate.SchedulerSettings{PausedAt: began, PausedReason: "the provider\nis down",
				PollInterval: 3 * time.Second, MaxDispatches: 50, LastTickAt: after(time.Minute)})
		},
		"output": func(s *term.Screen) {
			o := turnkeeper.Output{
				ID: "k3v9x2m4q7ab", TurnID: 7, Call: turnkeeper.CallKey{Round: 1, Ordinal: 2}, MediaType: "text/plain",
				SizeBytes: 24591,
				Chars:     24591, Tokens: 7685, SHA256: strings.Repeat("c", 64), Retrieved: 2, Incomplete: true,
				RawBytes: 12_000_000,
			}
			output(s, o, "the \x1b[31mwhole text",
				"the beginning\n\n[truncated — showing 4000/24591 chars. Call get_continuation with tool_call_id=\"c\" to read more]")
		},
		"output-binary": func(s *term.Screen) {
			output(s, turnkeeper.Output{ID: "k", TurnID: 7, MediaType: "image/png", Bytes: []byte{1}, SizeBytes: 1,
				SHA256: strings.Repeat("c", 64)}, "", "[binary result: image/png, 1 bytes]")
		},
		"check": func(s *term.Screen) {
			showPromises(s, []operate.Promise{
				{Text: "a closed message has one reply"},
				{Text: "events are numbered 1 to n", Broken: []string{"turn 7", "turn 9"}, More: true},
			}, 1)
		},
		"check-well": func(s *term.Screen) {
			showPromises(s, []operate.Promise{{Text: "a closed message has one reply"},
				{Text: "events are numbered 1 to n"}}, 0)
		},
		"doctor": func(s *term.Screen) {
			d := &diagnosis.Report{}
			d.Add(diagnosis.OK, "database", "Postgres 15.4, that of DATABASE_URL", "")
			d.Judge(false, diagnosis.Fail, "fsync", "off",
				"set fsync = on: without it a crash of the machine loses messages and replies")
			d.Judge(false, diagnosis.Warn, "workers", "0 alive with 0 slots", "start one: worker")
			showDiagnosis(s, d)
		},
	}
}

func TestLists(t *testing.T) {
	for name, show := range exampleLists() {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			show(&term.Screen{W: &out, Columns: 110})
			golden.File(t, "testdata/"+name+".txt", out.String())
			checkHarmless(t, out.String(), false)
			for line := range strings.Lines(out.String()) {
				if width := term.Width(strings.TrimSuffix(line, "\n")); width > 130 {
					t.Errorf("a line of %d columns: %q", width, line)
				}
			}
		})
	}
}
