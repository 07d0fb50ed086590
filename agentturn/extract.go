package agentturn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
	"turnkeeper/tools"
)

const (
	// extractParallel bounds how many model calls of a turn search stored results
	// at once.
	extractParallel = 4
	// extractGiveUp is how many chunks fail, when none was searched, before the
	// others are not tried.
	extractGiveUp = extractParallel
)

// An extractSource is a stored result that a model searches.
type extractSource struct {
	id       string // as the model knows it
	sha256   string
	chars    int64
	bytes    int64
	tokens   int64 // estimate
	maxChars int   // of what is given back
	read     func(ctx context.Context, from, to int64) (string, error)
}

func (s extractSource) Chars() int64 { return s.chars }

func (s extractSource) Read(ctx context.Context, from, to int64) (string, error) {
	return s.read(ctx, from, to)
}

// An extraction is one query to one stored result. Its model calls run beside
// each other; it touches nothing of the turn that changes.
type extraction struct {
	t      *turn
	source extractSource
	query  string
	models []*sideModel
	used   *meter
	log    *zap.Logger

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

// extract answers a query over a stored result. Whatever goes wrong beside the
// end of ctx is told in the result, with parts of the text in place of what was
// sought. It may be called by several goroutines at once.
func (t *turn) extract(ctx context.Context, source extractSource, query string, used *meter) (tools.Result, error) {
	e := &extraction{t: t, source: source, query: query, used: used, log: t.log.With(zap.String("output", source.id))}
	found, err := e.find(ctx)
	if ctx.Err() != nil { // whoever goes on with the turn has time for the whole of it
		return tools.Result{}, context.Cause(ctx)
	}
	if err == nil {
		return tools.Result{Text: found.Render(source.maxChars), MediaType: "application/json"}, nil
	}
	e.log.Warn("extraction failed", zap.Error(err))
	text, err := outputs.Fallback(ctx, source, source.id, extractReason(err), source.maxChars)
	return tools.Result{Text: text}, err
}

// find is what was found before, or is found now.
func (e *extraction) find(ctx context.Context) (outputs.Extraction, error) {
	if err := e.choose(); err != nil {
		return outputs.Extraction{}, err
	}
	if kept, ok := e.kept(ctx); ok {
		return kept, nil
	}
	searching, stop := beforeTheEnd(ctx)
	defer stop()
	if err := e.search(searching); err != nil {
		return outputs.Extraction{}, err
	}
	found, err := e.reduce(searching)
	if err == nil && found.ChunksSearched == found.ChunksTotal {
		e.keep(ctx, found)
	}
	e.log.Info("extraction done", zap.Int("snippets", len(found.Snippets)), zap.Int("chunks_searched", found.ChunksSearched),
		zap.Int("chunks_total", found.ChunksTotal), zap.Error(err))
	return found, nil
}

var errExtractTime = errors.New("the time for an extraction is over")

// beforeTheEnd leaves a little of the time to tell what came of it.
func beforeTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	const most = 3 * time.Second
	return context.WithDeadlineCause(ctx, deadline.Add(-min(time.Until(deadline)/10, most)), errExtractTime)
}

// search looks through the chunks beside each other. It fails when not one could
// be searched.
func (e *extraction) search(ctx context.Context) error {
	textTokens, window, err := e.size(ctx)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for chunk, err := range outputs.Chunks(ctx, e.source, textTokens, window) {
		if err != nil {
			e.fail(err)
			break
		}
		e.total = chunk.Total
		if !e.slot(ctx) {
			break
		}
		group.Go(func() {
			defer func() { <-e.t.extracting }()
			if err := e.t.guard(func() error { return e.searchChunk(ctx, chunk) }); err != nil {
				e.fail(err)
			}
		})
	}
	group.Wait()
	if len(e.searched) > 0 {
		return nil
	}
	if e.halted != nil {
		return e.halted
	}
	return cmp.Or(errors.Join(e.failures...), context.Cause(ctx))
}

// slot waits for room for one more model call. It reports false when there is
// to be none.
func (e *extraction) slot(ctx context.Context) bool {
	select {
	case e.t.extracting <- struct{}{}:
	case <-ctx.Done():
		e.halt(context.Cause(ctx))
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.halted != nil {
		<-e.t.extracting
		return false
	}
	return true
}

// searchChunk asks for the passages of a chunk, and keeps those that are there.
func (e *extraction) searchChunk(ctx context.Context, chunk outputs.Chunk) error {
	var claims outputs.Claims
	err := e.ask(ctx, outputs.SearchPrompt(e.query, chunk), func(answer string) (err error) {
		claims, err = outputs.ReadClaims(answer)
		return err
	})
	if err != nil {
		return err
	}
	found := searchedChunk{chunk.Index, claims.Confidence, outputs.Locate(chunk, claims.Texts)}
	e.tellDropped(chunk, claims.Texts)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.searched = append(e.searched, found)
	return nil
}

// tellDropped logs how many passages that a model named are nowhere in the chunk.
func (e *extraction) tellDropped(chunk outputs.Chunk, claims []string) {
	dropped := slices.DeleteFunc(slices.Clone(claims), func(claim string) bool { return strings.Contains(chunk.Text, strings.TrimSpace(claim)) })
	if len(dropped) > 0 {
		e.log.Info("passages that a model named are not in the text, and were dropped",
			zap.Int("chunk", chunk.Index), zap.Int("dropped", len(dropped)), zap.Int("named", len(claims)))
	}
}

// fail notes that a chunk was not searched, and begins no more of them where that
// is of no use.
func (e *extraction) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failures = append(e.failures, err)
	if len(e.failures) >= extractGiveUp && len(e.searched) == 0 && e.halted == nil {
		e.halted = err
	}
}

// halt begins no more chunks.
func (e *extraction) halt(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.halted == nil {
		e.halted = err
	}
}

// reduce makes one result of all chunks: snippets merged, and ranked by a model
// where there was more than one chunk. An error means that they could not be
// ranked, and are in the order of their chunks' confidence.
func (e *extraction) reduce(ctx context.Context) (outputs.Extraction, error) {
	slices.SortFunc(e.searched, func(a, b searchedChunk) int {
		return cmp.Or(cmp.Compare(b.confidence, a.confidence), cmp.Compare(a.index, b.index))
	})
	found := outputs.Extraction{
		SourceHash: e.source.sha256, SourceSizeBytes: e.source.bytes, ChunksSearched: len(e.searched), ChunksTotal: e.total,
	}
	var named []outputs.Snippet
	for _, chunk := range e.searched {
		named = append(named, chunk.named...)
		if len(chunk.named) > 0 {
			found.Confidence = max(found.Confidence, chunk.confidence)
		}
	}
	found.Snippets = outputs.Ranked(outputs.Merge(named), named, e.source.maxChars)
	var err error
	if e.total > 1 && len(found.Snippets) > 1 {
		err = e.t.guard(func() error { return e.rank(ctx, &found) })
	}
	if len(found.Snippets) == 0 {
		found.Confidence, found.NoMatchReason = 0, outputs.NoMatch
	}
	return found, err
}

// rank has a model choose among the snippets, by their indices. Those that it
// could not be shown come last.
func (e *extraction) rank(ctx context.Context, found *outputs.Extraction) error {
	if !e.slot(ctx) {
		return e.halted
	}
	defer func() { <-e.t.extracting }()
	prompt, shown := outputs.RankPrompt(e.query, found.Snippets, e.rankChars())
	var picks []outputs.Pick
	err := e.ask(ctx, prompt, func(answer string) (err error) {
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

// extractKey is what the extraction is kept under.
func (e *extraction) extractKey() turnkeeper.ExtractionKey {
	var names []string
	for _, model := range e.models {
		names = append(names, model.name)
	}
	return turnkeeper.ExtractionKey{
		SourceSHA256: e.source.sha256, Query: e.query, Model: strings.Join(names, ","), Prompt: outputs.PromptVersion,
	}
}
