package agentturn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/turnevents"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/tools"
)

// sampling returns a tool that asks a model during its call, and returns the answer.
func sampling(s tools.Sampling, and ...func(tools.Sampled, error)) *tool {
	return once("asker").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
		answer, err := call.Sample(ctx, s)
		for _, f := range and {
			f(answer, err)
		}
		return tools.Result{Text: toldOf(answer, err)}, nil
	})
}

func toldOf(answer tools.Sampled, err error) string {
	if err != nil {
		return "no answer: " + err.Error()
	}
	return answer.Model + " said " + answer.Text
}

// rhymes is the system prompt of a tool's question.
const rhymes = "You rhyme."

func question(text string) tools.Sampling {
	return tools.Sampling{System: rhymes, Messages: []tools.SamplingMessage{{Text: text}}}
}

// notices returns the texts of the turn's notice events.
func (b *bench) notices() (texts []string) {
	for _, e := range b.store.events() {
		if e.Type == turnkeeper.EventNotice {
			var data turnevents.NoticeData
			b.decode(e.Data, &data)
			texts = append(texts, data.Text)
		}
	}
	return texts
}

func TestAToolAsksAModel(t *testing.T) {
	b := newBench(t, asks("asker"), says("a rhyme"), says("Done."))
	money := &budget{left: 100}
	b.budget = money
	var answer tools.Sampled
	s := question("moon")
	s.Messages = append(s.Messages, tools.SamplingMessage{FromModel: true, Text: "soon"},
		tools.SamplingMessage{Text: "again\x00"})
	s.MaxTokens, s.Temperature = 30, new(0.5)
	b.with(sampling(s, func(a tools.Sampled, _ error) { answer = a }))
	if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
		t.Fatalf("%+v", outcome)
	}
	requests := b.script.Requests()
	want := inference.Request{
		Model: "model", MaxOutputTokens: 30, Temperature: new(0.5), User: "turn-7",
		Messages: []inference.Message{
			{Role: inference.RoleSystem, Text: "You rhyme."}, {Role: inference.RoleUser, Text: "moon"},
			{Role: inference.RoleAssistant, Text: "soon"}, {Role: inference.RoleUser, Text: "again"},
		},
	}
	if diff := cmp.Diff(want, requests[1]); diff != "" {
		t.Errorf("the model is asked (-want +got):\n%s", diff)
	}
	if want := (tools.Sampled{Text: "a rhyme", Model: "model", Tokens: 15}); answer != want {
		t.Errorf("the tool is answered %+v", answer)
	}
	if call := b.store.calls()[0]; call.Usage != (turnkeeper.Usage{InputTokens: 10, OutputTokens: 5}) ||
		call.Shown != "model said a rhyme" {
		t.Errorf("the call took %+v: %s", call.Usage, call.Shown)
	}
	fifteen := turnkeeper.Usage{InputTokens: 10, OutputTokens: 5}
	if !slices.Equal(money.settled, []turnkeeper.Usage{fifteen, fifteen, fifteen}) || money.left != 97 {
		t.Errorf("%+v was settled, of 100 calls %d are left", money.settled, money.left)
	}
	if got := b.notices(); !slices.Equal(got, []string{"asker: asked the model model, which took 15 tokens"}) {
		t.Errorf("the events tell %q", got)
	}
}

// TestNoBudgetForAToolsQuestion checks that a tool's model call asks the budget too, and
// that a denial ends the turn.
func TestNoBudgetForAToolsQuestion(t *testing.T) {
	b := newBench(t, asks("asker"), says("never asked"))
	b.budget = &budget{left: 1}
	b.with(sampling(question("moon")))
	outcome := b.run(t.Context())
	if outcome.StopReason != turnkeeper.StopBudget || outcome.State != turnkeeper.TurnDegraded {
		t.Errorf("%+v", outcome)
	}
	if call := b.store.calls()[0]; call.Shown != "no answer: the budget allows no more model calls" ||
		call.State != turnkeeper.CallSucceeded {
		t.Errorf("the call is %s: %s", call.State, call.Shown)
	}
	if n, logged := len(b.script.Requests()), b.logged("model request"); n != 1 || logged != 1 {
		t.Errorf("%d requests were sent, and %d logged", n, logged)
	}
	if got := b.notices(); !slices.Equal(got, []string{
		"asker: asked a model and got no answer: the budget allows no more model calls"}) {
		t.Errorf("the events tell %q", got)
	}
}

// TestBoundsOfAToolsQuestion checks the maximum length of an answer, and that a question that is too long fails at
// once: no model of the chain is called, and nothing is retried.
func TestBoundsOfAToolsQuestion(t *testing.T) {
	long := strings.Repeat("word ", 400)
	cases := map[string]struct {
		sampling tools.Sampling
		window   int
		answer   int    // most tokens of the answer; 0: the model is not asked
		told     string // text of the error, if the model is not asked
	}{
		"no bound": {sampling: question("moon"), answer: 4096},
		"of the answer": {sampling: tools.Sampling{Messages: []tools.SamplingMessage{{Text: "moon"}},
			MaxTokens: 7}, answer: 7},
		"what is left of both": {sampling: tools.Sampling{Messages: []tools.SamplingMessage{{Text: "moon"}},
			MaxTokens: 700, Tokens: 106}, answer: 100},
		"too long": {sampling: tools.Sampling{Messages: []tools.SamplingMessage{{Text: long}}, Tokens: 500},
			told: "are left for this call's questions"},
		"far too long": {sampling: tools.Sampling{Messages: []tools.SamplingMessage{{Text: long}}, Tokens: 5},
			told: "are left for this call's questions"},
		"not for the window": {sampling: question(strings.Repeat(long, 10)), window: 2000,
			told: "the text does not fit into the model's window"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("asker"), says("yes"), says("Done."))
				if c.window > 0 {
					b.windows["main/model"] = c.window
				}
				b.with(sampling(c.sampling))
				began := time.Now()
				b.run(t.Context())
				if took := time.Since(began); took > 0 || b.logged("model call for a tool failed, trying again") > 0 {
					t.Errorf("it took %s", took)
				}
				shown, sent := b.store.calls()[0].Shown, b.script.Requests()[1]
				if c.told != "" {
					if !strings.Contains(shown, c.told) || len(sent.Tools) == 0 {
						t.Errorf("%s; then %+v was sent", shown, sent)
					}
					return
				}
				if sent.MaxOutputTokens != c.answer {
					t.Errorf("%d tokens were asked for", sent.MaxOutputTokens)
				}
			})
		})
	}
}

// TestAToolAsksTheChain checks that the next model of the chain answers if the first
// cannot, and that each attempt is accounted.
func TestAToolAsksTheChain(t *testing.T) {
	b := newBench(t, asks("asker"), fails(inference.ClassAuth), says("Done."))
	b.def.FallbackModels = []string{"other/one"}
	b.models["other/one"] = inferencetest.NewScript(says("from the other"))
	money := &budget{left: 100}
	b.budget = money
	b.with(sampling(question("moon")))
	b.run(t.Context())
	if shown := b.store.calls()[0].Shown; shown != "one said from the other" {
		t.Errorf("%s", shown)
	}
	if money.left != 96 {
		t.Errorf("of 100 calls %d are left", money.left)
	}
}

func TestAToolsQuestionThatFails(t *testing.T) {
	cases := map[string]struct {
		step inferencetest.Step
		told string
	}{
		"refused": {fails(inference.ClassRefused), "no answer: the model declined to answer"},
		"empty":   {says(" "), "no answer: the model gave no usable answer"},
		"panics": {inferencetest.Func(func(context.Context, inference.Request,
			func(inference.Delta)) (inference.Response, error) {
			panic("as scripted")
		}), "no answer: something went wrong inside the service"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, asks("asker"))
				n := 0
				b.script.Then(func(ctx context.Context, req inference.Request,
					onDelta func(inference.Delta)) (inference.Response, error) {
					if req.Messages[0].Text == "You rhyme." {
						n++
						return c.step(ctx, req, onDelta)
					}
					return says("Done.")(ctx, req, onDelta)
				})
				b.with(sampling(question("moon")))
				if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
					t.Errorf("%+v", outcome)
				}
				if shown := b.store.calls()[0].Shown; shown != c.told || n == 0 {
					t.Errorf("asked %d times: %s", n, shown)
				}
			})
		})
	}
}

// TestAToolsQuestionEndsWithItsCall checks that cancelling a turn ends the model call of
// its tool, and that a tool cannot ask a model after its call.
func TestAToolsQuestionEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var after func(context.Context, tools.Sampling) (tools.Sampled, error)
		var within context.Context
		var told error
		b := newBench(t, asks("asker"), inferencetest.Block())
		b.with(once("asker").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
			after, within = call.Sample, ctx
			_, told = call.Sample(ctx, question("moon"))
			return tools.Result{}, told
		}))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(agentturn.ErrCancelled) })
		began := time.Now()
		if outcome := b.run(ctx); outcome.State != turnkeeper.TurnCancelled {
			t.Errorf("%+v", outcome)
		}
		if took := time.Since(began); told == nil || told.Error() != "the call has ended" || took != 2*time.Second {
			t.Errorf("after %s: %v", took, told)
		}
		if _, err := after(within, question("moon")); err == nil || err.Error() != "the call has ended" {
			t.Errorf("afterwards: %v", err)
		}
		if n := len(b.script.Requests()); n != 2 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// TestAToolsQuestionHasTheCallsTime checks that a model call ends early enough for its
// tool to report the timeout.
func TestAToolsQuestionHasTheCallsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, asks("asker"), inferencetest.Block(), says("Done."))
		b.bounds.ToolTimeout, b.bounds.Async = 10*time.Second, false
		b.with(sampling(question("moon")))
		b.run(t.Context())
		if shown := b.store.calls()[0].Shown; shown != "no answer: there was no time left for it" {
			t.Errorf("%s", shown)
		}
	})
}

// TestACallInTheBackgroundAsks checks that a background call can ask a model while the
// turn makes its own model calls.
func TestACallInTheBackgroundAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := asyncBench(t)
		b.script.Then(func(ctx context.Context, req inference.Request,
			onDelta func(inference.Delta)) (inference.Response, error) {
			switch {
			case req.Messages[0].Text == "You rhyme.":
				return says("a rhyme")(ctx, req, onDelta)
			case len(results(req)) == 0:
				return asks("asker")(ctx, req, onDelta)
			case len(results(req)) == 1:
				return asks("wait_for_tool_output {}")(ctx, req, onDelta)
			}
			return says("Done.")(ctx, req, onDelta)
		})
		b.with(once("asker").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
			time.Sleep(8 * time.Second)
			answer, err := call.Sample(ctx, question("moon"))
			return tools.Result{Text: answer.Text}, err
		}))
		if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
			t.Fatalf("%+v", outcome)
		}
		if call := b.store.calls()[0]; call.State != turnkeeper.CallSucceeded || call.Usage.Total() != 15 {
			t.Errorf("the call is %s and took %+v", call.State, call.Usage)
		}
		if !slices.ContainsFunc(b.notices(), func(text string) bool {
			return strings.Contains(text, "asked the model model")
		}) {
			t.Errorf("the events tell %q", b.notices())
		}
	})
}

// TestEveryQuestionIsTold checks that progress notes of a tool do not replace the notices of its model calls.
// TestQuestionsOfATurnAreBounded lets many calls of a turn ask models. Their limit holds for all together, and so for
// what people are asked for.
func TestQuestionsOfATurnAreBounded(t *testing.T) {
	const each = 10
	answered, refused := 0, []string{}
	asker := once("asker").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
		for range each {
			if _, err := call.Sample(ctx, question("moon")); err != nil {
				refused = append(refused, err.Error())
			} else {
				answered++
			}
		}
		return tools.Result{Text: "done"}, nil
	})
	calls := []string{}
	for n := range agentturn.MaxQuestions/each + 1 {
		calls = append(calls, fmt.Sprintf(`asker {"n":%d}`, n))
	}
	book := once("book").asksFor(1)
	b := newBench(t, asks(append(calls, "book")...)).with(asker, book)
	b.script.Then(says("a rhyme"))
	b.run(t.Context())
	if answered != agentturn.MaxQuestions || len(refused) != each {
		t.Errorf("%d questions were answered, and %d refused", answered, len(refused))
	}
	for _, why := range refused {
		if why != "the tools of this turn have asked models and people 50 times, which is the limit of a turn" {
			t.Errorf("refused: %s", why)
		}
	}
	last := b.store.calls()[len(calls)]
	if len(b.store.asked()) != 0 || last.State != turnkeeper.CallFailed || !strings.HasPrefix(last.Shown,
		"tool error: 'book' asked for input, but the tools of this turn have asked") {
		t.Errorf("the call that asks a person is %s: %q", last.State, last.Shown)
	}
}

// TestQuestionsOnRecordCount checks that what a turn has asked before it waited counts.
func TestQuestionsOnRecordCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := once("book").asksFor(2)
		b := newBench(t, asks("book"), says("Done.")).with(book)
		b.waits()
		b.answer(seat(1))
		record, journal := b.store.dispatch()
		for n := len(record.Asks); n < agentturn.MaxQuestions; n++ {
			more := record.Asks[0]
			more.Call.Ordinal = n + 2
			more.Seen = true
			record.Asks = append(record.Asks, more)
		}
		if o, err := b.resume(t.Context(), record, journal); err != nil || o.State != turnkeeper.TurnSucceeded {
			t.Fatal(o, err)
		}
		if call := b.store.calls()[0]; call.State != turnkeeper.CallFailed || len(b.store.asked()) != 1 {
			t.Errorf("the call is %s: %q", call.State, call.Shown)
		}
	})
}

func TestEveryQuestionIsTold(t *testing.T) {
	b := newBench(t, asks("asker"), says("one"), says("two"), says("Done."))
	b.with(once("asker").does(func(ctx context.Context, call tools.Call) (tools.Result, error) {
		var all error
		for range 2 {
			_, err := call.Sample(ctx, question("moon"))
			all = errors.Join(all, err)
			call.Progress("going on")
		}
		return tools.Result{Text: "ok"}, all
	}))
	b.run(t.Context())
	n := 0
	for _, text := range b.notices() {
		if strings.Contains(text, "asked the model") {
			n++
		}
	}
	if n != 2 {
		t.Errorf("the events tell %q", b.notices())
	}
}
