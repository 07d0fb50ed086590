package telemetry

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
)

// reportEvery is the minimum interval between log lines about failures: an
// unreachable receiver fails every few seconds.
const reportEvery = time.Minute

// reporter logs errors of the exporters. OpenTelemetry has one error handler per
// process, by default standard error.
type reporter struct {
	log  *zap.Logger
	mask func(string) string

	mu     sync.Mutex
	last   time.Time
	silent int // errors since the last line
	over   bool
}

// Handle implements otel.ErrorHandler.
func (r *reporter) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !r.last.IsZero() && time.Since(r.last) < reportEvery {
		r.silent++
		return
	}
	r.log.Warn("telemetry could not be sent; turns continue", zap.String("error", r.mask(err.Error())),
		zap.Int("errors_before", r.silent))
	r.last, r.silent = time.Now(), 0
}

// reportTo logs errors until quiet is called.
func reportTo(log *zap.Logger, mask func(string) string) (quiet func()) {
	r := &reporter{log: log, mask: mask}
	otel.SetErrorHandler(r)
	otel.SetLogger(logr.Discard()) // errors go to the handler
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over = true
	}
}
