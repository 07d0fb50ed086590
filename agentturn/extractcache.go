package agentturn

import (
	"context"
	"encoding/json"

	"go.uber.org/zap"

	"turnkeeper/outputs"
)

// maxKeptBytes bounds an extraction that is kept.
const maxKeptBytes = 256 << 10

// kept is what the same query found in the same text before. It is checked
// against the text.
func (e *extraction) kept(ctx context.Context) (found outputs.Extraction, ok bool) {
	if e.t.cfg.Extractions == nil {
		return found, false
	}
	value, ok, err := e.t.cfg.Extractions.FindExtraction(ctx, e.extractKey())
	if err == nil && ok {
		if err = json.Unmarshal(value, &found); err == nil {
			ok, err = found.Verify(ctx, e.source, e.source.sha256)
		}
	}
	switch {
	case err != nil:
		e.log.Warn("a kept extraction could not be read; a model is asked", zap.Error(err))
		return found, false
	case !ok && value != nil:
		e.log.Warn("a kept extraction is not that of the text; a model is asked")
	}
	return found, ok
}

// keep keeps what was found, for the next that asks the same.
func (e *extraction) keep(ctx context.Context, found outputs.Extraction) {
	if e.t.cfg.Extractions == nil {
		return
	}
	value, err := json.Marshal(found)
	if err == nil && len(value) <= maxKeptBytes {
		err = e.t.cfg.Extractions.KeepExtraction(ctx, e.t.record.Turn.ID, e.extractKey(), value)
	}
	if err != nil {
		e.log.Warn("an extraction could not be kept", zap.Error(err))
	}
}
