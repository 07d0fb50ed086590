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

// bound are the addresses that a process has. They are taken before anything is written to the
// database: a process that cannot have them has never been a worker.
type bound struct {
	api, metrics net.Listener // nil: none
}

// bind takes the addresses of the settings.
func bind(ctx context.Context, cfg *config.Config, log *zap.Logger) (b bound, err error) {
	if cfg.HasRole(config.RoleAPI) && cfg.Listen != "" {
		b.api, err = httpapi.Listen(ctx, cfg.Listen)
		switch {
		case errors.Is(err, syscall.EADDRINUSE) && cfg.Listen == config.Default().Listen:
			log.Warn("the HTTP API is off here: another process of this machine has its address; set listen to have it on another one",
				zap.String("listen", cfg.Listen))
		case err != nil:
			return bound{}, fmt.Errorf("listen is %s, and the process cannot listen there: %w", cfg.Listen, err)
		}
	}
	if cfg.MetricsListen != "" {
		if b.metrics, err = httpapi.Listen(ctx, cfg.MetricsListen); err != nil {
			b.close()
			return bound{}, fmt.Errorf("metrics_listen is %s, and the process cannot listen there: %w", cfg.MetricsListen, err)
		}
	}
	return b, nil
}

// addresses are those that the process has.
func (b bound) addresses() (all []string) {
	for _, listener := range []net.Listener{b.api, b.metrics} {
		if listener != nil {
			all = append(all, listener.Addr().String())
		}
	}
	return all
}

// close gives the addresses up. Those that were served have been closed by then.
func (b bound) close() {
	for _, listener := range []net.Listener{b.api, b.metrics} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}
