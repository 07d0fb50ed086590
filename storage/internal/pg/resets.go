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

// resetPause is the least time between two resets: the connections that the
// second one would close are of the first one's making.
const resetPause = time.Second

// A resetter makes the pools of a store connect anew when the server says that it
// can no longer serve them: it has become read-only after a failover, or is shutting
// down. Otherwise they would go on with a server that the URL no longer means, or
// find out about each dead connection by an error.
type resetter struct {
	log *zap.Logger

	mu    sync.Mutex
	last  time.Time
	pools []*pgxpool.Pool
	held  map[*pgx.Conn]bool // connections that River may hold for as long as they live
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
	r.log.Warn("the connections to the database are made anew", zap.String("reason", why.Message), zap.String("sqlstate", why.Code))
	for _, pool := range r.pools {
		pool.Reset()
	}
	if why.Code == readOnly { // the others end with the server
		for conn := range r.held {
			_ = conn.PgConn().Conn().Close()
		}
	}
}

// watch resets the pool with the others.
func (r *resetter) watch(pool *pgxpool.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools = append(r.pools, pool)
}

// hold notes the connections of a pool, so that they are closed in use as well.
func (r *resetter) hold(cfg *pgxpool.Config) {
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
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
