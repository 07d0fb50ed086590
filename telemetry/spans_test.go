package telemetry_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/traceparent"
	"turnkeeper/internal/turnlog"
	"turnkeeper/telemetry"
)

// secret is planted in each text of a conversation.
const secret = "planted-secret"

func mask(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }

// record returns a Recorder that masks the secret.
func record(t *testing.T, content bool) *telemetry.Recorder {
	t.Helper()
	r, err := telemetry.Record(t.Context(), telemetry.Options{Content: content, Mask: mask,
		Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	r.Named = map[[8]byte]string{}
	for _, from := range []string{"", sender} {
		place := traceparent.Of(turnkeeper.Turn{ID: 41, CreatedAt: time.Now().Add(-time.Hour)}, from)
		for _, of := range []string{
			traceparent.TurnSpan(41), traceparent.GrantSpan("g1"), traceparent.GrantSpan("g2"), traceparent.CallSpan(41,
				turnkeeper.CallKey{Round: 2, Ordinal: 3}),
		} {
			r.Named[place.SpanOf(of)] = of
		}
		if place.HasSender() {
			r.Named[place.Sender] = "the sender"
		}
	}
	return r
}

// observe reports one of everything to an observer, with the secret in each text.
func observe(ctx context.Context, o agentturn.Observer) {
	now := time.Now()
	call := turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: 2, Ordinal: 3}, WireID: "call_7", Name: "send", Effect: turnkeeper.EffectOnce,
		Arguments: `{"planned":"` + secret + `"}`,
	}
	turn := turnkeeper.Turn{
		ID: 41, MessageID: 42, Agent: "clerk", User: "ann", Conversation: "main", Attempt: 5, Dispatches: 6,
		Trigger: "message", GrantID: "g2",
		CreatedAt: now.Add(-time.Hour), GrantedAt: now.Add(-time.Minute), DueAt: now.Add(-2 * time.Minute),
	}
	message := turnkeeper.Message{ID: 42, AcceptedAt: now.Add(-2 * time.Hour)}
	before := turnkeeper.Dispatch{GrantID: "g1", WorkerID: "w1", Outcome: "lost",
		GrantedAt: now.Add(-30 * time.Minute), EndedAt: now.Add(-20 * time.Minute)}
	record := &turnlog.Record{Turn: turn, Message: message, Elapsed: time.Second}
	ctx, endDispatch := o.Dispatch(ctx, agentturn.DispatchBegin{Record: record, Before: before})
	within, endRound := o.Round(ctx, agentturn.RoundBegin{Number: 2, Resumed: true})
	temperature := 0.25
	begin := agentturn.ModelBegin{Purpose: agentturn.PurposeRound, Agent: "clerk", Provider: "mistral", Model: "large",
		Attempt: 3, Request: inference.Request{
			Model: "large", MaxOutputTokens: 99, Temperature: &temperature, Messages: []inference.Message{
				{Role: inference.RoleSystem, Text: "system " + secret}, {Role: inference.RoleUser,
					Text: "user " + secret},
				{Role: inference.RoleAssistant, Text: "before " + secret,
					Calls: []inference.Call{{ID: "c0", Name: "look",
						Arguments: `{"at":"` + secret + `"}`}}},
				{Role: inference.RoleTool, CallID: "c0", Text: "found " + secret},
			},
		}}
	_, endModel := o.ModelCall(within, begin)
	time.Sleep(11 * time.Millisecond)
	endModel(agentturn.ModelEnd{Response: inference.Response{
		ID: "r1", Model: "large-2", Text: "answer " + secret, FinishReason: "stop", Cost: "0.25",
		Usage: turnkeeper.Usage{InputTokens: 9, OutputTokens: 2, CachedTokens: 3, CacheWriteTokens: 5,
			ReasoningTokens: 4},
		Calls: []inference.Call{{ID: "call_7", Name: "send", Arguments: `{"to":"` + secret + `"}`}},
	}})
	_, endModel = o.ModelCall(within, agentturn.ModelBegin{Purpose: agentturn.PurposeProbe, Provider: "p", Model: "m"})
	time.Sleep(12 * time.Millisecond)
	endModel(agentturn.ModelEnd{Err: &inference.Error{Class: inference.ClassAuth, Detail: secret}})
	_, endTool := o.ToolCall(within, agentturn.ToolBegin{Call: call, Agent: "clerk"})
	time.Sleep(13 * time.Millisecond)
	endTool(agentturn.ToolEnd{State: turnkeeper.CallSucceeded, Result: "result " + secret})
	_, endTool = o.ToolCall(within, agentturn.ToolBegin{Call: call, Agent: "clerk", Detached: true, Turn: turn})
	time.Sleep(14 * time.Millisecond)
	endTool(agentturn.ToolEnd{State: turnkeeper.CallFailed, Error: "timeout", Result: "error " + secret})
	o.SubAgent(within, agentturn.SubAgentEnd{Call: call, Turn: turn, Agent: "other", Child: 77,
		Began: now.Add(-time.Minute), Duration: 15 * time.Second,
		State: turnkeeper.CallFailed, Error: "cancelled"})
	o.SubAgent(within, agentturn.SubAgentEnd{
		Call: call, Turn: turn, Began: now.Add(time.Hour), Duration: 16 * time.Second, State: turnkeeper.CallSucceeded,
	})
	round := turnkeeper.Round{Number: 2, Calls: []turnkeeper.ToolCall{call, call, call}, Charged: true, Attempts: 4}
	endRound(agentturn.RoundEnd{Round: &round})
	time.Sleep(17 * time.Millisecond)
	endDispatch(agentturn.DispatchEnd{
		Outcome: turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
			ErrorClass: "auth"},
		Rounds: []turnkeeper.Round{{Usage: turnkeeper.Usage{InputTokens: 10, OutputTokens: 20, CacheWriteTokens: 9}},
			{Usage: turnkeeper.Usage{InputTokens: 100, OutputTokens: 200, CachedTokens: 30}}},
	})
}

// TestSpans compares all that spans say with testdata, with and without the texts of conversations. A secret in any of
// these texts is masked.
func TestSpans(t *testing.T) {
	for _, content := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := record(t, content)
			defer func() { _ = r.Close(context.Background()) }()
			observe(t.Context(), r)
			got := strings.Join(r.Spans(), "\n\n") + "\n"
			file := map[bool]string{false: "testdata/spans.txt", true: "testdata/spans_content.txt"}[content]
			golden.File(t, file, got)
			if strings.Contains(got, secret) || !content && strings.Contains(got, "[redacted]") {
				t.Errorf("%s has text of the conversation, or a secret", file)
			}
		})
	}
}

// ofRuntime matches comments, and metrics that are not Turnkeeper's.
var ofRuntime = regexp.MustCompile("^(#|go_|process_|target_)")

// TestMetrics compares the metrics of one of everything, with another number from each source, with testdata.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, true)
		defer func() { _ = r.Close(context.Background()) }()
		observe(t.Context(), r)
		all := sources()
		away, levels := errors.New("away"), all.Levels
		all.Levels = func(ctx context.Context) (map[string]int, error) {
			if away != nil {
				return nil, away
			}
			return levels(ctx)
		}
		if err := r.Watch(all); err != nil {
			t.Fatal(err)
		}
		r.Request("GET", "/v1/turns/{id}", 404, 25*time.Millisecond)
		r.Delivery("shop", "dead", 26*time.Millisecond)
		r.Ticked(false, 18*time.Millisecond, nil)
		r.Ticked(true, 19*time.Millisecond, nil)
		time.Sleep(20 * time.Second)
		r.Ticked(false, 21*time.Millisecond, errors.New(secret))
		r.WorkerLost("clerk", true, 1)
		if got := read(t, r.Telemetry); strings.Contains(got, "turnkeeper_queue_messages") {
			t.Error("a queue that could not be read whole has metrics")
		}
		away = nil
		time.Sleep(5 * time.Second) // a failed read counts too
		var lines []string
		for line := range strings.Lines(read(t, r.Telemetry)) {
			if !ofRuntime.MatchString(line) && !strings.Contains(line, "_bucket{") {
				lines = append(lines, line)
			}
		}
		got := strings.Join(lines, "")
		golden.File(t, "testdata/metrics.txt", got)
		if strings.Contains(got, secret) {
			t.Error("the metrics hold the secret")
		}
		for _, m := range telemetry.Metrics() {
			if !strings.Contains(got, "\n"+m.Prometheus()) && !strings.HasPrefix(got, m.Prometheus()) {
				t.Errorf("nothing was counted for %s", m.Prometheus())
			}
		}
	})
}

// sources returns sources with another number in each field.
func sources() telemetry.Sources {
	return telemetry.Sources{
		Queue: func(context.Context) (telemetry.Queue, error) {
			return telemetry.Queue{Messages: 101, Oldest: 102 * time.Second, Running: 103, Queued: 104, Waits: 105,
				Reasons: []telemetry.Wait{
					{Reason: "asks", Turns: 106, Age: 107 * time.Second, Left: 108 * time.Second},
					{Reason: "budget", Turns: 109, Age: -1, Left: -1},
					{Reason: "children", Turns: 110},
				}}, nil
		},
		Models: func(context.Context) (map[string]bool, error) {
			return map[string]bool{"up": false, "down": true}, nil
		},
		Aside:  func(context.Context) (map[string]int, error) { return map[string]int{"message": 111}, nil },
		Levels: func(context.Context) (map[string]int, error) { return map[string]int{"clerk": 2}, nil },
		Refused: func() (map[string][]time.Duration, map[string]int64) {
			return map[string][]time.Duration{"53300": {112 * time.Second, 113 * time.Second}},
				map[string]int64{"53300": 114, "57P03": 115}
		},
		Pools:    func() []telemetry.Pool { return []telemetry.Pool{{"main", 116, 117, 118, 119, 120 * time.Second}} },
		Leases:   func() int { return 121 },
		Watchers: func() int { return 122 },
		Results:  func() (int64, int) { return 123, 124 },
	}
}

// TestTextsOfSpansAreCut checks texts and numbers of messages on either side of their limits. A text is masked before
// it is cut.
func TestTextsOfSpansAreCut(t *testing.T) {
	said := func(r *telemetry.Recorder, messages ...inference.Message) string {
		_, end := r.ModelCall(t.Context(), agentturn.ModelBegin{Request: inference.Request{Messages: messages}})
		end(agentturn.ModelEnd{Err: errors.New("none")})
		spans := r.Spans()
		return spans[len(spans)-1]
	}
	r := record(t, true)
	defer func() { _ = r.Close(context.Background()) }()
	for size, cut := range map[int]bool{3999: false, 4000: false, 4001: true} {
		text := strings.Repeat("ü", size-1) + "!"
		got := said(r, inference.Message{Role: inference.RoleUser, Text: text})
		if strings.Contains(got, "!") == cut || strings.Contains(got, "ü…") != cut {
			t.Errorf("%d characters: …%s", size, got[max(0, len(got)-40):])
		}
	}
	if got := said(r, inference.Message{Role: inference.RoleUser, Text: strings.Repeat("x",
		3990) + secret}); strings.Contains(got, "planted") {
		t.Errorf("a secret at the limit: %s", got[len(got)-60:])
	}
	for n, cut := range map[int]bool{39: false, 40: false, 41: true} {
		messages := []inference.Message{{Role: inference.RoleSystem, Text: "system"}, {Role: inference.RoleUser,
			Text: "first"}}
		for range n - 1 {
			messages = append(messages, inference.Message{Role: inference.RoleUser, Text: "next"})
		}
		if got := said(r, messages...); strings.Contains(got, "first") == cut || !strings.Contains(got, "system") {
			t.Errorf("%d messages: %t", n, cut)
		}
	}
}

// TestErrorsOfTheReceiver checks that errors of the export are logged once a minute, masked, with their number.
func TestErrorsOfTheReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		handle, quiet := telemetry.ReportTo(zap.New(core), mask)
		at := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			handle(errors.New("refused by " + secret))
			if logs.Len() != want {
				t.Fatalf("%d lines are logged, want %d", logs.Len(), want)
			}
		}
		at(0, 1)
		at(30*time.Second, 1)
		at(30*time.Second-1, 1)
		at(1, 2)
		at(time.Minute, 3)
		quiet()
		at(time.Hour, 3)
		for i, before := range []int64{0, 2, 0} {
			fields := logs.All()[i].ContextMap()
			if fields["errors_before"] != before || fields["error"] != "refused by [redacted]" {
				t.Errorf("line %d: %v", i, fields)
			}
		}
	})
}
