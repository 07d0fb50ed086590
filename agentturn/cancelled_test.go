package agentturn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// TestACancelledReplyKeepsWhatWasShown cancels turns while the model writes, and while a tool runs.
func TestACancelledReplyKeepsWhatWasShown(t *testing.T) {
	const marked = "This turn was cancelled.\n\nBefore that it had written:\n\n"
	writes := inferencetest.Func(func(ctx context.Context, _ inference.Request,
		onDelta func(inference.Delta)) (inference.Response, error) {
		onDelta(inference.Delta{Kind: inference.DeltaThinking, Text: "a thought"})
		onDelta(inference.Delta{Kind: inference.DeltaText, Text: "The tap drips "})
		<-ctx.Done()
		return inference.Response{}, context.Cause(ctx)
	})
	looks := inferencetest.Answer(asking("Let me look.", "look"))
	silent := inferencetest.Func(func(ctx context.Context, _ inference.Request,
		_ func(inference.Delta)) (inference.Response, error) {
		<-ctx.Done()
		return inference.Response{}, context.Cause(ctx)
	})
	for name, test := range map[string]struct {
		steps []inferencetest.Step
		set   func(*bench)
		reply string
	}{
		"nothing was written": {[]inferencetest.Step{silent}, func(*bench) {}, "This turn was cancelled."},
		"the model writes":    {[]inferencetest.Step{writes}, func(*bench) {}, marked + "The tap drips "},
		"in its second round": {[]inferencetest.Step{looks, writes}, func(*bench) {},
			marked + "Let me look.\n\nThe tap drips "},
		"a tool runs": {[]inferencetest.Step{looks}, func(b *bench) {
			b.tools[0].(*tool).does(hangs)
		}, marked + "Let me look."},
		"private, may be sent": {[]inferencetest.Step{writes}, private(policy.ReplyAllow), marked + "The tap drips "},
		"private, is withheld": {[]inferencetest.Step{writes}, private(policy.ReplyWithhold),
			"This turn was cancelled."},
		"private, to ask about": {[]inferencetest.Step{writes}, private(policy.ReplyAsk), "This turn was cancelled."},
		"not private": {[]inferencetest.Step{writes}, func(b *bench) {
			b.def.ReplySink = policy.ReplyWithhold
		}, marked + "The tap drips "},
		"its last result is private, may be sent": {[]inferencetest.Step{looks, writes}, secret(policy.ReplyAllow),
			marked + "Let me look.\n\nThe tap drips "},
		"its last result is private, is withheld": {[]inferencetest.Step{looks, writes}, secret(policy.ReplyWithhold),
			"This turn was cancelled."},
		"its last result is private, to ask about": {[]inferencetest.Step{looks, writes}, secret(policy.ReplyAsk),
			"This turn was cancelled."},
		"an earlier result is private": {[]inferencetest.Step{looks, asks("list"), writes},
			secret(policy.ReplyWithhold), "This turn was cancelled."},
		"private, of a sub-agent": {[]inferencetest.Step{looks, writes}, func(b *bench) {
			secret(policy.ReplyWithhold)(b)
			b.store.lineage.Parent = 9
		}, marked + "Let me look.\n\nThe tap drips "},
		"a schedule": {[]inferencetest.Step{writes}, func(b *bench) {
			b.store.trigger = turnkeeper.TriggerSchedule
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, test.steps...).with(read("look").does(func(context.Context,
					tools.Call) (tools.Result, error) {
					return tools.Result{Text: "seen"}, nil
				}), read("list"))
				test.set(b)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(agentturn.ErrCancelled) })
				if o := b.run(ctx); o.State != turnkeeper.TurnCancelled || o.Reply != test.reply {
					t.Errorf("%s with %q, want %q", o.State, o.Reply, test.reply)
				}
			})
		})
	}
}

// TestACancelledReplyLeavesTheRoundsAlone checks that the rounds behind those of a cancelled turn stay as they are.
func TestACancelledReplyLeavesTheRoundsAlone(t *testing.T) {
	rounds := []turnkeeper.Round{{Number: 1, Text: "First."}, {Number: 2, Text: "Second."}}
	want := "This turn was cancelled.\n\nBefore that it had written:\n\nFirst.\n\nThen"
	if got := agentturn.CancelledReply(rounds[:1], "Then"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if rounds[1].Number != 2 || rounds[1].Text != "Second." {
		t.Errorf("the round behind them is %+v", rounds[1])
	}
}

// private makes the message private, with a reply_sink.
func private(sink string) func(*bench) {
	return func(b *bench) { b.def.InboxLabels, b.def.ReplySink = []string{"private"}, sink }
}

// secret makes the results of the tool "look" private, with a reply_sink.
func secret(sink string) func(*bench) {
	return func(b *bench) {
		b.tools[0].(*tool).spec.Flow.Labels, b.def.ReplySink = []policy.Label{policy.Private}, sink
	}
}
