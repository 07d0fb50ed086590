package storage

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolStats are the figures of one pool of connections.
type PoolStats struct {
	Name            string
	Used, Idle, Max int
	Waits           int64         // times that none was free
	Waited          time.Duration // for these, together
}

// Pools are the figures of the store's pools, that of its ordinary work first.
func (s *DB) Pools() []PoolStats {
	return []PoolStats{poolStats("work", s.core.Pool), poolStats("finish", s.core.Finish), poolStats("queue", s.core.Queue)}
}

func poolStats(name string, pool *pgxpool.Pool) PoolStats {
	stat := pool.Stat()
	return PoolStats{
		Name: name, Used: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()), Max: int(stat.MaxConns()),
		Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime(),
	}
}
