// Package extract answers a query over a stored text by passages of it. Models search the
// text in chunks, side by side, and rank what they found; only passages that are in the
// text count. The models are asked through an Asker, and answers are kept in a Cache.
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
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

// Parallel bounds how many model calls of a turn search stored results at once.
const Parallel = 4

// giveUpAfter is how many chunks fail, when none was searched, before the others are
// not tried.
const giveUpAfter = Parallel

// A Source is a stored text that models search.
type Source struct {
	ID       string // as the model knows it
	SHA256   string
	Size     int64 // characters
	Bytes    int64
	Tokens   int64 // estimate
	MaxChars int   // of what is given back
	ReadText func(ctx context.Context, from, to int64) (string, error)
}

// Chars returns the number of characters.
func (s Source) Chars() int64 { return s.Size }

// Read returns the characters from one position up to another.
func (s Source) Read(ctx context.Context, from, to int64) (string, error) {
	return s.ReadText(ctx, from, to)
}

// A Model is what a search must know of a model that it asks.
type Model struct {
	Name   string // as configured
	Window int    // tokens
	Count  func(text string) int
	Room   func(prompt outputs.Prompt) int // tokens that the prompt leaves of what a request may take
}

// An Asker asks models. It is safe for concurrent use.
type Asker interface {
	// Models returns the models in the order they are asked. An error: there are none.
	Models() ([]Model, error)
	// Ask has the models answer, each with its retries, until accept takes an answer. An
	// error of Stop says that there is no use in asking anything more.
	Ask(ctx context.Context, prompt outputs.Prompt, accept func(answer string) error) error
	// Reason returns what a model may be told of an error of Ask.
	Reason(err error) string
}

// Stop wraps an error of an Asker that will be the same whatever is asked.
func Stop(err error) error { return &stopError{err} }

type stopError struct{ error }

func (e *stopError) Unwrap() error { return e.error }

// A Query is one question about one source.
type Query struct {
	Source Source
	Text   string
	Turn   turnkeeper.TurnID
	Asker  Asker
	Cache  Cache         // nil: every query asks a model
	Slots  chan struct{} // one for each model call that may run at once; shared by the queries of a turn
	Log    *zap.Logger
	// Guard calls a function and makes an error of its panic.
	Guard func(f func() error) error
}

// A search is a query on its way. Its model calls run side by side.
type search struct {
	Query
	models []Model

	mu       sync.Mutex
	searched []searchedChunk
	failures []error
	halted   error // why no more chunks are begun; nil: they are
	total    int   // chunks there are
}

// A searchedChunk is what was found in one chunk.
type searchedChunk struct {
	index      int
	confidence float64
	named      []outputs.Snippet // located, the best first
}

// Search answers a query. Whatever goes wrong, except the end of ctx, is told in the
// result, with parts of the text in place of what was sought. It may be called by
// several goroutines at once.
func Search(ctx context.Context, q Query) (tools.Result, error) {
	s := &search{Query: q}
	found, err := s.find(ctx)
	if ctx.Err() != nil { // whoever goes on with the turn has time for the whole of it
		return tools.Result{}, context.Cause(ctx)
	}
	if err == nil {
		return tools.Result{Text: found.Render(q.Source.MaxChars), MediaType: "application/json"}, nil
	}
	q.Log.Warn("extraction failed", zap.Error(err))
	text, err := outputs.Fallback(ctx, q.Source, q.Source.ID, q.Asker.Reason(err), q.Source.MaxChars)
	return tools.Result{Text: text}, err
}

// find is what was found before, or is found now.
func (s *search) find(ctx context.Context) (outputs.Extraction, error) {
	var err error
	if s.models, err = s.Asker.Models(); err != nil {
		return outputs.Extraction{}, err
	}
	if kept, ok := s.kept(ctx); ok {
		return kept, nil
	}
	searching, stop := BeforeTheEnd(ctx)
	defer stop()
	if err := s.all(searching); err != nil {
		return outputs.Extraction{}, err
	}
	found, err := s.reduce(searching)
	if err == nil && found.ChunksSearched == found.ChunksTotal {
		s.keep(ctx, found)
	}
	s.Log.Info("extraction done", zap.Int("snippets", len(found.Snippets)), zap.Int("chunks_searched", found.ChunksSearched),
		zap.Int("chunks_total", found.ChunksTotal), zap.Error(err))
	return found, nil
}

// ErrTime is the cause that ends the context of BeforeTheEnd.
var ErrTime = errors.New("the time for an extraction is over")

// BeforeTheEnd returns a context that leaves a little of the time to tell what came of it.
func BeforeTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	const most = 3 * time.Second
	return context.WithDeadlineCause(ctx, deadline.Add(-min(time.Until(deadline)/10, most)), ErrTime)
}

// all looks through the chunks beside each other. It fails when not one could
// be searched.
func (s *search) all(ctx context.Context) error {
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
		if !s.slot(ctx) {
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

// slot waits for room for one more model call. It reports false when there is
// to be none.
func (s *search) slot(ctx context.Context) bool {
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

// searchChunk asks for the passages of a chunk, and keeps those that are there.
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
	s.tellDropped(chunk, claims.Texts)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.searched = append(s.searched, found)
	return nil
}

// tellDropped logs how many passages that a model named are nowhere in the chunk.
func (s *search) tellDropped(chunk outputs.Chunk, claims []string) {
	dropped := slices.DeleteFunc(slices.Clone(claims), func(claim string) bool { return strings.Contains(chunk.Text, strings.TrimSpace(claim)) })
	if len(dropped) > 0 {
		s.Log.Info("passages that a model named are not in the text, and were dropped",
			zap.Int("chunk", chunk.Index), zap.Int("dropped", len(dropped)), zap.Int("named", len(claims)))
	}
}

// fail notes that a chunk was not searched, and begins no more of them where that
// is of no use.
func (s *search) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	if len(s.failures) >= giveUpAfter && len(s.searched) == 0 && s.halted == nil {
		s.halted = err
	}
}

// halt begins no more chunks.
func (s *search) halt(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted == nil {
		s.halted = err
	}
}

// reduce makes one result of all chunks: snippets merged, and ranked by a model
// where there was more than one chunk. An error means that they could not be
// ranked, and are in the order of their chunks' confidence.
func (s *search) reduce(ctx context.Context) (outputs.Extraction, error) {
	slices.SortFunc(s.searched, func(a, b searchedChunk) int {
		return cmp.Or(cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.index, b.index))
	})
	found := outputs.Extraction{
		SourceHash: s.Source.SHA256, SourceSizeBytes: s.Source.Bytes, ChunksSearched: len(s.searched), ChunksTotal: s.total,
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

// rank has a model choose among the snippets, by their indices. Those that it
// could not be shown come last.
func (s *search) rank(ctx context.Context, found *outputs.Extraction) error {
	if !s.slot(ctx) {
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

// key is what the extraction is kept under.
func (s *search) key() turnkeeper.ExtractionKey {
	var names []string
	for _, model := range s.models {
		names = append(names, model.Name)
	}
	return turnkeeper.ExtractionKey{
		SourceSHA256: s.Source.SHA256, Query: s.Text, Model: strings.Join(names, ","), Prompt: outputs.PromptVersion,
	}
}

// ask has the models answer a prompt, until accept takes an answer.
func (s *search) ask(ctx context.Context, prompt outputs.Prompt, accept func(answer string) error) error {
	err := s.Asker.Ask(ctx, prompt, accept)
	if stop, ok := errors.AsType[*stopError](err); ok {
		s.halt(stop.error)
	}
	return err
}

// size returns how many tokens the text is taken to have, and the window that a chunk
// fills half of: that of the model with the smallest, or less where its half and the
// question do not fit.
func (s *search) size(ctx context.Context) (textTokens, window int64, err error) {
	// Half of the window must hold in any script: one byte in three is about a
	// token in those where a character is one.
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
		// What is counted before it is sent may be a little more than the share.
		fits := m.Room(question) * 3 / 4
		window = min(window, int64(m.Window), int64(2*fits))
	}
	const least = 100
	if window < least {
		return 0, 0, &inference.Error{Class: inference.ClassContextOverflow, NoRetry: true,
			Detail: "the model's window leaves no room for a text to search"}
	}
	return textTokens, window, nil
}

// rankChars is how much of the snippets is shown to a model that ranks them:
// half the smallest window.
func (s *search) rankChars() int {
	smallest := s.models[0].Window
	for _, m := range s.models {
		smallest = min(smallest, m.Window)
	}
	return smallest
}
