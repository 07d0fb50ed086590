package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// extractionsLast is how long an extraction is kept at most.
const extractionsLast = 7 * 24 * time.Hour

// FindExtraction is the JSON kept under a key; found is false where there is
// none.
func (s *Store) FindExtraction(ctx context.Context, key turnkeeper.ExtractionKey) (value []byte, found bool, err error) {
	value, err = s.db.Q.FindExtraction(ctx, key.SourceSHA256, queryHash(key), key.Model, int32(key.Prompt)) //nolint:gosec // a version
	if err = pg.Translate(err); errors.Is(err, turnkeeper.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// KeepExtraction keeps a JSON text under a key, in place of what was kept there.
// It goes with the turn's records, and after a week at the latest.
func (s *Store) KeepExtraction(ctx context.Context, turn turnkeeper.TurnID, key turnkeeper.ExtractionKey, value []byte) error {
	return pg.Translate(s.db.Q.KeepExtraction(ctx, dbsqlc.KeepExtractionParams{
		SourceSha256: key.SourceSHA256, QuerySha256: queryHash(key), Model: key.Model, PromptVersion: int32(key.Prompt), //nolint:gosec // a version
		TurnID: int64(turn), Result: []byte(s.db.Clean(string(value))),
	}))
}

// ForgetExtractions removes extractions that were kept for a week.
func (s *Store) ForgetExtractions(ctx context.Context) error {
	return pg.Translate(s.db.Q.ForgetExtractions(ctx, extractionsLast))
}

// queryHash stands for a query, which may hold what nobody needs to keep.
func queryHash(key turnkeeper.ExtractionKey) string {
	sum := sha256.Sum256([]byte(key.Query))
	return hex.EncodeToString(sum[:])
}
