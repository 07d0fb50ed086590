package extract

import (
	"context"
	"encoding/json"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/outputs"
)

// A Cache keeps what searches have found. Implementations are safe for concurrent use.
// What they give out is checked against the text before it is used.
type Cache interface {
	// FindExtraction returns the value kept under a key; found is false where there is none.
	FindExtraction(ctx context.Context, key turnkeeper.ExtractionKey) (value []byte, found bool, err error)
	// KeepExtraction keeps a value, a JSON text, for the turn's records to take with them
	// when they go. One that is kept under the key already may stay.
	KeepExtraction(ctx context.Context, turn turnkeeper.TurnID, key turnkeeper.ExtractionKey, value []byte) error
}

// maxKeptBytes bounds an extraction that is kept.
const maxKeptBytes = 256 << 10

// kept is what the same query found in the same text before. It is checked
// against the text.
func (s *search) kept(ctx context.Context) (found outputs.Extraction, ok bool) {
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
		s.Log.Warn("a kept extraction could not be read; a model is asked", zap.Error(err))
		return found, false
	case !ok && value != nil:
		s.Log.Warn("a kept extraction is not that of the text; a model is asked")
	}
	return found, ok
}

// keep keeps what was found, for the next that asks the same.
func (s *search) keep(ctx context.Context, found outputs.Extraction) {
	if s.Cache == nil {
		return
	}
	value, err := json.Marshal(found)
	if err == nil && len(value) <= maxKeptBytes {
		err = s.Cache.KeepExtraction(ctx, s.Turn, s.key(), value)
	}
	if err != nil {
		s.Log.Warn("an extraction could not be kept", zap.Error(err))
	}
}
