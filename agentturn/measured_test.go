package agentturn_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"turnkeeper/agentturn/prompt"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

// counts returns a step that answers, and reports the given number of input tokens.
func counts(res inference.Response, input int64) inferencetest.Step {
	res.Usage = turnkeeper.Usage{InputTokens: input, OutputTokens: 5}
	return inferencetest.Answer(res)
}

// reportsTimes returns a step that answers, and reports as input tokens the heuristic
// estimate of the request's texts times a factor.
func reportsTimes(factor float64, res inference.Response) inferencetest.Step {
	return inferencetest.Func(func(_ context.Context, r inference.Request,
		_ func(inference.Delta)) (inference.Response, error) {
		answer := res
		answer.Usage = turnkeeper.Usage{InputTokens: int64(factor * float64(estimateOf(r))), OutputTokens: 5}
		return answer, nil
	})
}

// estimateOf estimates the tokens of a request's texts with the heuristic.
func estimateOf(r inference.Request) int {
	n := 0
	for _, m := range r.Messages {
		n += 4 + prompt.HeuristicTokens{}.CountText(m.Text)
	}
	return n
}

func (b *bench) recipes() (all []turnkeeper.Recipe) {
	b.t.Helper()
	for _, round := range b.store.rounds() {
		if round.Recipe == nil {
			b.t.Fatalf("round %d has no recipe", round.Number)
		}
		all = append(all, *round.Recipe)
	}
	return all
}

// startOf returns the epoch that began with a request. If it extends another one, startOf fails the test.
func (b *bench) startOf(r turnkeeper.Recipe) turnkeeper.Epoch {
	b.t.Helper()
	if r.Start == nil {
		b.t.Fatalf("the request extends the epoch %v: %+v", r.Epoch, r)
	}
	return *r.Start
}

// dropped returns the results that requests of the turn left out.
func (b *bench) dropped() (all string) {
	for _, r := range b.recipes() {
		if r.Start != nil {
			all += r.Start.Dropped
		}
	}
	return all
}

func gives(name string, chars int) *tool {
	text := strings.Repeat("a long word ", chars/12+1)[:chars]
	return read(name).does(func(context.Context, tools.Call) (tools.Result, error) {
		return tools.Result{Text: text}, nil
	})
}

// TestReportsCorrectEstimates checks that reports above the estimates make later requests
// smaller, and that another process that continues the turn applies the same correction.
func TestReportsCorrectEstimates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t).with(gives("look", 3000))
		b.bounds.MaxRounds, b.bounds.MaxToolCalls = 6, 100
		n := 0
		b.script.Then(inferencetest.Func(func(ctx context.Context, r inference.Request,
			d func(inference.Delta)) (inference.Response, error) {
			n++
			return reportsTimes(2, asking("", fmt.Sprintf(`look {"n":%d}`, n)))(ctx, r, d)
		}))
		b.def.ContextWindow, b.def.MaxOutputTokens = 6000, 500
		b.run(t.Context())
		recipes := b.recipes()
		if recipes[0].Window.Factor != 1 {
			t.Errorf("the first request is corrected by %v", recipes[0].Window.Factor)
		}
		last := recipes[len(recipes)-1]
		if f := last.Window.Factor; f < 1.5 || f > 2 || b.dropped() == "" {
			t.Errorf("the last request is corrected by %v, and lacks %q", f, b.dropped())
		}
		for i, r := range recipes {
			if room := float64(r.Window.Room()); float64(r.Window.Estimate())*r.Window.Factor > room+1 {
				t.Errorf("round %d takes more than its room: %+v", i+1, r.Window)
			}
		}
		// Another process takes over the same turn before its last round.
		written := b.store.entries
		b.store = newStore()
		_, journal := b.store.dispatch()
		for _, e := range written[:slices.IndexFunc(written, func(e turnlog.Entry) bool {
			return e.Round != nil && e.Round.Number == len(recipes)
		})] {
			if err := journal.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		again, journal := b.store.dispatch()
		if _, err := b.resume(t.Context(), again, journal); err != nil {
			t.Fatal(err)
		}
		resumed := b.recipes()[len(recipes)-1]
		if diff := cmp.Diff(last, resumed); diff != "" {
			t.Errorf("the resumed turn's request differs (-before +resumed):\n%s", diff)
		}
	})
}

// TestAProcessKeepsWhatItLearnt checks that a process applies the correction of a model
// to its next turn.
func TestAProcessKeepsWhatItLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.def.Prompt = strings.Repeat("Test well. ", 200)
		b.script.Then(reportsTimes(1.5, inference.Response{Text: "done", FinishReason: "stop"}))
		runner := b.runner()
		factors := []float64{}
		for range 2 {
			record, journal := b.store.dispatch()
			if _, err := runner.Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def},
				journal); err != nil {
				t.Fatal(err)
			}
			factors = append(factors, b.recipes()[0].Window.Factor)
			b.store = newStore()
		}
		if factors[0] != 1 || factors[1] < 1.4 || factors[1] > 1.5 {
			t.Errorf("the factors are %v", factors)
		}
	})
}

// TestASilentCutIsSaid checks that the next notice reports a request that the provider
// seems to have truncated. The provider's count of tokens is the only sign of it.
func TestASilentCutIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		usage turnkeeper.Usage
		cut   bool
	}{
		"cut":                    {turnkeeper.Usage{InputTokens: 1000, OutputTokens: 5}, true},
		"cached and not counted": {turnkeeper.Usage{InputTokens: 100, CachedTokens: 9000, OutputTokens: 5}, false},
		"counted":                {turnkeeper.Usage{InputTokens: 8000, CachedTokens: 7000, OutputTokens: 5}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := asking("", "look")
				answer.Usage = c.usage
				b := newBench(t, inferencetest.Answer(answer),
					counts(inference.Response{Text: "done", FinishReason: "stop"}, 9000)).with(read("look"))
				b.store.body = strings.Repeat("a long word ", 2500)
				b.bounds.MaxRounds = 5
				b.run(t.Context())
				const said = "The provider seems to have cut the last request: it counted 1000 tokens of about"
				requests := b.requests()
				end := requests[1].Messages[len(requests[1].Messages)-1]
				if told := strings.HasPrefix(end.Text, "# System Notice\n\n"+said); told != c.cut {
					t.Errorf("the next request ends with %q", end.Text)
				}
				if got := b.recipes()[0].Cut; got != c.cut {
					t.Errorf("the round's diagnostics say %v", got)
				}
				logged := b.logged(
					"the provider seems to have truncated the request: it counted far fewer tokens than were sent")
				if logged == 1 != c.cut {
					t.Errorf("it was logged %d times", logged)
				}
			})
		})
	}
}

func overflows(have, limit int) inferencetest.Step {
	return inferencetest.Fail(&inference.Error{
		Class: inference.ClassContextOverflow, Provider: "main", Model: "model", Status: 400, Have: have, Limit: limit,
		Detail: "prompt is too long",
	})
}

// TestAnOverflowIsHandledOnce checks that a request that the provider refuses as too long
// is sent once more in a smaller form, and only once a turn.
func TestAnOverflowIsHandledOnce(t *testing.T) {
	const sentAgain = "the provider refused the request as too long; sending a smaller one"
	long := strings.Repeat("a long word ", 1000)
	t.Run("in round 1, with a long history", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, overflows(0, 0), says("done"))
			for id := range turnkeeper.TurnID(3) {
				b.store.history = append(b.store.history, turnlog.Past{TurnID: id + 1, Body: "old", Reply: long})
			}
			got := b.run(t.Context())
			requests := b.requests()
			if got.State != turnkeeper.TurnSucceeded || got.Reply != "done" || len(requests) != 2 {
				t.Fatalf("%+v after %d requests", got, len(requests))
			}
			if first, second := len(requests[0].Messages), len(requests[1].Messages); first != 8 || second != 4 {
				t.Errorf("%d messages, then %d", first, second)
			}
			if !strings.Contains(requests[1].Messages[0].Text, "[2 earlier turns of this conversation are not shown") {
				t.Errorf("the second request does not say that a turn is missing: %q", requests[1].Messages[0].Text)
			}
			r := b.recipes()[0]
			if b.startOf(r).Room == 0 || b.startOf(r).Omitted != 2 || b.store.rounds()[0].Attempts != 2 ||
				b.logged(sentAgain) != 1 {
				t.Errorf("%+v, %d attempts, logged %d times", r, b.store.rounds()[0].Attempts, b.logged(sentAgain))
			}
		})
	})
	t.Run("in the middle, by the provider's numbers, and for the rest of the turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("look"), asks(`look {"n":2}`), overflows(9000, 6000), asks(`look {"n":3}`),
				says("done")).with(gives("look", 6000))
			b.bounds.MaxRounds = 6
			b.store.body = strings.Repeat("word ", 200)
			got := b.run(t.Context())
			if requests := b.requests(); got.State != turnkeeper.TurnSucceeded || len(requests) != 5 {
				t.Fatalf("%+v after %d requests", got, len(requests))
			}
			recipes := b.recipes()
			if recipes[1].Start != nil || b.startOf(recipes[2]).Room == 0 || b.startOf(recipes[2]).Dropped == "" {
				t.Errorf("round 2: %+v\nround 3: %+v", recipes[1], recipes[2])
			}
			if e := b.startOf(recipes[3]); e.Room != recipes[2].Start.Room || recipes[3].Window.Estimate() > e.Room {
				t.Errorf("round 4 is not held to it: %+v", recipes[3])
			}
		})
	})
	t.Run("a second one goes by the rules for failures", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("look"), overflows(0, 0), overflows(0, 0)).with(gives("look", 6000))
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.StopReason != turnkeeper.StopInferenceError ||
				got.ErrorClass != "context_overflow" {
				t.Errorf("%+v", got)
			}
			if n := len(b.requests()); n != 3 || b.logged(sentAgain) != 1 {
				t.Errorf("%d requests; it was cut down %d times", n, b.logged(sentAgain))
			}
		})
	})
	t.Run("what cannot be smaller is not sent again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, overflows(0, 0))
			b.store.body = long
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || got.ErrorClass != "context_overflow" || len(b.requests()) != 1 ||
				b.logged(sentAgain) != 0 {
				t.Errorf("%+v after %d requests; logged %d times that a smaller one is sent", got, len(b.requests()),
					b.logged(sentAgain))
			}
		})
	})
	t.Run("a turn that goes on elsewhere keeps to it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, asks("look"), overflows(0, 0), asks(`look {"n":2}`)).with(gives("look", 6000))
			b.bounds.MaxRounds = 6
			ctx, stop := context.WithCancelCause(t.Context())
			b.script.Then(inferencetest.Func(func(context.Context, inference.Request,
				func(inference.Delta)) (inference.Response, error) {
				stop(agentturn.ErrShutdown)
				return inference.Response{}, context.Cause(ctx)
			}))
			if got, err := b.dispatch(ctx); err != nil || got.State != turnkeeper.TurnQueued {
				t.Fatalf("%+v %v", got, err)
			}
			b.script.Then(overflows(0, 0))
			got := b.run(t.Context())
			if got.State != turnkeeper.TurnFailed || b.logged(sentAgain) != 0 {
				t.Errorf("%+v; cut down %d times more", got, b.logged(sentAgain))
			}
		})
	})
}

// A slowCounter is a tokenizer that records the texts it counts.
type slowCounter struct {
	prompt.HeuristicTokens
	counted *[]string
}

func (slowCounter) Exact() bool { return true }

func (c slowCounter) CountText(text string) int {
	*c.counted = append(*c.counted, text)
	return c.HeuristicTokens.CountText(text)
}

// TestATextIsTokenizedOnce checks that a process tokenizes a long text, such as the
// system prompt, once for all turns.
func TestATextIsTokenizedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t).with(gives("look", 3000))
		b.script.Then(says("done"))
		var counted []string
		runner := b.runnerWith(func(c *agentturn.Config) {
			c.Tokens = func(string) prompt.TokenCounter { return slowCounter{counted: &counted} }
		})
		long := strings.Repeat("long ago ", 100)
		for n := range 3 {
			b.store = newStore()
			b.store.history = []turnlog.Past{{TurnID: 1, Body: "old", Reply: long}}
			b.store.body = fmt.Sprint(n, strings.Repeat(" words", 100))
			record, journal := b.store.dispatch()
			if _, err := runner.Run(t.Context(), agentturn.Assignment{Record: record, Definition: b.def},
				journal); err != nil {
				t.Fatal(err)
			}
		}
		times := map[string]int{}
		for _, text := range counted {
			if len(text) >= 256 {
				times[text]++
			}
		}
		if times[long] != 1 || len(times) != 5 {
			t.Errorf("the long reply was counted %d times, and %d long texts in all", times[long], len(times))
		}
	})
}

// TestWhatGaveWayIsReadAgain checks that a result that was dropped from a request can be
// read by the handle in the line that replaces it, whether it had been stored or shown
// whole.
func TestWhatGaveWayIsReadAgain(t *testing.T) {
	handle := regexp.MustCompile(
		`^\[result of look dropped to fit the context window; to read it again call get_tool_output\("([^"]+)", mode\) ` +
			`or get_continuation with tool_call_id="([^"]+)" offset=0\]$`)
	for name, chars := range map[string]int{"shown whole": 4000, "stored": 7000} {
		for _, reader := range []string{turnkeeper.ToolGetContinuation, turnkeeper.ToolGetToolOutput} {
			t.Run(name+"/"+reader, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, look := 0, read("look")
					b := newBench(t, asks("look"), asks(`look {"n":2}`), asks(`look {"n":3}`)).with(
						look.does(func(context.Context, tools.Call) (tools.Result, error) {
							n++
							return tools.Result{Text: strings.Repeat(fmt.Sprintf("%d words ", n), chars/8)}, nil
						}))
					b.tools = append(b.tools, builtin.NewReaders()...)
					b.def.ContextWindow, b.def.MaxOutputTokens, b.bounds.MaxRounds = 4400, 500, 20
					asked := inferencetest.Func(func(_ context.Context, r inference.Request,
						_ func(inference.Delta)) (inference.Response, error) {
						m := handle.FindStringSubmatch(results(r)[0])
						if m == nil || m[1] != m[2] {
							t.Fatalf("the first result is %.200q", results(r)[0])
						}
						arguments := fmt.Sprintf(`{"tool_call_id":%q,"offset":0}`, m[1])
						if reader == turnkeeper.ToolGetToolOutput {
							arguments = fmt.Sprintf(`{"id":%q,"mode":"raw"}`, m[1])
						}
						return inference.Response{Calls: []inference.Call{{ID: "again", Name: reader,
							Arguments: arguments}}}, nil
					})
					var last string
					steps := 0
					b.script.Then(inferencetest.Func(func(ctx context.Context, r inference.Request,
						d func(inference.Delta)) (inference.Response, error) {
						if steps++; steps == 1 {
							return asked(ctx, r, d)
						}
						last = lastResult(r)
						return inference.Response{Text: "Read.", FinishReason: "stop"}, nil
					}))
					b.run(t.Context())
					if want := strings.Repeat("1 words ", chars/8)[:4000]; !strings.HasPrefix(last, want) || n != 3 {
						t.Errorf("the tool ran %d times; read again was %.60q", n, last)
					}
				})
			})
		}
	}
}
