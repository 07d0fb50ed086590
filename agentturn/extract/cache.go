package extract

import (
	"context"
	"encoding/json"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// A Cache stores the results of searches. They are checked against the text before they are
// used. Implementations are safe for concurrent use.
type Cache interface {
	// FindExtraction returns the value of a key. found is false if there is none.
	FindExtraction(ctx context.Context, key turnlog.ExtractionKey) (value []byte, found bool, err error)
	// KeepExtraction stores a value, a JSON text, until the turn's records are deleted. If
	// the key has a value already, that may stay.
	KeepExtraction(ctx context.Context, turn turnkeeper.TurnID, key turnlog.ExtractionKey, value []byte) error
}

// maxCachedBytes is the maximum size of a cached extraction.
const maxCachedBytes = 256 << 10

// cached returns the cached extraction of the query, if it is one of the text.
func (s *search) cached(ctx context.Context) (found outputs.Extraction, ok bool) {
	if s.Cache == nil {
		return found, false
	}
	value, ok, err := s.Cache.FindExtraction(ctx, s.key())
	if err == nil && ok {
		if err = json.Unmarshal(value, &found); err == nil {
			ok, err = found.Verify(ctx, s.Source, s.Source.SHA256)
		}
	}
	switch {
	case err != nil:
		s.Log.Warn("cannot read a cached extraction; asking a model", zap.Error(err))
		return found, false
	case !ok && value != nil:
		s.Log.Warn("a cached extraction does not match the text; asking a model")
	}
	return found, ok
}

// store caches an extraction. It logs errors.
func (s *search) store(ctx context.Context, found outputs.Extraction) {
	if s.Cache == nil {
		return
	}
	value, err := json.Marshal(found)
	if err == nil && len(value) <= maxCachedBytes {
		err = s.Cache.KeepExtraction(ctx, s.Turn, s.key(), value)
	}
	if err != nil {
		s.Log.Warn("cannot cache an extraction", zap.Error(err))
	}
}
