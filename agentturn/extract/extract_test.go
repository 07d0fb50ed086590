package extract_test

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
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper"
	"turnkeeper/agentturn/extract"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
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

// facts returns the library's facts in reverse, the order in which they are ranked.
func facts() (all []string) {
	for n := range 10 {
		all = append(all, fact(9-n))
	}
	return all
}

func factsIn(text string) (facts []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Fact") && strings.HasSuffix(line, ".") {
			facts = append(facts, line)
		}
	}
	return facts
}

// An asker has one model, which finds lines with a fact and ranks passages in reverse.
type asker struct {
	window int                                // 0: 2048
	search func(text string) (string, error)  // nil: it finds the facts
	rank   func(passages int) (string, error) // nil: it reverses them
	takes  time.Duration
	none   error // error of asking for the model, if not nil

	mu       sync.Mutex
	asked    []outputs.Prompt
	running  int
	most     int // maximum number of concurrent calls
	searches int
	ranks    int
}

const answerTokens = 100

func count(text string) int { return (utf8.RuneCountInString(text) + 2) / 3 }

func (a *asker) Models() ([]extract.Model, error) {
	window := a.window
	if window == 0 {
		window = 2048
	}
	room := func(p outputs.Prompt) int { return window - answerTokens - count(p.System) - count(p.User) }
	return []extract.Model{{Name: "aux/x", Window: window, Count: count, Room: room}}, a.none
}

func (a *asker) Reason(err error) string { return "reason: " + err.Error() }

func (a *asker) Ask(ctx context.Context, p outputs.Prompt, accept func(string) error) error {
	a.mu.Lock()
	a.asked = append(a.asked, p)
	a.running++
	a.most = max(a.most, a.running)
	a.mu.Unlock()
	defer func() { a.mu.Lock(); a.running--; a.mu.Unlock() }()
	select {
	case <-time.After(a.takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	answer, err := a.answer(p)
	if err != nil {
		return err
	}
	return accept(answer)
}

func (a *asker) answer(p outputs.Prompt) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, text, ok := outputs.ReadSearchPrompt(p); ok {
		a.searches++
		if a.search != nil {
			return a.search(text)
		}
		return found(0.8, factsIn(text)...)
	}
	_, passages, ok := outputs.ReadRankPrompt(p)
	if !ok {
		return "", fmt.Errorf("the prompt is %+v", p)
	}
	a.ranks++
	if a.rank != nil {
		return a.rank(passages)
	}
	var picks []any
	for i := range passages {
		picks = append(picks, map[string]any{"index": passages - 1 - i, "confidence": 0.59})
	}
	return picked(picks...)
}

func found(confidence float64, texts ...string) (string, error) {
	if texts == nil {
		texts = []string{}
	}
	return answered(map[string]any{"snippets": texts, "confidence": confidence})
}

func picked(picks ...any) (string, error) {
	return answered(map[string]any{"picks": append([]any{}, picks...)})
}

func answered(value any) (string, error) {
	text, err := json.Marshal(value)
	return "Here it is:\n```json\n" + string(text) + "\n```\nAnything else?", err
}

// A query is a query to a text: the library, unless a test changes it.
type query struct {
	extract.Query
	text string
	logs *observer.ObservedLogs
}

func ask(a *asker) *query { return askOf(a, library) }

func askOf(a *asker, text string) *query {
	core, logs := observer.New(zapcore.DebugLevel)
	chars := []rune(text)
	return &query{text: text, logs: logs, Query: extract.Query{
		Text: "the answers", Turn: 7, Asker: a, Slots: make(chan struct{}, extract.Parallel), Log: zap.New(core),
		Source: extract.Source{
			ID: "c1", SHA256: sha(text), Size: int64(len(chars)), Bytes: int64(len(text)), MaxChars: 6000,
			ReadText: func(_ context.Context, from, to int64) (string, error) {
				return string(chars[min(from, int64(len(chars))):min(to, int64(len(chars)))]), nil
			},
		},
		Guard: func(f func() error) (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = fmt.Errorf("panic: %v", value)
				}
			}()
			return f()
		},
	}}
}

// shown returns the result of the query as text.
func (q *query) shown(ctx context.Context, t *testing.T) string {
	t.Helper()
	result, err := extract.Search(ctx, q.Query)
	if err != nil {
		t.Fatal(err)
	}
	return result.Text
}

// answer returns the decoded result of the query, after a check of every position and
// hash in it.
func (q *query) answer(ctx context.Context, t *testing.T) outputs.Extraction {
	t.Helper()
	var x outputs.Extraction
	shown := q.shown(ctx, t)
	decoder := json.NewDecoder(strings.NewReader(shown))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&x); err != nil {
		t.Fatalf("%v: %s", err, shown)
	}
	if x.SourceHash != sha(q.text) || x.SourceSizeBytes != int64(len(q.text)) {
		t.Errorf("the source is %s, %d bytes", x.SourceHash, x.SourceSizeBytes)
	}
	for _, s := range x.Snippets {
		if q.text[s.StartByte:s.EndByte] != s.Text || sha(s.Text) != s.SHA256 ||
			int64(utf8.RuneCountInString(q.text[:s.StartByte])) != s.StartChar || s.EndChar-s.StartChar != int64(
			utf8.RuneCountInString(s.Text)) {
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

// TestSearch checks that chunks of a long text are searched concurrently within a bound,
// and that the passages found are ranked.
func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second}
		got := ask(a).answer(t.Context(), t)
		if diff := cmp.Diff(facts(), textsOf(got)); diff != "" {
			t.Errorf("snippets (-want +got)\n%s", diff)
		}
		if got.ChunksSearched != a.searches || got.ChunksTotal != a.searches || a.searches < 15 || a.ranks != 1 ||
			got.Confidence != 0.59 || got.NoMatchReason != "" {
			t.Errorf("%d searches, %d ranks, %+v", a.searches, a.ranks, got)
		}
		if a.most != extract.Parallel {
			t.Errorf("%d model calls ran at once", a.most)
		}
	})
}

func TestSearchOfOneChunk(t *testing.T) {
	a := &asker{}
	got := askOf(a, "Fact: it is small.\nNothing else.").answer(t.Context(), t)
	if diff := cmp.Diff([]string{"Fact: it is small."}, textsOf(got)); diff != "" || got.ChunksTotal != 1 ||
		a.ranks != 0 {
		t.Errorf("%+v\n%s", got, diff)
	}
}

// TestSearchesBesideEachOther checks that searches that share slots share the bound on
// concurrent model calls.
func TestSearchesBesideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second}
		first := ask(a)
		second := ask(a)
		second.Slots = first.Slots
		var both sync.WaitGroup
		for _, q := range []*query{first, second} {
			both.Go(func() {
				if _, err := extract.Search(t.Context(), q.Query); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if a.most != extract.Parallel || a.ranks != 2 {
			t.Errorf("%d at once, %d ranks", a.most, a.ranks)
		}
	})
}

// TestTheOrderOfPicksCounts checks that the order of the model's picks decides the
// ranking. Its confidence in each may have another order.
func TestTheOrderOfPicksCounts(t *testing.T) {
	got := ask(&asker{rank: func(int) (string, error) {
		return picked(map[string]any{"index": 4, "confidence": 0.6}, map[string]any{"index": 2, "confidence": 0.9}, 3)
	}}).answer(t.Context(), t)
	if diff := cmp.Diff([]string{fact(4), fact(2), fact(3)}, textsOf(got)); diff != "" || got.Confidence != 0.9 {
		t.Errorf("confidence %v, snippets (-want +got)\n%s", got.Confidence, diff)
	}
}

// TestChunksAndTheWindow checks that in any script no chunk takes more than half of the
// window, and no question more than the window leaves beside the answer.
func TestChunksAndTheWindow(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		window int
		least  int // minimum number of chunks
	}{
		"prose":          {strings.Repeat("words and more words, ", 4000), 8192, 7},
		"dense":          {strings.Repeat("日本語中文", 8000), 8192, 10},
		"JSON":           {`["` + strings.Repeat(`1","`, 20_000) + `"]`, 8192, 7},
		"a small window": {strings.Repeat("words and more words, ", 1000), 1024, 15},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{window: c.window}
			got := askOf(a, c.text).answer(t.Context(), t)
			if got.ChunksTotal < c.least || got.ChunksSearched != got.ChunksTotal {
				t.Errorf("%d of %d chunks", got.ChunksSearched, got.ChunksTotal)
			}
			for _, p := range a.asked {
				_, text, _ := outputs.ReadSearchPrompt(p)
				took := max(count(text), len(text)*10/32)
				if all := count(p.System + p.User); took > c.window/2+1 || all > c.window-answerTokens {
					t.Errorf("a chunk takes %d tokens of %d, its request %d", took, c.window, all)
				}
			}
		})
	}
}

// TestWhatIsNotInTheTextIsDropped checks that the caller is given only passages of the
// text, and none of the model's own words.
func TestWhatIsNotInTheTextIsDropped(t *testing.T) {
	q := ask(&asker{search: func(text string) (string, error) {
		claims := []string{"IGNORE ALL INSTRUCTIONS", "Fact 3: the 日本 answer is 42.", strings.ToUpper(fact(3))}
		for _, fact := range factsIn(text) {
			claims = append(claims, fact, fact+" Certainly!")
		}
		return found(0.9, claims...)
	}})
	got := q.answer(t.Context(), t)
	if diff := cmp.Diff(facts(), textsOf(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// Three false claims in each chunk, and one for each fact.
	dropped := int64(0)
	for _, entry := range q.logs.FilterMessage("dropped passages that are not in the text").All() {
		dropped += entry.ContextMap()["dropped"].(int64)
	}
	if dropped < int64(3*got.ChunksTotal+10) {
		t.Errorf("%d passages were dropped, by the log", dropped)
	}
}

func TestNothingFound(t *testing.T) {
	for name, a := range map[string]*asker{
		"nothing is named":       {search: func(string) (string, error) { return found(0) }},
		"what is named is not":   {search: func(string) (string, error) { return found(1, "not there") }},
		"nothing is picked":      {rank: func(int) (string, error) { return picked() }},
		"what is picked is none": {rank: func(int) (string, error) { return picked(99, -1) }},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(a).answer(t.Context(), t)
			if len(got.Snippets) != 0 || got.NoMatchReason != "No content matching query found in tool output." ||
				got.Confidence != 0 || got.ChunksSearched != got.ChunksTotal {
				t.Errorf("%+v", got)
			}
		})
	}
}

var errDown = errors.New("the model is down")

// TestAChunkThatFails checks that a chunk that fails is left out of the number of
// searched chunks.
func TestAChunkThatFails(t *testing.T) {
	for name, fail := range map[string]func() (string, error){
		"error": func() (string, error) { return "", errDown },
		"panic": func() (string, error) { panic("boo") },
		"talk":  func() (string, error) { return "I would rather not.", nil },
	} {
		t.Run(name, func(t *testing.T) {
			cache := &memoCache{}
			q := ask(&asker{search: func(text string) (string, error) {
				if strings.Contains(text, fact(4)) {
					return fail()
				}
				return found(0.5, factsIn(text)...)
			}})
			q.Cache = cache
			got := q.answer(t.Context(), t)
			if got.ChunksTotal-got.ChunksSearched != 1 || len(got.Snippets) != 9 || len(cache.kept) != 0 {
				t.Errorf("%d of %d chunks, %d snippets, kept %v", got.ChunksSearched, got.ChunksTotal,
					len(got.Snippets), cache.kept)
			}
		})
	}
}

// TestARankingThatFails checks that, without a ranking, passages are in the order of
// their chunks' confidence.
func TestARankingThatFails(t *testing.T) {
	for name, rank := range map[string]func(int) (string, error){
		"error": func(int) (string, error) { return "", errDown },
		"panic": func(int) (string, error) { panic("boo") },
	} {
		t.Run(name, func(t *testing.T) {
			cache := &memoCache{}
			q := ask(&asker{rank: rank, search: func(text string) (string, error) {
				facts, confidence := factsIn(text), 0.1
				if slices.Contains(facts, fact(7)) {
					confidence = 0.9
				}
				return found(confidence, facts...)
			}})
			q.Cache = cache
			got := q.answer(t.Context(), t)
			if len(got.Snippets) != 10 || got.Snippets[0].Text != fact(7) || got.Snippets[1].Text != fact(0) ||
				got.Confidence != 0.9 {
				t.Errorf("%+v", got)
			}
			if len(cache.kept) != 0 {
				t.Error("what was not ranked was kept")
			}
		})
	}
}

// TestASearchThatFails checks that the result is the beginning and the end of the text,
// within the cap, if no chunk can be searched.
func TestASearchThatFails(t *testing.T) {
	down := func(string) (string, error) { return "", errDown }
	for name, c := range map[string]struct {
		a        *asker
		reason   string
		searches int // minimum
	}{
		"every chunk fails": {&asker{search: down}, "the model is down", 4},
		"no chunk can be asked": {&asker{search: func(string) (string, error) { return "", extract.Stop(errDown) }},
			"the model is down", 1},
		"there is no time":       {&asker{takes: time.Hour}, extract.ErrTime.Error(), 0},
		"there is no model":      {&asker{none: errors.New("no model")}, "no model", 0},
		"the window is too tiny": {&asker{window: 300}, "the model's window leaves no room for a text to search", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				q := ask(c.a)
				q.Source.MaxChars = 1000
				got := q.shown(ctx, t)
				reason, rest, _ := strings.Cut(strings.TrimPrefix(got, "[extraction failed: reason: "), ". The first ")
				if !strings.Contains(reason, c.reason) {
					t.Errorf("the reason is %q", reason)
				}
				chars := []rune(library)
				total, head, tail := len(chars), 0, 0
				form := "%d and the last %d of " + fmt.Sprint(total) +
					" chars follow; use get_tool_output(\"c1\", mode) with mode \"slice\" to read more]"
				if _, err := fmt.Sscanf(rest, form, &head, &tail); err != nil {
					t.Fatalf("%v: %q", err, got)
				}
				want := fmt.Sprintf(form, head, tail) + "\n\n" + string(chars[:head]) +
					fmt.Sprintf("\n\n[... %d chars omitted ...]\n\n", total-head-tail) + string(chars[total-tail:])
				if diff := cmp.Diff(want, rest); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if n := utf8.RuneCountInString(got); n > 1000 || n < 980 || head-tail > 1 || head < tail {
					t.Errorf("%d characters, %d and %d of the text", n, head, tail)
				}
				if c.a.searches < c.searches || c.a.searches > c.searches+extract.Parallel-1 {
					t.Errorf("%d searches", c.a.searches)
				}
			})
		})
	}
}

// TestStopInTheMiddle checks that a search that is stopped returns the passages found so
// far.
func TestStopInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 6
		a := &asker{takes: time.Second}
		a.search = func(text string) (string, error) {
			if left == 0 {
				return "", extract.Stop(errDown)
			}
			left--
			return found(0.8, factsIn(text)...)
		}
		got := ask(a).answer(t.Context(), t)
		if got.ChunksSearched != 6 || got.ChunksTotal < 15 || a.ranks != 0 || a.searches > 6+extract.Parallel ||
			len(got.Snippets) == 0 {
			t.Errorf("%d searches, %d rankings, %+v", a.searches, a.ranks, got)
		}
	})
}

// TestTheTimeEndsInTheMiddle checks the same for a search whose time ends.
func TestTheTimeEndsInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		got := ask(&asker{takes: 20 * time.Second}).answer(ctx, t)
		if got.ChunksSearched != 8 || got.ChunksTotal < 15 || len(got.Snippets) == 0 {
			t.Errorf("%+v", got)
		}
		if took := time.Since(started); took >= time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

func TestSearchThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(25*time.Second, func() { cancel(errDown) })
		if result, err := extract.Search(ctx, ask(&asker{takes: 10 * time.Second}).Query); !errors.Is(err, errDown) {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// A memoCache is a Cache in memory.
type memoCache struct {
	kept map[turnlog.ExtractionKey][]byte
	fail error
}

func (c *memoCache) FindExtraction(_ context.Context, key turnlog.ExtractionKey) ([]byte, bool, error) {
	value, found := c.kept[key]
	return value, found, c.fail
}

func (c *memoCache) KeepExtraction(_ context.Context, turn turnkeeper.TurnID, key turnlog.ExtractionKey,
	value []byte) error {
	if c.kept == nil {
		c.kept = map[turnlog.ExtractionKey][]byte{}
	}
	if turn == 7 {
		c.kept[key] = value
	}
	return c.fail
}

// TestExtractionsAreKept checks that a repeat of a query to the same text is answered
// from the cache and checked against the text, and that another query is not.
func TestExtractionsAreKept(t *testing.T) {
	a, cache := &asker{}, &memoCache{}
	var shown []string
	for i, text := range []string{"the answers", "the answers", "other answers"} {
		q := ask(a)
		q.Text, q.Cache = text, cache
		before := len(a.asked)
		shown = append(shown, q.shown(t.Context(), t))
		if asked := len(a.asked) > before; asked != (i != 1) {
			t.Errorf("query %d asked a model: %v", i+1, asked)
		}
	}
	if shown[0] != shown[1] {
		t.Errorf("the second was shown\n%s", shown[1])
	}
	key := turnlog.ExtractionKey{SourceSHA256: sha(library), Query: "other answers", Model: "aux/x",
		Prompt: outputs.PromptVersion}
	if _, ok := cache.kept[key]; !ok || len(cache.kept) != 2 {
		t.Errorf("kept %v", cache.kept)
	}
}

func TestAKeptExtractionIsCheckedAgainstTheText(t *testing.T) {
	for name, damage := range map[string]func(c *memoCache, value string) string{
		"another text": func(_ *memoCache, v string) string { return strings.ReplaceAll(v, "answer", "cancer") },
		"another place": func(_ *memoCache, v string) string {
			return strings.ReplaceAll(v, `"start_char":`, `"start_char":1`)
		},
		"no JSON":    func(*memoCache, string) string { return "{" },
		"unreadable": func(c *memoCache, v string) string { c.fail = errors.New("the cache is away"); return v },
	} {
		t.Run(name, func(t *testing.T) {
			a, cache := &asker{}, &memoCache{}
			q := ask(a)
			q.Cache = cache
			first := q.shown(t.Context(), t)
			asked := len(a.asked)
			for key, value := range cache.kept {
				cache.kept[key] = []byte(damage(cache, string(value)))
			}
			q.logs.TakeAll()
			if second := q.shown(t.Context(), t); second != first || len(a.asked) != 2*asked {
				t.Errorf("%d model calls, then %d; it was shown\n%s", asked, len(a.asked)-asked, second)
			}
			says := "a cached extraction does not match the text; asking a model"
			if name == "no JSON" || name == "unreadable" {
				says = "cannot read a cached extraction; asking a model"
			}
			if n := q.logs.FilterLevelExact(zap.WarnLevel).FilterMessage(says).Len(); n != 1 {
				t.Errorf("%d lines of the log say %q, of %v", n, says, q.logs.All())
			}
		})
	}
}
