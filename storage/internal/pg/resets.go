package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

const (
	readOnly      = "25006"
	adminShutdown = "57P01"
	crashShutdown = "57P02"
	cannotConnect = "57P03"
)

// resetPause is the minimum time between two resets, because a second one would close
// the connections that the first one has just opened.
const resetPause = time.Second

// A resetter makes the pools of a store reconnect when the server reports that it has
// become read-only after a failover, or that it shuts down. Otherwise the pools would
// keep using a server to which the URL no longer leads, or each dead connection would
// cause an error.
type resetter struct {
	log *zap.Logger

	mu    sync.Mutex
	last  time.Time
	pools []*pgxpool.Pool
	held  map[*pgx.Conn]bool // connections that River may keep acquired
}

// heed resets the pools if an error calls for that.
func (r *resetter) heed(err error) {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || r == nil {
		return
	}
	switch pg.Code {
	case readOnly, adminShutdown, crashShutdown, cannotConnect:
		r.reset(pg)
	}
}

func (r *resetter) reset(why *pgconn.PgError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < resetPause {
		return
	}
	r.last = time.Now()
	r.log.Warn("reconnecting to the database", zap.String("sqlstate", why.Code), zap.Error(why))
	for _, pool := range r.pools {
		pool.Reset()
	}
	if why.Code == readOnly { // a server that shuts down closes them itself
		for conn := range r.held {
			_ = conn.PgConn().Conn().Close()
		}
	}
}

// watch adds a pool to those that are reset.
func (r *resetter) watch(pool *pgxpool.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = append(r.pools, pool)
}

// hold tracks the connections of a pool, so that a reset closes them even while in use.
func (r *resetter) hold(cfg *pgxpool.Config) {
	also := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := also(ctx, conn); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held[conn] = true
		return nil
	}
	cfg.BeforeClose = func(conn *pgx.Conn) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.held, conn)
	}
}
