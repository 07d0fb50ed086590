package agentturn_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// A library is a long text with a fact in every hundredth line.
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

// An extractor is a model that finds lines with a word, and ranks what it is
// shown in reverse.
type extractor struct {
	search func(text string) (inference.Response, error) // nil: it finds the lines that begin with "Fact"
	rank   func(passages int) (inference.Response, error)
	takes  time.Duration

	mu       sync.Mutex
	asked    []inference.Request
	running  int
	most     int // that ran at once
	searches int
	ranks    int
}

func (x *extractor) Generate(ctx context.Context, req inference.Request, _ func(inference.Delta)) (inference.Response, error) {
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
		picks = append(picks, map[string]any{"index": i, "confidence": 0.5 + 0.01*float64(i)})
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
	return inference.Response{Text: "Here it is:\n```json\n" + string(text) + "\n```\nAnything else?", FinishReason: "stop", Usage: callUsage}
}

func found(confidence float64, texts ...string) inference.Response {
	if texts == nil {
		texts = []string{}
	}
	return answered(map[string]any{"snippets": texts, "confidence": confidence})
}

// extractBench is a turn that fetches the library and has it searched once a
// query; small windows make many chunks of it.
func extractBench(t *testing.T, x *extractor, queries ...string) *bench {
	runs := 0
	steps := []inferencetest.Step{asksFor("big", "c1", `{}`)}
	for i, query := range queries {
		steps = append(steps, asksFor("get_tool_output", fmt.Sprint("x", i), fmt.Sprintf(`{"id":"c1","mode":"extract","query":%q}`, query)))
	}
	b := pagedBench(t, library, &runs, append(steps, says("Done."))...)
	b.models["aux/x"] = x
	b.windows["aux/x"] = 2048
	b.def.ExtractionModel = "aux/x"
	return b
}

// shownBy is what the model was shown of a call.
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

// extractionOf reads a result, and checks every position and hash in it.
func extractionOf(t *testing.T, shown, source string) outputs.Extraction {
	t.Helper()
	var x outputs.Extraction
	decoder := json.NewDecoder(strings.NewReader(shown))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&x); err != nil {
		t.Fatalf("%v: %s", err, shown)
	}
	if x.SourceHash != sha(source) || x.SourceSizeBytes != int64(len(source)) {
		t.Errorf("the source is %s, %d bytes", x.SourceHash, x.SourceSizeBytes)
	}
	for _, s := range x.Snippets {
		if source[s.StartByte:s.EndByte] != s.Text || sha(s.Text) != s.SHA256 ||
			int64(utf8.RuneCountInString(source[:s.StartByte])) != s.StartChar || s.EndChar-s.StartChar != int64(utf8.RuneCountInString(s.Text)) {
			t.Errorf("%+v does not stand there", s)
		}
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

// A long text is searched chunk by chunk, beside each other within a bound; what
// was found is ranked, and what it took is the call's and the turn's.
func TestExtraction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &extractor{takes: time.Second}
		b := extractBench(t, x, "the answers")
		if outcome := b.run(t.Context()); outcome.State != turnkeeper.TurnSucceeded {
			t.Fatalf("the turn ended %s", outcome.State)
		}
		got := extractionOf(t, b.shownBy("x0"), library)
		want := []string{}
		for n := range 10 {
			want = append(want, fact(9-n))
		}
		if diff := cmp.Diff(want, textsOf(got)); diff != "" {
			t.Errorf("snippets (-want +got)\n%s", diff)
		}
		if got.ChunksSearched != x.searches || got.ChunksTotal != x.searches || x.searches < 15 || x.ranks != 1 || got.Confidence != 0.59 || got.NoMatchReason != "" {
			t.Errorf("%d searches, %d ranks, %+v", x.searches, x.ranks, got)
		}
		if x.most != 4 {
			t.Errorf("%d model calls ran at once", x.most)
		}
		used := turnkeeper.Usage{}
		for range x.searches + x.ranks {
			used = used.Add(callUsage)
		}
		if call := b.callWith("x0"); call.Usage != used || call.State != turnkeeper.CallSucceeded || b.store.turn.Usage != used {
			t.Errorf("the call is %s and took %+v, the turn %+v; want %+v", call.State, call.Usage, b.store.turn.Usage, used)
		}
		if n := b.store.outputs[0].Retrieved; n != 1 {
			t.Errorf("it was retrieved %d times", n)
		}
		for _, request := range x.asked {
			if request.Tools != nil || request.Model != "x" || !strings.Contains(request.Messages[0].Text, "do not follow them") {
				t.Errorf("a request has tools, or another model, or no warning: %+v", request)
			}
		}
	})
}

// budget allows so many calls, and keeps account.
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

var errDown = &inference.Error{Class: inference.ClassTransport, Provider: "aux", Model: "x", Detail: "secret-host is down"}

// What fails for good is said, with the beginning and the end of the text within
// the cap, and the output can be read on.
func TestAnExtractionThatFails(t *testing.T) {
	failing := func(err error) *extractor {
		return &extractor{search: func(string) (inference.Response, error) { return inference.Response{}, err }}
	}
	for name, c := range map[string]struct {
		x        *extractor
		set      func(*bench)
		reason   string
		searches int // for each of the four chunks after which the others are given up
	}{
		"the model is down":      {failing(errDown), nil, "the model could not be reached", 3},
		"the key is wrong":       {failing(&inference.Error{Class: inference.ClassAuth}), nil, "the model is not available at present", 1},
		"the model talks":        {&extractor{search: func(string) (inference.Response, error) { return says2("I would rather not."), nil }}, nil, "the model gave no usable answer", 3},
		"the model panics":       {&extractor{search: func(string) (inference.Response, error) { panic("boo") }}, nil, "something went wrong inside the service", 1},
		"there is no time":       {&extractor{takes: time.Hour}, nil, "there was no time left for it", 0},
		"there is no such model": {&extractor{}, func(b *bench) { b.def.ExtractionModel = "aux/none" }, "the model is not available at present", 0},
		"the budget is used up":  {&extractor{}, func(b *bench) { b.budget = &budget{left: 2} }, "the budget allows no more model calls", 0},
		"the window is tiny":     {&extractor{}, func(b *bench) { b.windows["aux/x"] = 300 }, "the text does not fit into the model's window", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := extractBench(t, c.x, "the answers")
				b.bounds.MaxToolResultChars = 1000
				if c.set != nil {
					c.set(b)
				}
				b.script.Then(says("Done."))
				b.run(t.Context())
				chars := []rune(library)
				total := len(chars)
				got := b.shownBy("x0")
				head, tail := 0, 0
				form := "[extraction failed: " + c.reason + ". The first %d and the last %d of %d chars follow; use get_tool_output(\"c1\", mode) with mode \"slice\" to read more]"
				if _, err := fmt.Sscanf(got, strings.ReplaceAll(form, "%d of %d", "%d of "+fmt.Sprint(total)), &head, &tail); err != nil {
					t.Fatalf("%v: %q", err, got)
				}
				want := fmt.Sprintf(form, head, tail, total) + "\n\n" + string(chars[:head]) +
					fmt.Sprintf("\n\n[... %d chars omitted ...]\n\n", total-head-tail) + string(chars[total-tail:])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if n := utf8.RuneCountInString(got); n > 1000 || n < 980 || head-tail > 1 || head < tail {
					t.Errorf("%d characters, %d and %d of the text", n, head, tail)
				}
				const begun = 7 // the last of the four fails when three more are under way
				if c.x.searches < 4*c.searches || c.x.searches > begun*c.searches {
					t.Errorf("%d searches", c.x.searches)
				}
				if state := b.callWith("x0").State; state != turnkeeper.CallSucceeded {
					t.Errorf("the call %s", state)
				}
			})
		})
	}
}

func says2(text string) inference.Response {
	return inference.Response{Text: text, FinishReason: "stop", Usage: callUsage}
}

var _ = errors.New
var _ = slices.Sort[[]int]
var _ tools.Tool
