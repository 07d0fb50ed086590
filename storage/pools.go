package storage

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolStats are the statistics of one connection pool.
type PoolStats struct {
	Name            string
	Used, Idle, Max int
	Waits           int64         // how often no connection was free
	Waited          time.Duration // total time of these waits
}

// Pools returns the statistics of the connection pools, the main pool first.
func (s *DB) Pools() []PoolStats {
	return []PoolStats{poolStats("work", s.core.Pool), poolStats("finish", s.core.Finish),
		poolStats("queue", s.core.Queue)}
}

func poolStats(name string, pool *pgxpool.Pool) PoolStats {
	stat := pool.Stat()
	return PoolStats{
		Name: name, Used: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()), Max: int(stat.MaxConns()),
		Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime(),
	}
}
