package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/turnlog"
	"turnkeeper/telemetry"
)

// sender is the trace context of a message.
const sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// grant reports a grant of a turn, the calls in it, and its end.
func grant(ctx context.Context, o agentturn.Observer, r *turnlog.Record, before turnkeeper.Dispatch,
	within func(context.Context), e agentturn.DispatchEnd) {
	ctx, end := o.Dispatch(ctx, agentturn.DispatchBegin{Record: r, Before: before})
	time.Sleep(100 * time.Millisecond)
	within(ctx)
	end(e)
}

// observeTheRest reports what observe does not: turns with a sender's trace, all outcomes of a grant, failures without
// a class, and calls that say as little as they can.
func observeTheRest(ctx context.Context, o agentturn.Observer) {
	now := time.Now()
	turn := turnkeeper.Turn{
		ID: 41, MessageID: 42, Agent: "guest", User: "bob", Attempt: 1, Dispatches: 1, Trigger: "schedule",
		GrantID:   "g1",
		CreatedAt: now.Add(-time.Hour), GrantedAt: now.Add(-time.Hour),
	}
	message := turnkeeper.Message{ID: 42, AcceptedAt: now.Add(-2 * time.Hour), DueAt: now.Add(-90 * time.Minute),
		TraceParent: sender}
	record := &turnlog.Record{Turn: turn, Message: message, ReadySince: now.Add(-3 * time.Hour),
		Elapsed: 2 * time.Second}
	earlier := *record
	earlier.Message.DueAt = now.Add(-3 * time.Hour) // before it was accepted
	later := *record
	later.Turn.Dispatches, later.Turn.GrantID, later.Turn.GrantedAt, later.ReadySince = 2, "g2",
		now.Add(-10*time.Second), now.Add(-30*time.Second)
	due := later
	due.Turn.DueAt = now.Add(-20 * time.Second)
	before := turnkeeper.Dispatch{GrantID: "g1", WorkerID: "w1", Outcome: "waiting", GrantedAt: now.Add(-time.Hour),
		EndedAt: now.Add(-time.Minute)}
	lost := before
	lost.Outcome, lost.EndedAt = "lost", lost.GrantedAt.Add(-time.Second) // the database's clock was set back
	open := func(state turnkeeper.TurnState, backoff time.Duration) agentturn.DispatchEnd {
		return agentturn.DispatchEnd{Outcome: turnlog.Outcome{State: state, Backoff: backoff}}
	}
	none := func(context.Context) {}
	grant(ctx, o, record, turnkeeper.Dispatch{}, func(ctx context.Context) {
		callTheRest(ctx, o, turn)
	}, open(turnkeeper.TurnWaiting, 0))
	grant(ctx, o, &earlier, turnkeeper.Dispatch{}, none, open(turnkeeper.TurnQueued, time.Second))
	grant(ctx, o, &later, before, none, open(turnkeeper.TurnQueued, 0))
	grant(ctx, o, &due, lost, none, agentturn.DispatchEnd{Err: turnkeeper.ErrFenced})
	grant(ctx, o, &due, turnkeeper.Dispatch{}, none, agentturn.DispatchEnd{Err: errors.New("no database")})
	grant(ctx, o, &due, before, none, agentturn.DispatchEnd{Outcome: turnlog.Outcome{State: turnkeeper.TurnFailed,
		StopReason: turnkeeper.StopWorkerLost}})
	grant(ctx, o, &due, before, none, agentturn.DispatchEnd{
		Outcome: turnlog.Outcome{State: turnkeeper.TurnSucceeded}, Continued: 7 * time.Second,
		Rounds: []turnkeeper.Round{{Usage: turnkeeper.Usage{InputTokens: 1, OutputTokens: 2}}, {},
			{Usage: turnkeeper.Usage{InputTokens: 10}}},
	})
}

// callTheRest reports calls that say little, or that fail without a class.
func callTheRest(ctx context.Context, o agentturn.Observer, turn turnkeeper.Turn) {
	within, endRound := o.Round(ctx, agentturn.RoundBegin{Number: 1})
	for i, e := range []agentturn.ModelEnd{
		{Response: inference.Response{Model: "n", Usage: turnkeeper.Usage{InputTokens: 5, OutputTokens: 6,
			CachedTokens: 7, CacheWriteTokens: 8, Estimated: true}, Cost: "-1"}},
		{Response: inference.Response{Usage: turnkeeper.Usage{OutputTokens: 8}, Cost: "free"}},
		{Err: &inference.Error{}}, {Err: context.DeadlineExceeded}, {Err: errors.New(secret)},
	} {
		_, end := o.ModelCall(within, agentturn.ModelBegin{Purpose: agentturn.PurposeSummary, Agent: "guest",
			Provider: "other", Model: "n"})
		time.Sleep(time.Duration(i+1) * time.Second)
		end(e)
	}
	for i, provider := range []string{"gemini", "google", "xai", "azure", "bedrock"} {
		_, end := o.ModelCall(within, agentturn.ModelBegin{Provider: provider, Model: "n"})
		time.Sleep(time.Duration(i+10) * time.Second)
		end(agentturn.ModelEnd{})
	}
	call := turnkeeper.ToolCall{Key: turnkeeper.CallKey{Round: 2, Ordinal: 3}, Name: "look",
		Effect: turnkeeper.EffectNone}
	ran := func(b agentturn.ToolBegin) {
		_, end := o.ToolCall(within, b)
		time.Sleep(30 * time.Second)
		end(agentturn.ToolEnd{State: turnkeeper.CallCancelled})
	}
	ran(agentturn.ToolBegin{Call: call})
	ran(agentturn.ToolBegin{Call: call, Detached: true, Turn: turn, TraceParent: sender})
	early := call
	early.Name = "early"
	for _, unused := range []bool{true, false} { // one run is thrown away, and one waits for its answer
		_, end := o.ToolCall(within, agentturn.ToolBegin{Call: early})
		time.Sleep(50 * time.Second)
		end(agentturn.ToolEnd{State: turnkeeper.CallSucceeded, Unused: unused, WireID: "call_8",
			Duration: 20 * time.Second})
	}
	o.SubAgent(ctx, agentturn.SubAgentEnd{Call: call, Turn: turn, TraceParent: sender, State: turnkeeper.CallSucceeded,
		Duration: 40 * time.Second})
	endRound(agentturn.RoundEnd{})
}

// shown returns what /metrics says of Turnkeeper, without buckets and comments.
func shown(t *testing.T, told *telemetry.Telemetry) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, told)) {
		if !ofRuntime.MatchString(line) && !strings.Contains(line, "_bucket{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestTheRestOfSpansAndMetrics compares what spans and metrics say of the rest with testdata. The metrics are the same
// if no spans are sent.
func TestTheRestOfSpansAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, false)
		defer func() { _ = r.Close(context.Background()) }()
		observeTheRest(t.Context(), r)
		golden.File(t, "testdata/rest.txt", strings.Join(r.Spans(), "\n\n")+"\n\n"+shown(t, r.Telemetry))
	})
	metrics := map[bool]string{}
	for _, traces := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := record(t, false)
			defer func() { _ = r.Close(context.Background()) }()
			told := r.Telemetry
			if !traces {
				var err error
				if told, err = telemetry.Start(t.Context(), telemetry.Options{Content: true,
					Getenv: func(string) string { return "" }}); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = told.Close(context.Background()) }()
			}
			observe(t.Context(), told)
			observeTheRest(t.Context(), told)
			metrics[traces] = shown(t, told)
		})
	}
	if metrics[true] != metrics[false] {
		t.Errorf("with spans the metrics are\n%s\nwithout them\n%s", metrics[true], metrics[false])
	}
}

// TestTracedIsTheSendersDecision checks that a span is traced if its trace is sampled.
func TestTracedIsTheSendersDecision(t *testing.T) {
	t.Parallel()
	r := record(t, false)
	defer func() { _ = r.Close(context.Background()) }()
	for parent, want := range map[string]bool{"": true, sender: true, strings.TrimSuffix(sender, "01") + "00": false} {
		turn := &turnlog.Record{Turn: turnkeeper.Turn{ID: 1}, Message: turnkeeper.Message{TraceParent: parent}}
		ctx, end := r.Dispatch(t.Context(), agentturn.DispatchBegin{Record: turn})
		if got := r.Traced(ctx); got != want {
			t.Errorf("below %q it is traced: %t", parent, got)
		}
		end(agentturn.DispatchEnd{})
	}
	if r.Traced(t.Context()) {
		t.Error("no span is traced")
	}
}
