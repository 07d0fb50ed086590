package telemetry

import (
	"errors"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestErrorsBesideTheEnd reports errors of exporters while the telemetry ends, which the race detector checks. After
// the end nothing is logged.
func TestErrorsBesideTheEnd(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	quiet := reportTo(zap.New(core), func(text string) string { return text })
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { otel.Handle(errors.New("no receiver")) })
	}
	group.Go(quiet)
	group.Wait()
	before := logs.Len()
	otel.Handle(errors.New("no receiver"))
	if before > 1 || logs.Len() != before {
		t.Errorf("%d lines, and then %d", before, logs.Len())
	}
}
