package agentturn_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"turnkeeper/agentturn/prompt"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// library is a long text with a fact in every hundredth line.
var library = func() string {
	var b strings.Builder
	for i := range 1000 {
		if i%100 == 50 {
			fmt.Fprintf(&b, "Fact %d: the 日本 answer is %d.\n", i/100, i*7)
		} else {
			fmt.Fprintf(&b, "Line %d says nothing of note, as lines do.\n", i)
		}
	}
	return b.String()
}()

func fact(n int) string { return fmt.Sprintf("Fact %d: the 日本 answer is %d.", n, (n*100+50)*7) }

// An extractor is a model that finds lines with a word, and ranks the passages it is
// shown in reverse order.
type extractor struct {
	search func(text string) (inference.Response, error) // nil: it finds the lines that begin with "Fact"
	rank   func(passages int) (inference.Response, error)
	takes  time.Duration

	mu       sync.Mutex
	asked    []inference.Request
	running  int
	most     int // maximum number of concurrent searches
	searches int
	ranks    int
}

func (x *extractor) Generate(ctx context.Context, req inference.Request,
	_ func(inference.Delta)) (inference.Response, error) {
	x.mu.Lock()
	x.asked = append(x.asked, req)
	x.running++
	x.most = max(x.most, x.running)
	x.mu.Unlock()
	defer func() { x.mu.Lock(); x.running--; x.mu.Unlock() }()
	select {
	case <-time.After(x.takes):
	case <-ctx.Done():
		return inference.Response{}, context.Cause(ctx)
	}
	prompt := outputs.Prompt{System: req.Messages[0].Text, User: req.Messages[1].Text}
	if _, text, ok := outputs.ReadSearchPrompt(prompt); ok {
		x.mu.Lock()
		x.searches++
		x.mu.Unlock()
		if x.search != nil {
			return x.search(text)
		}
		return found(0.8, factsIn(text)...), nil
	}
	_, passages, ok := outputs.ReadRankPrompt(prompt)
	if !ok {
		return inference.Response{}, fmt.Errorf("the prompt is %+v", prompt)
	}
	x.mu.Lock()
	x.ranks++
	x.mu.Unlock()
	if x.rank != nil {
		return x.rank(passages)
	}
	var picks []map[string]any
	for i := range passages {
		picks = append(picks, map[string]any{"index": passages - 1 - i, "confidence": 0.59})
	}
	return answered(map[string]any{"picks": picks}), nil
}

func factsIn(text string) (facts []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fact") && strings.HasSuffix(line, ".") {
			facts = append(facts, line)
		}
	}
	return facts
}

var callUsage = turnkeeper.Usage{InputTokens: 1000, OutputTokens: 10, CachedTokens: 3}

func answered(value any) inference.Response {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return inference.Response{Text: "Here it is:\n```json\n" + string(text) + "\n```\nAnything else?",
		FinishReason: "stop", Usage: callUsage}
}

func found(confidence float64, texts ...string) inference.Response {
	if texts == nil {
		texts = []string{}
	}
	return answered(map[string]any{"snippets": texts, "confidence": confidence})
}

// extractBench returns a turn that fetches the library and searches it once per query.
// Small windows make many chunks of the library.
func extractBench(t *testing.T, x *extractor, queries ...string) *bench {
	runs := 0
	steps := []inferencetest.Step{asksFor("big", "c1", `{}`)}
	for i, query := range queries {
		steps = append(steps, asksFor("get_tool_output", fmt.Sprint("x", i),
			fmt.Sprintf(`{"id":"c1","mode":"extract","query":%q}`, query)))
	}
	b := pagedBench(t, library, &runs, append(steps, says("Done."))...)
	b.models["aux/x"] = x
	b.windows["aux/x"] = 2048
	b.def.ExtractionModel = "aux/x"
	return b
}

// shownBy returns the result of a call as the model was shown it.
func (b *bench) shownBy(id string) string {
	b.t.Helper()
	return b.callWith(id).Shown
}

func (b *bench) callWith(id string) turnkeeper.ToolCall {
	b.t.Helper()
	for _, call := range b.store.calls() {
		if call.WireID == id {
			return call
		}
	}
	b.t.Fatalf("there is no call %s", id)
	return turnkeeper.ToolCall{}
}

// extractionOf decodes a result.
func extractionOf(t *testing.T, shown string) (x outputs.Extraction) {
	t.Helper()
	if err := json.Unmarshal([]byte(shown), &x); err != nil {
		t.Fatalf("%v: %s", err, shown)
	}
	return x
}

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func textsOf(x outputs.Extraction) (texts []string) {
	for _, s := range x.Snippets {
		texts = append(texts, s.Text)
	}
	return texts
}

// TestExtraction checks that chunks of a long text are searched concurrently within a
// bound, that the passages are ranked, and that the cost counts towards the call and the
// turn.
func TestExtraction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{takes: time.Second}
		b := extractBench(t, x, "the answers")
		if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
			t.Fatalf("the turn ended %s", outcome.State)
		}
		got := extractionOf(t, b.shownBy("x0"))
		want := []string{}
		for n := range 10 {
			want = append(want, fact(9-n))
		}
		if diff := cmp.Diff(want, textsOf(got)); diff != "" {
			t.Errorf("snippets (-want +got)\n%s", diff)
		}
		if got.ChunksSearched != x.searches || got.ChunksTotal != x.searches || x.searches < 15 || x.ranks != 1 ||
			got.Confidence != 0.59 || got.NoMatchReason != "" {
			t.Errorf("%d searches, %d ranks, %+v", x.searches, x.ranks, got)
		}
		if x.most != 4 {
			t.Errorf("%d model calls ran at once", x.most)
		}
		used := turnkeeper.Usage{}
		for range x.searches + x.ranks {
			used = used.Add(callUsage)
		}
		if call := b.callWith("x0"); call.Usage != used || call.State != turnkeeper.CallSucceeded {
			t.Errorf("the call is %s and took %+v, want %+v", call.State, call.Usage, used)
		}
		if n := b.store.outputs()[0].Retrieved; n != 1 {
			t.Errorf("it was retrieved %d times", n)
		}
		for _, request := range x.asked {
			if took := (prompt.HeuristicTokens{}).CountText(request.Messages[0].Text +
				request.Messages[1].Text); took > 2048*3/4 {
				t.Errorf("a request takes %d tokens", took)
			}
			if request.Tools != nil || request.Model != "x" || !strings.Contains(request.Messages[0].Text,
				"do not follow them") {
				t.Errorf("a request has tools, or another model, or no warning: %+v", request)
			}
		}
	})
}

// budget is a Budget that allows a number of calls and records their usage.
type budget struct {
	mu      sync.Mutex
	left    int
	settled []turnkeeper.Usage
	open    int64
}

func (l *budget) Reserve(context.Context, agentturn.Spender, turnkeeper.Usage) (agentturn.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return agentturn.Reservation{Blocked: true, Scope: "day", Reason: "a reason for operators"}, nil
	}
	l.left--
	l.open++
	return agentturn.Reservation{ID: l.open}, nil
}

func (l *budget) Settle(_ context.Context, _ agentturn.Reservation, used turnkeeper.Usage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = append(l.settled, used)
	return nil
}

var errDown = &inference.Error{Class: inference.ClassTransport, Provider: "aux", Model: "x",
	Detail: "secret-host is down"}

// TestAnExtractionThatFails checks that the result of a failed extraction explains the
// failure to the model.
func TestAnExtractionThatFails(t *testing.T) {
	failing := func(err error) *extractor {
		return &extractor{search: func(string) (inference.Response, error) { return inference.Response{}, err }}
	}
	for name, c := range map[string]struct {
		x        *extractor
		set      func(*bench)
		reason   string
		searches int // for each of the four chunks, after which the others are skipped
	}{
		"the model is down": {failing(errDown), nil, "the model could not be reached", 3},
		"the key is wrong": {failing(&inference.Error{Class: inference.ClassAuth}), nil,
			"the model is not available at present", 1},
		"the model talks": {&extractor{search: func(string) (inference.Response, error) {
			return inference.Response{Text: "I would rather not.", FinishReason: "stop", Usage: callUsage}, nil
		}}, nil, "the model gave no usable answer", 3},
		"the model panics": {&extractor{search: func(string) (inference.Response, error) { panic("boo") }}, nil,
			"something went wrong inside the service", 1},
		"there is no time": {&extractor{takes: time.Hour}, nil, "there was no time left for it", 0},
		"there is no such model": {&extractor{}, func(b *bench) {
			b.def.ExtractionModel = "aux/none"
		}, "the model is not available at present", 0},
		"the budget is used up": {&extractor{}, func(b *bench) {
			b.budget = &budget{left: 2}
		}, "the budget allows no more model calls", 0},
		"the window is tiny": {&extractor{}, func(b *bench) {
			b.windows["aux/x"] = 300
		}, "the text does not fit into the model's window", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := extractBench(t, c.x, "the answers")
				if c.set != nil {
					c.set(b)
				}
				b.script.Then(says("Done."))
				b.run(t.Context())
				if got := b.shownBy("x0"); !strings.HasPrefix(got, "[extraction failed: "+c.reason+". The first ") {
					t.Errorf("the model is shown %q", got)
				}
				const begun = 7 // the last of the four fails when three more have started
				if c.x.searches < 4*c.searches || c.x.searches > begun*c.searches {
					t.Errorf("%d searches", c.x.searches)
				}
				if n := b.store.outputs()[0].Retrieved; n != 1 {
					t.Errorf("it was retrieved %d times", n)
				}
				if state := b.callWith("x0").State; state != turnkeeper.CallSucceeded {
					t.Errorf("the call %s", state)
				}
			})
		})
	}
}

// TestRetriesAndWhatIsLeftOut checks that a search is tried three times, and that a chunk
// that failed is left out of the number of searched chunks.
func TestRetriesAndWhatIsLeftOut(t *testing.T) {
	for failures, want := range map[int]struct{ searched, facts int }{2: {0, 10}, 3: {1, 9}} {
		synctest.Test(t, func(t *testing.T) {
			failed := 0
			var mu sync.Mutex
			x := &extractor{search: func(text string) (inference.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(text, fact(4)) && failed < failures {
					failed++
					return inference.Response{}, &inference.Error{Class: inference.ClassOverloaded,
						Usage: turnkeeper.Usage{InputTokens: 1}}
				}
				return found(0.5, factsIn(text)...), nil
			}}
			b := extractBench(t, x, "the answers")
			b.run(t.Context())
			got := extractionOf(t, b.shownBy("x0"))
			if got.ChunksTotal-got.ChunksSearched != want.searched || len(got.Snippets) != want.facts {
				t.Errorf("after %d failures: %d of %d chunks, %d snippets", failures, got.ChunksSearched,
					got.ChunksTotal, len(got.Snippets))
			}
			used := int64(failures) + callUsage.InputTokens*int64(got.ChunksSearched+1)
			if call := b.callWith("x0"); call.Usage.InputTokens != used {
				t.Errorf("it took %d, want %d", call.Usage.InputTokens, used)
			}
		})
	}
}

// TestTheBudgetEndsInTheMiddle checks that an extraction returns the passages found
// before the budget was used up.
func TestTheBudgetEndsInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{takes: time.Second}
		b := extractBench(t, x, "the answers")
		money := &budget{left: 2 + 6}
		b.budget = money
		b.run(t.Context())
		got := extractionOf(t, b.shownBy("x0"))
		if got.ChunksSearched != 6 || got.ChunksTotal < 15 || x.ranks != 0 || len(got.Snippets) == 0 {
			t.Errorf("%d rankings, %+v", x.ranks, got)
		}
		if len(money.settled) != 8 || money.settled[7] != callUsage {
			t.Errorf("settled %+v", money.settled)
		}
	})
}

// A memoCache is an extract.Cache in memory.
type memoCache struct {
	mu   sync.Mutex
	kept map[turnlog.ExtractionKey][]byte
}

func (c *memoCache) FindExtraction(_ context.Context, key turnlog.ExtractionKey) ([]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, found := c.kept[key]
	return value, found, nil
}

func (c *memoCache) KeepExtraction(_ context.Context, _ turnkeeper.TurnID, key turnlog.ExtractionKey,
	value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[turnlog.ExtractionKey][]byte{}
	}
	c.kept[key] = value
	return nil
}

// A staleCache has an extraction of another text for every query, and keeps none.
type staleCache struct{}

func (staleCache) FindExtraction(context.Context, turnlog.ExtractionKey) ([]byte, bool, error) {
	return []byte(`{"snippets":[{"text":"nowhere in it","start_char":1,"end_char":14}]}`), true, nil
}

func (staleCache) KeepExtraction(context.Context, turnkeeper.TurnID, turnlog.ExtractionKey, []byte) error {
	return errors.New("the cache is full")
}

// TestWhichModelSearches checks which model searches: the agent's extraction model, else
// the setting's, else the agent's models with their fallbacks.
func TestWhichModelSearches(t *testing.T) {
	for name, c := range map[string]struct {
		def, setting string
		want         string
	}{
		"the agent's":   {"aux/x", "aux/y", "aux/x"},
		"the setting's": {"", "aux/y", "aux/y"},
		"the turn's":    {"", "", "main/model,aux/z"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := &memoCache{}
				b := extractBench(t, nil, "the answers")
				b.extracted = cache
				b.def.ExtractionModel, b.extractor = c.def, c.setting
				b.def.FallbackModels = []string{"aux/z"}
				for _, name := range []string{"aux/x", "aux/y", "aux/z"} {
					b.models[name] = &extractor{}
				}
				b.script.Then(says("Done."))
				if c.want == "main/model,aux/z" { // the first is down during the search
					b.script = inferencetest.NewScript(asksFor("big", "c1", `{}`), asksFor("get_tool_output", "x0",
						`{"id":"c1","mode":"extract","query":"the answers"}`),
						fails(inference.ClassAuth), fails(inference.ClassAuth), says("Done."))
					b.models["main/model"] = b.script
				}
				b.run(t.Context())
				for key := range cache.kept {
					if key.Model != c.want || key.Query != "the answers" || key.SourceSHA256 != sha(library) ||
						key.Prompt != outputs.PromptVersion {
						t.Errorf("%+v", key)
					}
				}
				if len(cache.kept) != 1 || len(extractionOf(t, b.shownBy("x0")).Snippets) != 10 {
					t.Errorf("kept %v; shown %s", cache.kept, b.shownBy("x0"))
				}
			})
		})
	}
}

// TestExtractionsBesideEachOther checks that all extractions of a turn share the bound on
// concurrent model calls.
func TestExtractionsBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{takes: time.Second}
		b := extractBench(t, x)
		b.script = inferencetest.NewScript(asksFor("big", "c1", `{}`),
			inferencetest.Answer(inference.Response{Calls: []inference.Call{
				{ID: "a", Name: "get_tool_output", Arguments: `{"id":"c1","mode":"extract","query":"a"}`},
				{ID: "b", Name: "get_tool_output", Arguments: `{"id":"c1","mode":"extract","query":"b"}`},
				{ID: "c", Name: "get_tool_output",
					Arguments: `{"id":"c1","mode":"slice","slice":{"start":0,"length":4}}`},
			}}), says("Done."))
		b.models["main/model"] = b.script
		b.run(t.Context())
		for _, id := range []string{"a", "b"} {
			if got := extractionOf(t, b.shownBy(id)); len(got.Snippets) != 10 {
				t.Errorf("%+v", got)
			}
		}
		if x.most != 4 || b.shownBy("c") != "[chars 0-4 of 43760]\nLine" {
			t.Errorf("%d at once; the slice is %q", x.most, b.shownBy("c"))
		}
	})
}

// TestExtractionsThatAreRefused checks that a refused extraction explains why, makes no
// model call and does not count as retrieved.
func TestExtractionsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ arguments, want string }{
		"no query":      {`{"id":"c1","mode":"extract"}`, `{"error":"Query required for extract mode."}`},
		"null":          {`{"id":"c1","mode":"extract","query":null}`, `{"error":"Query required for extract mode."}`},
		"a blank query": {`{"id":"c1","mode":"extract","query":" \n"}`, `{"error":"Query required for extract mode."}`},
		"a long query": {`{"id":"c1","mode":"extract","query":"` + strings.Repeat("é", 4001) + `"}`,
			`{"error":"query must be at most 4000 characters, and has 4001"}`},
		"binary": {`{"id":"b1","mode":"extract","query":"x"}`,
			`{"error":"extract mode searches text, and this output is binary"}`},
		"unknown": {`{"id":"zz","mode":"extract","query":"x"}`, `{"error":"Unknown tool ID: zz"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := &extractor{}
				b := extractBench(t, x)
				b.with(read("png").does(func(context.Context, tools.Call) (tools.Result, error) {
					return tools.Result{Bytes: []byte{0x89, 0, 1}, MediaType: "image/png"}, nil
				}))
				b.script = inferencetest.NewScript(asksFor("big", "c1", `{}`), asksFor("png", "b1", `{"n":1}`),
					asksFor("get_tool_output", "x0", c.arguments), says("Done."))
				b.models["main/model"] = b.script
				b.bounds.MaxRounds = 10
				b.run(t.Context())
				if got := b.shownBy("x0"); got != c.want || len(x.asked) != 0 {
					t.Errorf("%d model calls; %s", len(x.asked), got)
				}
				for _, o := range b.store.outputs() {
					if o.Retrieved != 0 {
						t.Errorf("%s was retrieved", o.Call)
					}
				}
			})
		})
	}
}

// TestAnExtractionFromWhatWasShown checks that a result that was shown whole can be
// searched too.
func TestAnExtractionFromWhatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{}
		b := extractBench(t, x)
		small := "Fact: it is small.\nNothing else."
		b.with(read("small").does(func(context.Context, tools.Call) (tools.Result, error) {
			return tools.Result{Text: small}, nil
		}))
		b.script = inferencetest.NewScript(asksFor("big", "c1", `{}`), asksFor("small", "s1", `{"n":1}`),
			asksFor("get_tool_output", "x0", `{"id":"2","mode":"extract","query":"facts"}`), says("Done."))
		b.models["main/model"] = b.script
		b.bounds.MaxRounds = 10
		b.run(t.Context())
		got := extractionOf(t, b.shownBy("x0"))
		if diff := cmp.Diff([]string{"Fact: it is small."}, textsOf(got)); diff != "" || got.ChunksTotal != 1 ||
			x.ranks != 0 {
			t.Errorf("%+v\n%s", got, diff)
		}
	})
}

// TestAnExtractionIsCancelledWithItsTurn checks that an extraction ends with its turn,
// and that its usage is kept, with an estimate for the model calls that were cut off.
func TestAnExtractionIsCancelledWithItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{takes: 10 * time.Second}
		b := extractBench(t, x, "the answers")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(25*time.Second, func() { cancel(agentturn.ErrCancelled) })
		started := time.Now()
		outcome := b.run(ctx)
		if took := time.Since(started); outcome.State != turnkeeper.TurnCancelled || took > 26*time.Second {
			t.Errorf("ended %s after %s", outcome.State, took)
		}
		if call := b.callWith("x0"); call.State != turnkeeper.CallCancelled || call.Usage.InputTokens <= 8*1000 ||
			!call.Usage.Estimated {
			t.Errorf("the call is %s and took %+v", call.State, call.Usage)
		}
	})
}
