package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// extractionsLast is the maximum age of an extraction.
const extractionsLast = 7 * 24 * time.Hour

// FindExtraction returns the JSON stored under a key. found is false if there is none.
func (s *Store) FindExtraction(ctx context.Context, key turnlog.ExtractionKey) (value []byte, found bool, err error) {
	value, err = s.db.Q.FindExtraction(ctx, key.SourceSHA256, queryHash(key), key.Model,
		int32(key.Prompt)) //nolint:gosec // a version
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// KeepExtraction stores a JSON text under a key, replacing the previous one. It is
// deleted with the turn's records, or after a week.
func (s *Store) KeepExtraction(ctx context.Context, turn turnkeeper.TurnID, key turnlog.ExtractionKey,
	value []byte) error {
	return pg.Translate(s.db.Q.KeepExtraction(ctx, dbsqlc.KeepExtractionParams{
		SourceSha256: key.SourceSHA256, QuerySha256: queryHash(key), Model: key.Model,
		PromptVersion: int32(key.Prompt), //nolint:gosec // a version
		TurnID:        int64(turn), Result: []byte(s.db.Clean(string(value))),
	}))
}

// ForgetExtractions deletes extractions that are older than a week.
func (s *Store) ForgetExtractions(ctx context.Context) error {
	return pg.Translate(s.db.Q.ForgetExtractions(ctx, extractionsLast))
}

// queryHash returns the hash that is stored in place of a query, which may be confidential.
func queryHash(key turnlog.ExtractionKey) string {
	sum := sha256.Sum256([]byte(key.Query))
	return hex.EncodeToString(sum[:])
}
