package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"go.uber.org/zap"

	"turnkeeper/httpapi"
	"turnkeeper/internal/config"
)

// bound holds the listeners of a process. They are opened before anything is written to the database:
// a process that cannot listen leaves no trace of a worker.
type bound struct {
	api, metrics net.Listener // nil: not configured
}

// bind listens on the configured addresses.
func bind(ctx context.Context, cfg *config.Config, log *zap.Logger) (b bound, err error) {
	if cfg.HasRole(config.RoleAPI) && cfg.Listen != "" {
		b.api, err = httpapi.Listen(ctx, cfg.Listen)
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && cfg.Listen == config.Default().Listen:
			log.Warn("the HTTP API is off: another process uses its address; set listen to another address",
				zap.String("listen", cfg.Listen))
		case err != nil:
			return bound{}, fmt.Errorf("cannot listen on %s (setting listen): %w", cfg.Listen, err)
		}
	}
	if cfg.MetricsListen != "" {
		if b.metrics, err = httpapi.Listen(ctx, cfg.MetricsListen); err != nil {
			b.close()
			return bound{}, fmt.Errorf("cannot listen on %s (setting metrics_listen): %w", cfg.MetricsListen, err)
		}
	}
	return b, nil
}

// addresses returns the addresses of the listeners.
func (b bound) addresses() (all []string) {
	for _, listener := range []net.Listener{b.api, b.metrics} {
		if listener != nil {
			all = append(all, listener.Addr().String())
		}
	}
	return all
}

// close closes the listeners that were not served.
func (b bound) close() {
	for _, listener := range []net.Listener{b.api, b.metrics} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}
