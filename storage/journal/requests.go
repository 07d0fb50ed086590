package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/pg"
)

// cleanRecipe returns a recipe with its texts as stored. Its numbers and hashes stay: with a secret of digits masked in
// them, nobody could read the recipe.
func (w *Writer) cleanRecipe(r turnkeeper.Recipe) turnkeeper.Recipe {
	r.Provider, r.Model, r.Notice = w.clean(r.Provider), w.clean(r.Model), w.clean(r.Notice)
	r.Status, r.Imitations = w.clean(r.Status), w.clean(r.Imitations)
	if r.Start != nil {
		start := *r.Start
		start.Chain, start.Reason = w.clean(start.Chain), turnkeeper.EpochReason(w.clean(string(start.Reason)))
		r.Start = &start
	}
	return r
}

// recipeJSON encodes a recipe for storage.
func recipeJSON(r turnkeeper.Recipe) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return "" // a factor is not a number: the round is stored without a recipe
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// knownParts caches the hashes of request parts that this process has stored recently. Parts are never deleted, so they
// need not be written again. The cache expires, because a database may be restored to an earlier state.
type knownParts struct {
	mu    sync.Mutex
	since time.Time
	known map[string]bool
}

const (
	maxKnownParts = 1000
	knownFor      = 10 * time.Minute
)

// unknown returns the parts that may not be stored yet.
func (k *knownParts) unknown(parts []turnlog.RequestPart) (unknown []turnlog.RequestPart) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) > maxKnownParts || time.Since(k.since) > knownFor {
		k.known, k.since = map[string]bool{}, time.Now()
	}
	for _, part := range parts {
		if !k.known[part.SHA256] {
			unknown = append(unknown, part)
		}
	}
	return unknown
}

func (k *knownParts) add(parts []turnlog.RequestPart) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, part := range parts {
		k.known[part.SHA256] = true
	}
}

func byHash(a, b turnlog.RequestPart) int { return cmp.Compare(a.SHA256, b.SHA256) }

// RequestParts reads the parts that recipes of requests name, by hash. It omits unknown
// hashes.
func (s *Store) RequestParts(ctx context.Context, hashes ...string) (map[string]string, error) {
	rows, err := s.db.Q.RequestParts(ctx, hashes)
	if err != nil {
		return nil, pg.Translate(err)
	}
	parts := map[string]string{}
	for _, row := range rows {
		parts[row.Sha256] = row.Content
	}
	return parts, nil
}

// SummaryUpTo returns the summary of a turn's conversation up to the turn upTo, or zero
// if there is none.
func (s *Store) SummaryUpTo(ctx context.Context, turn turnkeeper.Turn,
	upTo turnkeeper.TurnID) (turnlog.Summary, error) {
	if upTo == 0 {
		return turnlog.Summary{}, nil
	}
	text, err := s.db.Q.SummaryUpTo(ctx, turn.Agent, turn.User, turn.Conversation, int64(upTo))
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return turnlog.Summary{}, nil
	}
	return turnlog.Summary{UpTo: upTo, Text: text}, err
}

// RecordForRequest reads a turn as its worker saw it when it built its requests, so that they can be rebuilt: with its
// rounds, its definition, and its history. SummaryUpTo reads a summary.
func (s *Store) RecordForRequest(ctx context.Context, turn turnkeeper.TurnID) (*turnlog.Record, error) {
	rows, err := s.db.Q.TurnForWorker(ctx, []int64{int64(turn)}, []string{}, []string{})
	if err != nil {
		return nil, pg.Translate(err)
	}
	if len(rows) == 0 {
		return nil, turnkeeper.ErrNotFound
	}
	row := &rows[0]
	record := recordOf(row)
	if err := s.loadJournal(ctx, record); err != nil {
		return record, err
	}
	if !row.HasPast {
		return record, nil
	}
	err = s.loadConversation(ctx, record, 0)
	return record, err
}
