// Package extract answers a query over a stored text with passages of the text. Models
// search the text in chunks, in parallel, and rank the passages. Passages that are not
// in the text are dropped. The models are called through an Asker, and results are cached.
package extract

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Parallel is the maximum number of concurrent model calls of a turn's searches.
const Parallel = 4

// giveUpAfter is the number of chunks that must fail, with none searched, before a search
// stops.
const giveUpAfter = Parallel

// A Source is a stored text to search.
type Source struct {
	ID       string // by which the model knows it
	SHA256   string
	Size     int64 // characters
	Bytes    int64
	Tokens   int64 // estimate
	MaxChars int   // maximum length of the result
	ReadText func(ctx context.Context, from, to int64) (string, error)
}

// Chars returns the number of characters.
func (s Source) Chars() int64 { return s.Size }

// Read returns the characters [from, to).
func (s Source) Read(ctx context.Context, from, to int64) (string, error) {
	return s.ReadText(ctx, from, to)
}

// A Model describes a model that searches.
type Model struct {
	Name   string // as configured
	Window int    // tokens
	Count  func(text string) int
	Room   func(prompt outputs.Prompt) int // tokens of a request that the prompt leaves free
}

// An Asker asks models. It is safe for concurrent use.
type Asker interface {
	// Models returns the models in the order they are asked. It fails if there are none.
	Models() ([]Model, error)
	// Ask asks the models, each with its retries, until accept returns nil for an
	// answer. An error wrapped by Stop ends the search.
	Ask(ctx context.Context, prompt outputs.Prompt, accept func(answer string) error) error
	// Reason describes an error of Ask to a model.
	Reason(err error) string
}

// Stop wraps an error of an Asker that would recur for any other prompt.
func Stop(err error) error { return &stopError{err} }

type stopError struct{ error }

func (e *stopError) Unwrap() error { return e.error }

// A Query is one question about one source.
type Query struct {
	Source Source
	Text   string
	Turn   turnkeeper.TurnID
	Asker  Asker
	Cache  Cache         // nil: no cache
	Slots  chan struct{} // semaphore of model calls, shared by the queries of a turn
	Log    *zap.Logger
	// Guard calls f and returns its error, or its panic as an error.
	Guard func(f func() error) error
}

// A search is a running query. Its model calls run in parallel.
type search struct {
	Query
	models []Model

	mu       sync.Mutex
	searched []searchedChunk
	failures []error
	halted   error // if set, no more chunks are begun
	total    int   // number of chunks
}

// A searchedChunk is the result of one chunk.
type searchedChunk struct {
	index      int
	confidence float64
	named      []outputs.Snippet // with their positions, the best first
}

// Search answers a query. If that fails, the result says why, and contains the beginning
// and the end of the text. Search returns an error only if ctx ends or the text cannot be
// read. It is safe for concurrent use.
func Search(ctx context.Context, q Query) (tools.Result, error) {
	s := &search{Query: q}
	found, err := s.find(ctx)
	if ctx.Err() != nil { // if another dispatch runs the call again, it has more time
		return tools.Result{}, context.Cause(ctx)
	}
	if err == nil {
		return tools.Result{Text: found.Render(q.Source.MaxChars), MediaType: "application/json"}, nil
	}
	q.Log.Warn("extraction failed", zap.Error(err))
	text, err := outputs.Fallback(ctx, q.Source, q.Source.ID, q.Asker.Reason(err), q.Source.MaxChars)
	return tools.Result{Text: text}, err
}

// find returns the cached extraction, or makes one.
func (s *search) find(ctx context.Context) (outputs.Extraction, error) {
	var err error
	if s.models, err = s.Asker.Models(); err != nil {
		return outputs.Extraction{}, err
	}
	if found, ok := s.cached(ctx); ok {
		return found, nil
	}
	searching, stop := BeforeTheEnd(ctx)
	defer stop()
	if err := s.searchAll(searching); err != nil {
		return outputs.Extraction{}, err
	}
	found, err := s.reduce(searching)
	if err == nil && found.ChunksSearched == found.ChunksTotal {
		s.store(ctx, found)
	}
	s.Log.Info("extraction done", zap.Int("snippets", len(found.Snippets)), zap.Int("chunks_searched",
		found.ChunksSearched),
		zap.Int("chunks_total", found.ChunksTotal), zap.Error(err))
	return found, nil
}

// ErrTime is the cause of the end of a context of BeforeTheEnd.
var ErrTime = errors.New("the time for an extraction is over")

// BeforeTheEnd returns a context that ends before ctx does, by a tenth of the remaining time
// and at most 3 s, which leaves time to report the result.
func BeforeTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	const maxMargin = 3 * time.Second
	return context.WithDeadlineCause(ctx, deadline.Add(-min(time.Until(deadline)/10, maxMargin)), ErrTime)
}

// searchAll searches the chunks in parallel. It fails if no chunk could be searched.
func (s *search) searchAll(ctx context.Context) error {
	textTokens, window, err := s.size(ctx)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for chunk, err := range outputs.Chunks(ctx, s.Source, textTokens, window) {
		if err != nil {
			s.fail(err)
			break
		}
		s.total = chunk.Total
		if !s.acquire(ctx) {
			break
		}
		group.Go(func() {
			defer func() { <-s.Slots }()
			if err := s.Guard(func() error { return s.searchChunk(ctx, chunk) }); err != nil {
				s.fail(err)
			}
		})
	}
	group.Wait()
	if len(s.searched) > 0 {
		return nil
	}
	if s.halted != nil {
		return s.halted
	}
	return cmp.Or(errors.Join(s.failures...), context.Cause(ctx))
}

// acquire waits for a slot for a model call. It returns false if the search is halted.
func (s *search) acquire(ctx context.Context) bool {
	select {
	case s.Slots <- struct{}{}:
	case <-ctx.Done():
		s.halt(context.Cause(ctx))
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted != nil {
		<-s.Slots
		return false
	}
	return true
}

// searchChunk asks for the passages of a chunk, and adds those that are in it.
func (s *search) searchChunk(ctx context.Context, chunk outputs.Chunk) error {
	var claims outputs.Claims
	err := s.ask(ctx, outputs.SearchPrompt(s.Text, chunk), func(answer string) (err error) {
		claims, err = outputs.ReadClaims(answer)
		return err
	})
	if err != nil {
		return err
	}
	found := searchedChunk{chunk.Index, claims.Confidence, outputs.Locate(chunk, claims.Texts)}
	s.logDropped(chunk, claims.Texts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searched = append(s.searched, found)
	return nil
}

// logDropped logs the number of passages that are not in the chunk.
func (s *search) logDropped(chunk outputs.Chunk, claims []string) {
	dropped := slices.DeleteFunc(slices.Clone(claims), func(claim string) bool {
		return strings.Contains(chunk.Text, strings.TrimSpace(claim))
	})
	if len(dropped) > 0 {
		s.Log.Info("dropped passages that are not in the text",
			zap.Int("chunk", chunk.Index), zap.Int("dropped", len(dropped)), zap.Int("named", len(claims)))
	}
}

// fail records that a chunk was not searched. After giveUpAfter failures it halts the
// search.
func (s *search) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	if len(s.failures) >= giveUpAfter && len(s.searched) == 0 && s.halted == nil {
		s.halted = err
	}
}

// halt stops the search from beginning more chunks.
func (s *search) halt(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted == nil {
		s.halted = err
	}
}

// reduce merges the snippets of all chunks. If there was more than one chunk, a model ranks
// them. On an error they are unranked, in the order of their chunks' confidence.
func (s *search) reduce(ctx context.Context) (outputs.Extraction, error) {
	slices.SortFunc(s.searched, func(a, b searchedChunk) int {
		return cmp.Or(cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.index, b.index))
	})
	found := outputs.Extraction{
		SourceHash: s.Source.SHA256, SourceSizeBytes: s.Source.Bytes, ChunksSearched: len(s.searched),
		ChunksTotal: s.total,
	}
	var named []outputs.Snippet
	for _, chunk := range s.searched {
		named = append(named, chunk.named...)
		if len(chunk.named) > 0 {
			found.Confidence = max(found.Confidence, chunk.confidence)
		}
	}
	found.Snippets = outputs.Ranked(outputs.Merge(named), named, s.Source.MaxChars)
	var err error
	if s.total > 1 && len(found.Snippets) > 1 {
		err = s.Guard(func() error { return s.rank(ctx, &found) })
	}
	if len(found.Snippets) == 0 {
		found.Confidence, found.NoMatchReason = 0, outputs.NoMatch
	}
	return found, err
}

// rank asks a model to choose and order the snippets. Snippets that do not fit the prompt
// come last.
func (s *search) rank(ctx context.Context, found *outputs.Extraction) error {
	if !s.acquire(ctx) {
		return s.halted
	}
	defer func() { <-s.Slots }()
	prompt, shown := outputs.RankPrompt(s.Text, found.Snippets, s.rankChars())
	var picks []outputs.Pick
	err := s.ask(ctx, prompt, func(answer string) (err error) {
		picks, err = outputs.ReadPicks(answer, shown)
		return err
	})
	if err != nil {
		return err
	}
	var ranked []outputs.Snippet
	if len(picks) > 0 {
		found.Confidence = 0
	}
	for _, pick := range picks {
		ranked = append(ranked, found.Snippets[pick.Index])
		found.Confidence = max(found.Confidence, pick.Confidence)
	}
	found.Snippets = append(ranked, found.Snippets[shown:]...)
	return nil
}

// key returns the extraction's key in the cache.
func (s *search) key() turnlog.ExtractionKey {
	var names []string
	for _, model := range s.models {
		names = append(names, model.Name)
	}
	return turnlog.ExtractionKey{
		SourceSHA256: s.Source.SHA256, Query: s.Text, Model: strings.Join(names, ","), Prompt: outputs.PromptVersion,
	}
}

// ask asks the models, and halts the search after an error of Stop.
func (s *search) ask(ctx context.Context, prompt outputs.Prompt, accept func(answer string) error) error {
	err := s.Asker.Ask(ctx, prompt, accept)
	if stop, ok := errors.AsType[*stopError](err); ok {
		s.halt(stop.error)
	}
	return err
}

// size returns the estimated tokens of the text, and the window that a chunk fills half of:
// the smallest window of the models, or less if half of it does not fit with the question.
func (s *search) size(ctx context.Context) (textTokens, window int64, err error) {
	// The estimate must be high enough for any script. In those where a character is a
	// token, it has about three bytes.
	textTokens = max(s.Source.Tokens, s.Source.Bytes*10/32)
	const sampleChars = 8000
	sample, err := s.Source.Read(ctx, 0, sampleChars)
	if err != nil {
		return 0, 0, err
	}
	chars := max(int64(utf8.RuneCountInString(sample)), 1)
	question := outputs.SearchPrompt(s.Text, outputs.Chunk{})
	window = int64(s.models[0].Window)
	for _, m := range s.models {
		textTokens = max(textTokens, int64(m.Count(sample))*s.Source.Size/chars)
		// The count of a whole request may be a little higher.
		fits := m.Room(question) * 3 / 4
		window = min(window, int64(m.Window), int64(2*fits))
	}
	const minWindow = 100
	if window < minWindow {
		return 0, 0, &inference.Error{Class: inference.ClassContextOverflow, NoRetry: true,
			Detail: "the model's window leaves no room for a text to search"}
	}
	return textTokens, window, nil
}

// rankChars returns the maximum number of characters of snippets in a ranking prompt: as
// many as the smallest window has tokens, which is about a third of it.
func (s *search) rankChars() int {
	smallest := s.models[0].Window
	for _, m := range s.models {
		smallest = min(smallest, m.Window)
	}
	return smallest
}
